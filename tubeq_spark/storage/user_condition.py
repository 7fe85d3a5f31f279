"""Parses a condition that a program writes in SQL, such as `attempts > 3 AND error LIKE '%timeout%'`.

It becomes an expression, which each engine evaluates like those of the queue itself. So all engines give the same
answer. The language leaves out everything that engines answer differently: unlike Spark and DataFusion, it
compares only values of one kind, and it has no functions that depend on a session or a locale.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import validation
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.expression import (
    FALSE,
    TRUE,
    Compared,
    Contains,
    Length,
    Like,
    Literal,
    all_of,
    any_of,
    at,
    case,
    literal,
    real,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.storage.expression import Expression

#: Strings of standard SQL (engines differ in the meaning of a backslash), numbers without a suffix, names, signs.
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|'')*')
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_.])
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign><>|!=|<=|>=|==|[=<>(),-])
    |(?P<space>[ \t\r\n]+)""",
    re.VERBOSE,
)
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>"} | {
    s: s for s in ("<", "<=", ">", ">=")
}
_WORDS = frozenset(
    ["AND", "BETWEEN", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TIMESTAMP", "TRUE"]
)
#: The most levels of parentheses and NOTs, because engines traverse an expression by recursion.
_DEEPEST = 50
_BIGINT = 2**63


class Kind(StrEnum):
    """The kind of a value. Only values of one kind can be compared."""

    WHOLE = "a whole number"
    REAL = "a number"
    TEXT = "a text"
    MOMENT = "a timestamp"
    TRUTH = "a condition"
    STRUCT = "a struct"


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column that a condition may name.

    Attributes:
        value: Its value for a stored row.
        kind: Its kind.
    """

    value: Expression
    kind: Kind


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a condition, with its text for errors."""

    value: Expression
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: int


class UserCondition:
    """The parser of one condition."""

    def __init__(self, text: str, columns: Mapping[str, ShownColumn]) -> None:
        """Parse a condition.

        Args:
            text: The condition.
            columns: The columns that it may name, by their names in lower case. The condition may use upper case.

        Raises:
            InvalidOptionError: It is no text or no condition, or has something that engines answer differently.
        """
        self._columns = columns
        self._text = validation.utf8("where", validation.text("where", text))
        self._tokens = self._read()
        self._next = 0
        self._depth = 0
        self._names_null = False
        found = self._any()
        if self._token.kind != "end":
            raise self._unlike("the end, AND or OR")
        truth = self._truth(found).value
        # DataFusion simplifies such a condition to `… AND NULL`, and then finds all rows that match the first part.
        self.expression = Compared("<=>", truth, TRUE) if self._names_null else truth

    # -- tokens -------------------------------------------------------------------------------

    def _read(self) -> list[_Token]:
        tokens, place = [], 0
        while place < len(self._text):
            found = _TOKEN.match(self._text, place)
            if found is None:
                raise self._misread(place, "is not understood")
            if found.lastgroup != "space":
                tokens.append(_Token(found.lastgroup or "", found[0], place))
            place = found.end()
        return [*tokens, _Token("end", "", place)]

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _is(self, *words: str) -> bool:
        """Whether the next tokens are these words or signs."""
        ahead = self._tokens[self._next : self._next + len(words)]
        return [t.text.upper() for t in ahead if t.kind in ("name", "sign")] == [*words]

    def _takes(self, *words: str) -> bool:
        """Consume these words or signs if they are next; return whether they were."""
        found = self._is(*words)
        self._next += len(words) * found
        return found

    def _require(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._unlike(sign)

    def _unlike(self, wanted: str) -> InvalidOptionError:
        """The error for the next token."""
        return self._misread(self._token.place, f"is not {wanted}")

    def _misread(self, place: int, what: str) -> InvalidOptionError:
        rest = self._text[place : place + 20]
        found = f"character {place + 1} ({rest!r})" if rest else "its end"
        return self._wrong(f"{found} {what}")

    def _wrong(self, what: str) -> InvalidOptionError:
        return InvalidOptionError(f"where={self._text!r}: {what}")

    # -- conditions ---------------------------------------------------------------------------

    def _any(self) -> _Part:
        return self._joined("OR", self._all, any_of)

    def _all(self) -> _Part:
        return self._joined("AND", self._not, all_of)

    def _joined(
        self, word: str, read: Callable[[], _Part], join: Callable[..., Expression]
    ) -> _Part:
        start, parts = self._token.place, [read()]
        while self._takes(word):
            parts.append(read())
        if len(parts) == 1:
            return parts[0]
        return self._part(start, join(*(self._truth(part).value for part in parts)))

    def _not(self) -> _Part:
        start = self._token.place
        if not self._takes("NOT"):
            return self._predicate()
        return self._part(start, ~self._truth(self._deeper(self._not)).value)

    def _deeper(self, read: Callable[[], _Part]) -> _Part:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"it is more than {_DEEPEST} levels deep")
        found = read()
        self._depth -= 1
        return found

    def _predicate(self) -> _Part:
        start, left = self._token.place, self._value()
        for sign, compared in _COMPARISONS.items():
            if self._takes(sign):
                return self._part(start, self._compared(compared, left, self._value()))
        if self._takes("IS", "NOT", "NULL"):
            return self._part(start, left.value.is_not_null())
        if self._takes("IS", "NULL"):
            return self._part(start, left.value.is_null())
        negated = self._takes("NOT")
        if self._takes("IN"):
            values = self._list(self._value)
            found = any_of(*(self._compared("=", left, value) for value in values))
        elif self._takes("BETWEEN"):
            least = self._compared(">=", left, self._value())
            if not self._takes("AND"):
                raise self._unlike("AND")
            found = all_of(least, self._compared("<=", left, self._value()))
        elif self._takes("LIKE"):
            found = Like(self._of_kind(left, Kind.TEXT).value, self._text_literal())
        elif negated:
            raise self._unlike("IN, BETWEEN or LIKE")
        else:
            return left
        return self._part(start, ~found if negated else found)

    def _compared(self, sign: str, left: _Part, right: _Part) -> Expression:
        left, right = _alike([left, right])
        if left.kind is not right.kind or left.kind in (Kind.TRUTH, Kind.STRUCT):
            raise self._wrong(f"{left.text} is {left.kind}, and {right.text} is {right.kind}")
        return Compared(sign, left.value, right.value)

    # -- values -------------------------------------------------------------------------------

    def _value(self) -> _Part:
        token = self._token
        if self._takes("("):
            found = self._deeper(self._any)
            self._require(")")
            return _Part(found.value, found.kind, self._since(token.place))
        if self._takes("-"):
            if self._token.kind != "number":
                raise self._unlike("a number")
            return self._number("-")
        if token.kind == "number":
            return self._number()
        if token.kind == "text":
            return self._part(token.place, literal(self._text_literal()), Kind.TEXT)
        if token.kind == "name":
            return self._named()
        raise self._unlike("a column, a number, a text or a timestamp")

    def _number(self, sign: str = "") -> _Part:
        token = self._token
        self._next += 1
        text = f"{sign}{token.text}"
        if token.text.isdigit():
            digits = token.text.lstrip("0") or "0"
            # Python refuses to parse a number of some thousand digits.
            if len(digits) > len(str(_BIGINT)) or not -_BIGINT <= int(sign + digits) < _BIGINT:
                raise self._wrong(f"{text} has more than 64 bits")
            return _Part(literal(int(sign + digits)), Kind.WHOLE, text)
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise self._wrong(f"{text} is infinite")
        return _Part(real(value), Kind.REAL, text)

    def _text_literal(self) -> str:
        token = self._token
        if token.kind != "text":
            raise self._unlike("a text")
        self._next += 1
        return token.text[1:-1].replace("''", "'")

    def _named(self) -> _Part:
        token = self._token
        name = token.text.upper()
        self._next += 1
        if name == "TIMESTAMP":
            return self._part(token.place, self._moment(), Kind.MOMENT)
        if name in ("TRUE", "FALSE"):
            return self._part(token.place, TRUE if name == "TRUE" else FALSE)
        if name == "NULL":
            raise self._wrong("nothing is equal to NULL; write IS NULL or IS NOT NULL")
        if self._is("(") and name not in _WORDS:
            return self._function(token)
        column = self._columns.get(token.text.lower())
        if column is None:
            raise self._wrong(f"no column {token.text}; there are {', '.join(self._columns)}")
        self._names_null |= isinstance(column.value, Literal)
        return _Part(column.value, column.kind, token.text)

    def _moment(self) -> Expression:
        text = self._text_literal()
        try:
            moment = dt.datetime.fromisoformat(text) if _MOMENT.fullmatch(text) else None
        except ValueError:
            moment = None
        if moment is None:
            raise self._wrong(f"TIMESTAMP {text!r} is not of the form '2026-11-21 08:30:00'")
        return at(to_us(moment.replace(tzinfo=moment.tzinfo or dt.UTC)))

    def _function(self, token: _Token) -> _Part:
        name = token.text.lower()
        if name == "coalesce":
            return self._coalesce(token)
        if name == "length":
            (part,) = self._arguments(token, 1)
            return self._part(token.place, Length(self._of_kind(part, Kind.TEXT).value), Kind.WHOLE)
        if name in ("contains", "startswith", "endswith"):
            part, wanted = self._arguments(token, 2)
            return self._part(token.place, self._found_in(name, part, wanted))
        raise self._wrong(
            f"no function {token.text}; there are coalesce, contains, endswith, length, startswith"
        )

    def _found_in(self, name: str, part: _Part, wanted: _Part) -> Expression:
        value, text = self._of_kind(part, Kind.TEXT).value, wanted.value
        if not isinstance(text, Literal) or not isinstance(text.value, str):
            raise self._wrong(f"{wanted.text} is no text in quotes")
        if name == "contains":
            return Contains(value, text.value)
        pattern = re.sub("[%_]", r"\\\g<0>", text.value)
        return Like(value, f"{pattern}%" if name == "startswith" else f"%{pattern}")

    def _coalesce(self, token: _Token) -> _Part:
        parts = _alike(self._list(self._value))
        for part in parts:
            self._of_kind(part, parts[0].kind)
        if parts[0].kind in (Kind.TRUTH, Kind.STRUCT):
            raise self._wrong(f"{parts[0].text} is {parts[0].kind}")
        whens = ((part.value.is_not_null(), part.value) for part in parts[:-1])
        return self._part(token.place, case(*whens, other=parts[-1].value), parts[0].kind)

    def _arguments(self, token: _Token, count: int) -> Sequence[_Part]:
        found = self._list(self._value)
        if len(found) != count:
            raise self._wrong(f"{token.text} has {count} arguments, not {len(found)}")
        return found

    def _list(self, read: Callable[[], _Part]) -> list[_Part]:
        self._require("(")
        found = [self._deeper(read)]
        while self._takes(","):
            found.append(self._deeper(read))
        self._require(")")
        return found

    # -- parts --------------------------------------------------------------------------------

    def _truth(self, part: _Part) -> _Part:
        return self._of_kind(part, Kind.TRUTH)

    def _of_kind(self, part: _Part, kind: Kind) -> _Part:
        if part.kind is not kind:
            raise self._wrong(f"{part.text} is {part.kind}, not {kind}")
        return part

    def _part(self, start: int, value: Expression, kind: Kind = Kind.TRUTH) -> _Part:
        return _Part(value, kind, self._since(start))

    def _since(self, start: int) -> str:
        return self._text[start : self._token.place].strip()


def _alike(parts: Sequence[_Part]) -> list[_Part]:
    """Convert integers in the text to floating-point numbers if one of the parts is such a number."""
    if all(part.kind is not Kind.REAL for part in parts):
        return [*parts]
    return [
        replace(part, value=real(float(part.value.value)), kind=Kind.REAL)
        if part.kind is Kind.WHOLE
        and isinstance(part.value, Literal)
        and isinstance(part.value.value, int)
        else part
        for part in parts
    ]
