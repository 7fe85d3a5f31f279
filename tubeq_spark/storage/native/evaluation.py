"""Evaluates the pieces of an expression over Arrow columns, with the NULLs of SQL.

It knows what stands in the statements and plain queries that are run most, and nothing else.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.rules.microseconds import to_us
from tubeq_spark.storage.arrow_arrays import array, scalar
from tubeq_spark.storage.native.literals import (
    MOMENT,
    UnknownTextError,
    null,
    number,
    typed_literal,
)
from tubeq_spark.storage.native.tokens import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.storage.native.tokens import Piece

    #: The values of an expression, or its one value for all rows.
    Values: TypeAlias = "pa.ChunkedArray | pa.Array | pa.Scalar"
    #: The column of an alias ("": it has none) and a name.
    Lookup: TypeAlias = Callable[[str, str], Values]

__all__ = ["Lookup", "Values", "value"]

_FALSE, _ONE = scalar(False, pa.bool_()), scalar(1, pa.int32())  # noqa: FBT003  (the value is the point)
_COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_SUMS = {"+": pc.add_checked, "-": pc.subtract_checked}


def value(pieces: Sequence[Piece], lookup: Lookup) -> Values:
    """The value of an expression.

    Args:
        pieces: All pieces of one level, without blanks.
        lookup: The columns.

    Raises:
        UnknownTextError: It has something that is not known here.
        pa.ArrowException: It cannot be computed.
    """
    level = _Level(pieces, lookup)
    try:
        found = level.disjunction()
    except pa.ArrowException:
        raise
    except (ValueError, OverflowError, TypeError, IndexError) as error:
        # A literal that is none, or too large for its type.
        raise UnknownTextError(str(error)) from error
    level.require_end()
    return found


class _Level:
    """The pieces between two parentheses, read from the left; each method reads what binds as tightly."""

    def __init__(self, pieces: Sequence[Piece], lookup: Lookup) -> None:
        self._pieces = pieces
        #: The same in capitals; "" is one in parentheses, or the end.
        self._words = [piece.upper() if isinstance(piece, str) else "" for piece in pieces]
        self._words += ["", "", ""]
        self._lookup = lookup
        self._place = 0

    # -- reading ---------------------------------------------------------------------------------

    def _skips(self, word: str, following: str | None = None) -> bool:
        """Go past a word, or two, where they follow."""
        place = self._place
        if self._words[place] != word:
            return False
        if following is not None and self._words[place + 1] != following:
            return False
        self._place += 1 if following is None else 2
        return True

    def _expect(self, word: str) -> None:
        if not self._skips(word):
            raise UnknownTextError(word)

    def _next(self) -> Piece:
        if self._place >= len(self._pieces):
            msg = "it ends too early"
            raise UnknownTextError(msg)
        self._place += 1
        return self._pieces[self._place - 1]

    def _group(self) -> list[Piece]:
        piece = self._next()
        if isinstance(piece, str):
            raise UnknownTextError(piece)
        return piece

    def require_end(self) -> None:
        """Refuse what was not read."""
        if self._place < len(self._pieces):
            raise UnknownTextError(str(self._pieces[self._place]))

    # -- conditions ------------------------------------------------------------------------------

    def disjunction(self) -> Values:
        """Conditions by OR, or any other expression."""
        found = self._conjunction()
        while self._skips("OR"):
            found = pc.or_kleene(found, self._conjunction())
        return found

    def _conjunction(self) -> Values:
        found = self._negation()
        while self._skips("AND"):
            found = pc.and_kleene(found, self._negation())
        return found

    def _negation(self) -> Values:
        return pc.invert(self._negation()) if self._skips("NOT") else self._comparison()

    def _comparison(self) -> Values:
        left = self._sum()
        if self._skips("IS", "NULL"):
            return pc.is_null(left)
        if self._skips("IS", "NOT"):
            self._expect("NULL")
            return pc.is_valid(left)
        if self._skips("NOT", "IN"):
            return pc.invert(self._is_one_of(left))
        if self._skips("IN"):
            return self._is_one_of(left)
        compared = _COMPARISONS.get(self._words[self._place])
        if compared is None:
            return left
        self._place += 1
        return compared(left, self._sum())

    def _is_one_of(self, left: Values) -> Values:
        named = [value(part, self._lookup) for part in parts(self._group())]
        if not all(isinstance(value, pa.Scalar) and value.is_valid for value in named):
            msg = "IN, not of literals"
            raise UnknownTextError(msg)
        if len(named) == 1:
            return pc.equal(left, named[0])
        wanted = array([value.as_py() for value in named], named[0].type).cast(left.type)
        found = pc.is_in(left, value_set=wanted)
        return pc.if_else(pc.is_valid(left), found, null(pa.bool_()))

    # -- values ----------------------------------------------------------------------------------

    def _sum(self) -> Values:
        found = self._quotient()
        while self._words[self._place] in _SUMS:
            combined = _SUMS[self._words[self._place]]
            self._place += 1
            found = combined(found, self._quotient())
        return found

    def _quotient(self) -> Values:
        found = self._single()
        while self._skips("DIV"):
            found = pc.divide_checked(found, self._single())
        return found

    def _single(self) -> Values:
        piece = self._next()
        if isinstance(piece, list):
            return value(piece, self._lookup)
        if piece == "-":
            return pc.negate_checked(self._single())
        if piece[0].isdigit():
            return number(piece)
        if piece[0] == "'":
            return scalar(piece[1:-1].replace("''", "'"), pa.string())
        return self._named(piece)

    def _named(self, piece: str) -> Values:
        """What begins with a word."""
        word = piece.upper()
        if word in {"TRUE", "FALSE"}:
            return scalar(word == "TRUE", pa.bool_())
        if word == "NULL":
            return null(pa.null())
        if word == "CASE":
            return self._case()
        if word == "TIMESTAMP" and self._words[self._place].startswith("'"):
            at = datetime.fromisoformat(str(self._next())[1:-1])
            return scalar(to_us(at), MOMENT)
        if self._place < len(self._pieces) and isinstance(self._pieces[self._place], list):
            return self._call(word)
        alias = ""
        if self._skips("."):
            alias, piece = piece, str(self._next())
        return self._lookup(alias, piece.strip("`"))

    def _case(self) -> Values:
        branches = []
        while self._skips("WHEN"):
            condition = self.disjunction()
            self._expect("THEN")
            branches.append((condition, self.disjunction()))
        other = self.disjunction() if self._skips("ELSE") else None
        self._expect("END")
        if not branches:
            msg = "CASE with a value"
            raise UnknownTextError(msg)
        if other is None:
            other = null(branches[0][1].type)
        for condition, value in reversed(branches):
            other = pc.if_else(pc.fill_null(condition, fill_value=_FALSE), value, other)
        return other

    def _call(self, name: str) -> Values:
        inside = self._group()
        if name == "CAST":
            return typed_literal(inside)
        args = [value(part, self._lookup) for part in parts(inside)]
        match name, args:
            case "TIMESTAMP_MICROS", [microseconds]:
                return pc.cast(microseconds, MOMENT)
            case "UNIX_MICROS", [at] if at.type == MOMENT:
                return pc.cast(at, pa.int64())
            case "GREATEST", [_, _, *_]:
                return pc.max_element_wise(*args)
            case "INSTR", [text, pa.Scalar() as part] if part.is_valid:
                return pc.add(pc.find_substring(text, part.as_py()), _ONE)
        raise UnknownTextError(name)
