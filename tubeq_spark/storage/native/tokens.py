"""Takes SQL texts apart: their tokens, what stands in parentheses, the columns of a condition."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Piece", "columns_of", "grouped", "parts", "words"]

#: A piece of a text: a token, or what stands in parentheses.
Piece: TypeAlias = "str | list[Piece]"

_TOKEN = re.compile(
    r"""\s+
    | [Xx]'[0-9a-fA-F]*' | '(?:[^']|'')*' | `(?:[^`]|``)*` | \{\w+\}
    | \d+(?:\.\d+)?[A-Za-z]? | \w+ | <=> | <> | <= | >= | != | \|\| | ->
    | .""",
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_]\w*")
#: Words of a condition that are no columns.
_NOT_COLUMNS = frozenset(
    "and as between case else end false in is like not null or then true when".split()  # noqa: SIM905
)


def columns_of(text: str) -> set[str]:
    """The columns that a condition without sub-queries names, in small letters, without aliases."""
    found: set[str] = set()
    pieces = _tokens(text)
    for place, piece in enumerate(pieces):
        after = "".join(pieces[place + 1 :]).lstrip()[:1]
        is_column = piece.startswith("`") or _WORD.fullmatch(piece) is not None
        # What follows AS in a CAST is a type, and what stands before a point an alias.
        is_type = "".join(pieces[:place]).rstrip().upper().endswith(" AS")
        if is_column and after not in {"(", "."} and not is_type:
            found.add(piece.strip("`").lower())
    return found - _NOT_COLUMNS


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def grouped(text: str) -> list[Piece]:
    """The pieces of a text, by their parentheses."""
    stack: list[list[Piece]] = [[]]
    for piece in _tokens(text):
        if piece == "(":
            stack.append([])
        elif piece == ")":
            group = stack.pop()
            stack[-1].append(group)
        else:
            stack[-1].append(piece)
    if len(stack) != 1:
        msg = f"parentheses do not match in {text}"
        raise ValueError(msg)
    return stack[0]


def parts(inside: Sequence[Piece]) -> list[list[Piece]]:
    """The arguments of a call."""
    found: list[list[Piece]] = [[]]
    for piece in inside:
        if piece == ",":
            found.append([])
        else:
            found[-1].append(piece)
    return found if found != [[]] else []


def words(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces without the blanks between them, at all levels."""
    return [
        piece if isinstance(piece, str) else words(piece)
        for piece in pieces
        if isinstance(piece, list) or not piece.isspace()
    ]
