r"""Shows other people's text on a terminal: characters that would control it become escapes.

Payloads, names of sub-queues and hosts, and texts of errors may hold what moves the cursor, hides lines or
turns the direction of text around.
"""

from __future__ import annotations

import re

__all__ = ["printable", "printable_json"]

#: Controls (C0, DEL, C1), what ends lines or turns their direction around, and halves of characters.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str, keep: str = "") -> str:
    r"""A text as a terminal can show it: ESC becomes `\x1b`, and so on.

    Args:
        text: Any text.
        keep: Control characters that stay, such as `"\n"`.
    """
    return _CONTROL.sub(lambda found: _shown(found[0], keep), text)


def _shown(character: str, keep: str) -> str:
    if character in keep:
        return character
    return character.encode("unicode_escape").decode("ascii")


def printable_json(text: str) -> str:
    r"""JSON on one line with escapes for what JSON leaves as it is, such as C1 controls; the same value."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
