"""Options as fields of a dataclass: name, type, default, help and bounds of each stand in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

REQUIRED: Any = MISSING
FILE = click.Path(dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)


class Address(click.ParamType[tuple[str, int]]):
    """An address and a port; ``port`` is for the example in messages, ``lowest`` is 0 if the machine may choose one."""

    name = "ADDRESS:PORT"

    def __init__(self, port: int, lowest: int = 1) -> None:
        self._port, self._lowest = port, lowest

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return address and port, or end with a usage error."""
        if isinstance(value, tuple):
            return value
        address, _, port = str(value).rpartition(":")
        if not address or not (port.isascii() and port.isdigit()) or not self._lowest <= int(port) < 65536:
            self.fail(f"{value!r} is no address and port, as in 192.0.2.1:{self._port}", param, ctx)
        return address.removeprefix("[").removesuffix("]"), int(port)


def urls(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Return the URLs of an option that may be repeated, or name several, separated by spaces, as a line of an environment file.

    >>> urls(None, None, ["http://r1:8080 http://r2:8080", "http://r1:8080"])
    ('http://r1:8080', 'http://r2:8080')
    """
    return tuple(dict.fromkeys(url for value in values for url in value.split() or [value]))


def option(default: Any, text: str, **arguments: Any) -> Any:
    """Return the field of an option; ``default`` is `REQUIRED` if there is none.

    ``arguments`` are those of `click.Option`, or of oslo.config's; and ``name``, if it is not the field's.
    """
    return field(default=default, metadata={"help": text, **arguments})


def seed_option() -> Any:
    """Return the field of the option that all commands with random choices have."""
    return option(1, "Seed of everything random.", type=click.IntRange(0, 2**32 - 1))


def option_of(settings: type, name: str, **arguments: Any) -> Callable[[Command], Command]:
    """Return the decorator that adds one field's option to a command; `arguments` replace those of the field."""
    [found] = [each for each in fields(settings) if each.name == name]
    return _decorator(found, arguments)


def options_of(settings: type) -> Callable[[Command], Command]:
    """Return the decorator that adds the options of a dataclass to a command, which gets them as keywords named as the fields."""

    def decorate(command: Command) -> Command:
        for each in reversed(fields(settings)):
            command = _decorator(each, {})(command)
        return command

    return decorate


def _decorator(of: Field[Any], changes: dict[str, Any]) -> Callable[[Command], Command]:
    arguments, default = {"show_default": True, **of.metadata, **changes}, of.default
    word = arguments.pop("name", of.name).replace("_", "-")
    name = f"--{word}/--no-{word}" if default is True else f"--{word}"
    if default is REQUIRED:
        arguments["required"] = True
    elif isinstance(default, StrEnum):
        kind = type(default)
        arguments |= {"type": click.Choice([str(each) for each in kind]), "default": str(default)}
        arguments["callback"] = lambda _context, _param, value: kind(value)
    elif default is False:
        arguments["is_flag"] = True
    elif default not in (None, ()):
        arguments["default"] = default
    return click.option(name, of.name, **arguments)
