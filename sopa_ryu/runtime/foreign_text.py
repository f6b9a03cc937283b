"""Text that a peer has sent, as it may go into answers, logs and terminals. Pure."""

import re

PRINTABLE = r"\A[ -~]*\Z"
"""The pattern of text that needs no clean-up."""
_UNPRINTABLE = re.compile(r"[^ -~]")


def printable(text: str, most: int) -> str:
    r"""Return a text in printable ASCII, cut to so many characters.

    >>> printable("mac\n\x1b[2J", 20), printable("h" * 99, 8)
    ('mac??[2J', 'hhhhhh..')
    """
    shown = _UNPRINTABLE.sub("?", text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 2]}.."
