"""Translates the queue's own SQL from Spark's dialect to DataFusion's.

The texts come from `storage/spark`, so this knows what stands in them and no more: their names and
values have passed one quoting module. What DataFusion understands as it is goes through.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tubeq_spark.storage.native.tokens import grouped, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.storage.native.tokens import Piece

__all__ = ["translated"]

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
#: Of a column of moments, in Arrow's words.
_MOMENT = "'Timestamp(Microsecond, Some(\"UTC\"))'"
_TYPES = {"STRING": "VARCHAR", "BINARY": "BYTEA"}
#: Functions that DataFusion has by another name.
_NAMES = {
    "collect_list": "array_agg",
    "every": "bool_and",
    "explode": "unnest",
    "map_from_arrays": "map",
}
#: All words that mean something else there.
_MEANT = _NAMES.keys() | {
    "cast",
    "collect_set",
    "count_if",
    "delta",
    "div",
    "if",
    "map",
    "max_by",
    "struct",
    "timestamp",
    "timestamp_micros",
    "unix_micros",
    "values",
}


def translated(text: str, table: Callable[[str], str] = lambda name: name) -> str:
    """A query, or an expression, as DataFusion reads it.

    Args:
        text: The text, in Spark's dialect.
        table: What a table is called there, by its name in the text.
    """
    return _render(grouped(text), table)


def _number(text: str) -> str:
    if text[-1] in "Ll":
        return text[:-1]
    return f"CAST({text[:-1]} AS DOUBLE)" if text[-1] in "Dd" else text


class _Text:
    """Renders the pieces of one level."""

    def __init__(self, pieces: Sequence[Piece], table: Callable[[str], str]) -> None:
        self._pieces = pieces
        self._table = table
        self._place = 0
        self._out: list[str] = []

    def render(self) -> str:
        while self._place < len(self._pieces):
            piece = self._pieces[self._place]
            self._place += 1
            self._out.append(self._one(piece))
        return "".join(self._out)

    def _one(self, piece: Piece) -> str:
        if isinstance(piece, list):
            return f"({_render(piece, self._table)})"
        if piece[0].isdigit():
            return _number(piece)
        if piece[0] == "`":
            return '"' + piece[1:-1].replace("``", "`").replace('"', '""') + '"'
        return self._word(piece) if piece.lower() in _MEANT else piece

    def _word(self, word: str) -> str:
        following = self._next()
        upper = word.upper()
        if upper == "DELTA" and following == ".":
            name = f"{word}.{self._taken(2)}"
            return self._table(name)
        if upper == "TIMESTAMP" and isinstance(following, str) and following.startswith("'"):
            self._taken(1)
            return _moment(following[1:-1])
        if upper == "DIV":
            return "/"
        if upper == "VALUES" and isinstance(following, list) and self._is_source():
            return f"(VALUES {self._rows()})"
        if isinstance(following, list):
            called = _call(word, following, self._table)
            if called is not None:
                self._taken(1)
                return called
        return word

    def _is_source(self) -> bool:
        """Whether what stands here is read from."""
        before = "".join(self._out).rstrip()
        return before.upper().endswith("FROM")

    def _rows(self) -> str:
        """The rows of an inline table."""
        rows = []
        while True:
            following = self._next()
            if isinstance(following, list):
                self._taken(1)
                rows.append(f"({_render(following, self._table)})")
            elif following == ",":
                self._taken(1)
            else:
                return ", ".join(rows)

    def _next(self) -> Piece | None:
        """The next piece that is not blank."""
        for piece in self._pieces[self._place :]:
            if isinstance(piece, list) or not piece.isspace():
                return piece
        return None

    def _taken(self, count: int) -> str:
        """Go past so many pieces that are not blank: the last of them."""
        piece: Piece = ""
        for _ in range(count):
            piece = self._pieces[self._place]
            while isinstance(piece, str) and piece.isspace():
                self._place += 1
                piece = self._pieces[self._place]
            self._place += 1
        return piece if isinstance(piece, str) else ""


def _render(pieces: Sequence[Piece], table: Callable[[str], str]) -> str:
    return _Text(pieces, table).render()


def _moment(text: str) -> str:
    """A moment, exact to the microsecond however far it is."""
    us = (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
    return f"arrow_cast({us}, {_MOMENT})"


# -- calls -------------------------------------------------------------------------------------------


def _call(word: str, inside: list[Piece], table: Callable[[str], str]) -> str | None:  # noqa: PLR0911, C901  (one of each)
    """A call; `None`: as it stands."""
    name = word.lower()
    if name == "cast":
        return _cast(inside, table)
    if name in _NAMES:
        return f"{_NAMES[name]}({_render(inside, table)})"
    args = [_render(part, table).strip() for part in parts(inside)]
    match name:
        case "unix_micros":
            return f"CAST({args[0]} AS BIGINT)"
        case "timestamp_micros":
            return f"arrow_cast({args[0]}, {_MOMENT})"
        case "count_if":
            return f"count(*) FILTER (WHERE {args[0]})"
        case "struct":
            return f"named_struct({', '.join(_field(arg) for arg in args)})"
        case "max_by":
            return f"first_value({args[0]} ORDER BY {args[1]} DESC NULLS LAST)"
        case "collect_set":
            chosen = f"array_agg(DISTINCT {args[0]}) FILTER (WHERE {args[0]} IS NOT NULL)"
            return f"coalesce({chosen}, make_array())"
        case "if":
            return f"CASE WHEN {args[0]} THEN {args[1]} ELSE {args[2]} END"
        case "map":
            return f"map([{', '.join(args[::2])}], [{', '.join(args[1::2])}])"
        case _:
            return None


def _cast(inside: list[Piece], table: Callable[[str], str]) -> str | None:
    place = max(i for i, piece in enumerate(inside) if isinstance(piece, str) and _is_as(piece))
    value = [p for p in inside[:place] if isinstance(p, list) or not p.isspace()]
    kind = "".join(p for p in inside[place + 1 :] if isinstance(p, str)).strip().upper()
    first = value[0]
    if len(value) == 1 and isinstance(first, str) and first[:2].upper() == "X'":
        # Text that is more than plain characters; here no setting changes what a literal means.
        text = bytes.fromhex(first[2:-1]).decode()
        return "'" + text.replace("'", "''") + "'"
    rendered = _render(inside[:place], table).strip()
    if kind == "TIMESTAMP":
        return f"arrow_cast({rendered}, {_MOMENT})"
    if kind.startswith("MAP<"):
        return "NULL" if rendered.upper() == "NULL" else rendered
    return f"CAST({rendered} AS {_TYPES.get(kind, kind)})"


def _is_as(piece: str) -> bool:
    return piece.upper() == "AS"


def _field(arg: str) -> str:
    """The name and the value of a struct's field: its alias, or what the column is called."""
    value, _, name = arg.rpartition(" AS ")
    if not value:
        value, name = arg, arg.rpartition(".")[2]
    return f"'{name.strip()}', {value.strip()}"
