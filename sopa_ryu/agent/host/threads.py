"""Work of an event loop that is done in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Call a function in a thread. If the caller is cancelled meanwhile, the call still ends first.

    What the function works on may so be closed as soon as the caller has ended.
    """
    call = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **options))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise
