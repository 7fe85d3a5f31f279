"""Each node of an expression has the right value beside NULLs, and skips no file that it needs."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tubeq_spark.storage import expression as nodes
from tubeq_spark.storage.arrow.by_row import FewRows, NotByRowError, value_of
from tubeq_spark.storage.arrow.columns import nested
from tubeq_spark.storage.arrow.evaluate import NotByArrowError, column, evaluate, holds, of_table
from tubeq_spark.storage.expression import (
    FAIL,
    FALSE,
    TRUE,
    Expression,
    Type,
    all_of,
    any_of,
    at,
    case,
    integer,
    literal,
    null,
    real,
    row,
)
from tubeq_spark.storage.log import data_files
from tubeq_spark.storage.log.actions import DataFile, as_json
from tubeq_spark.storage.native.file_statistics import files_of
from tubeq_spark.storage.query import Among, Struct, count, named

if TYPE_CHECKING:
    from collections.abc import Sequence

R, T, S = row(), row("t"), row("s")
YES, NO = True, False
LEAST, LAST = -(2**63), 2**63 - 1
SCHEMA = pa.schema(
    {
        "p": pa.bool_(),
        "q": pa.bool_(),
        "n": pa.int64(),
        "m": pa.int64(),
        "i": pa.int32(),
        "text": pa.string(),
        "other": pa.string(),
        "place": pa.string(),
        "at": pa.timestamp("us", "UTC"),
    }
)
#: All pairs of truth values; numbers, texts and moments, of which some are NULL or the last of their kind.
VALUES: dict[str, list[Any]] = {
    "p": [YES, YES, YES, NO, NO, NO, None, None, None],
    "q": [YES, NO, None, YES, NO, None, YES, NO, None],
    "n": [1, 1, None, None, -7, 7, 0, LAST, LEAST],
    "m": [1, 2, 3, None, 2, 2, 0, LAST, 0],
    "place": ["", "/", None, "a", "a/b/c", "/a", "漢/字\n", "a\nb/c\nd", "{%}/"],
    "i": [1, 2, None, 2**31 - 1, -(2**31), 0, 3, None, 4],
    "text": ["Ab", "ab", None, None, "", "O'Neil", "a\\b", "{%}", "zażółć 漢字"],
    "other": ["ab", "ab", "x", None, "", "o'neil", "A", "%", None],
    "at": [0, -1, None, 1, 253_402_300_799_999_999, -62_135_596_800_000_000, LAST, LEAST, 7],
}
ROWS = pa.Table.from_arrays(
    [nested(VALUES[field.name], field.type) for field in SCHEMA], schema=SCHEMA
)
COUNT = ROWS.num_rows


def values_of(expression: Expression) -> list[Any]:
    """What an expression is in each row; moments as microseconds."""
    found = column(expression, of_table(ROWS), None, COUNT)
    if pa.types.is_timestamp(found.type):
        found = found.cast(pa.int64())
    values: list[Any] = found.to_pylist()
    return values


TRUTHS: dict[str, tuple[Expression, list[bool | None]]] = {
    "and": (R.p & R.q, [YES, NO, None, NO, NO, NO, None, NO, None]),
    "or": (R.p | R.q, [YES, YES, YES, YES, NO, None, YES, None, None]),
    "not": (~R.p, [NO, NO, NO, YES, YES, YES, None, None, None]),
    "and of three": (all_of(R.p, R.q, null(Type.BOOLEAN)), [None, NO, None, NO, NO, NO, None, NO, None]),
    "or of three": (any_of(R.p, R.q, FALSE), [YES, YES, YES, YES, NO, None, YES, None, None]),
    "=": (R.n == R.m, [YES, NO, None, None, NO, NO, YES, YES, NO]),
    "<>": (R.n != R.m, [NO, YES, None, None, YES, YES, NO, NO, YES]),
    "<": (R.n < R.m, [NO, YES, None, None, YES, NO, NO, NO, YES]),
    "<=": (R.n <= R.m, [YES, YES, None, None, YES, NO, YES, YES, YES]),
    ">": (R.n > R.m, [NO, NO, None, None, NO, YES, NO, NO, NO]),
    ">=": (R.n >= R.m, [YES, NO, None, None, NO, YES, YES, YES, NO]),
    "<=>": (R.n.same_as(R.m), [YES, NO, NO, YES, NO, NO, YES, YES, NO]),
    "<=> NULL": (R.n.same_as(null(Type.BIGINT)), [NO, NO, YES, YES, NO, NO, NO, NO, NO]),
    "texts": (R.text == R.other, [NO, YES, None, None, YES, NO, NO, NO, None]),
    "moments": (R.at <= at(0), [YES, YES, None, NO, NO, YES, NO, YES, NO]),
    "an INT and a BIGINT": (R.i < 3, [YES, YES, None, NO, YES, YES, NO, None, NO]),
    "is null": (R.n.is_null(), [NO, NO, YES, YES, NO, NO, NO, NO, NO]),
    "is not null": (R.n.is_not_null(), [YES, YES, NO, NO, YES, YES, YES, YES, YES]),
    "a condition is null": ((R.p & R.q).is_null(), [NO, NO, YES, NO, NO, NO, YES, NO, YES]),
    "in one": (R.n.is_in([1]), [YES, YES, None, None, NO, NO, NO, NO, NO]),
    "in some": (R.n.is_in([1, LEAST]), [YES, YES, None, None, NO, NO, NO, NO, YES]),
    "not in one": (~R.n.is_in([1]), [NO, NO, None, None, YES, YES, YES, YES, YES]),
    "not in some": (~R.n.is_in([1, 7]), [NO, NO, None, None, YES, NO, YES, YES, YES]),
    "in some or NULL": (
        R.n.is_in([1, null(Type.BIGINT)]), [YES, YES, None, None, None, None, None, None, None],
    ),
    "not in some or NULL": (
        ~R.n.is_in([1, null(Type.BIGINT)]), [NO, NO, None, None, None, None, None, None, None],
    ),
    "INTs in BIGINTs": (R.i.is_in([1, 2]), [YES, YES, None, NO, NO, NO, NO, None, NO]),
    "texts in some": (R.text.is_in(["ab", "O'Neil"]), [NO, YES, None, None, NO, YES, NO, NO, NO]),
    "among": (Among(R.text, ["ab", ""], Type.STRING), [NO, YES, NO, NO, YES, NO, NO, NO, NO]),
    "among NULL": (
        Among(R.text, ["ab", None], Type.STRING), [NO, YES, YES, YES, NO, NO, NO, NO, NO],
    ),
    "not among NULL": (
        ~Among(R.text, ["ab", None], Type.STRING), [YES, NO, NO, NO, YES, YES, YES, YES, YES],
    ),
    "among numbers": (
        Among(R.n, [1, LAST], Type.BIGINT), [YES, YES, NO, NO, NO, NO, NO, YES, NO],
    ),
    "like": (nodes.like(R.text, "_b"), [YES, YES, None, None, NO, NO, NO, NO, NO]),
    "like a part": (nodes.like(R.text, "%'N%"), [NO, NO, None, None, NO, YES, NO, NO, NO]),
    "like an escaped sign": (nodes.like(R.text, "_\\%_"), [NO, NO, None, None, NO, NO, NO, YES, NO]),
    "like a rare character": (nodes.like(R.text, "%_字"), [NO, NO, None, None, NO, NO, NO, NO, YES]),
    "seconds": (nodes.seconds(R.m) > real(0.0000015), [NO, YES, YES, None, YES, YES, NO, YES, NO]),
}  # fmt: skip


OTHERS: dict[str, tuple[Expression, list[Any]]] = {
    "a literal": (literal(5), [5] * 9),
    "NULL": (null(Type.STRING), [None] * 9),
    "counts": (nodes.Literal({"a": 1}, Type.COUNTS), [[("a", 1)]] * 9),
    "case without else": (
        case((R.p, "yes"), (R.q, "q")), ["yes", "yes", "yes", "q", None, None, "q", None, None],
    ),
    "case with else": (
        case((R.p, 1), (R.q, 2), other=3), [1, 1, 1, 2, 3, 3, 2, 3, 3],
    ),
    "case of NULL": (
        case((R.p, null(Type.BIGINT)), other=R.m), [None, None, None, None, 2, 2, 0, LAST, 0],
    ),
    "case of the first alone": (case((R.p, 1), (TRUE, 2)), [1, 1, 1, 2, 2, 2, 2, 2, 2]),
    "sum": (
        R.i + 1, [2, 3, None, 2**31, 1 - 2**31, 1, 4, None, 5],
    ),
    "difference": (R.m - 2 - 1, [-2, -1, 0, None, -1, -1, -3, LAST - 3, -3]),
    "product": (R.i * 2 + 1, [3, 5, None, 2**32 - 1, 1 - 2**32, 1, 7, None, 9]),
    "quotient": (nodes.quotient(R.n, 2), [0, 0, None, None, -3, 3, 0, LAST // 2, LEAST // 2]),
    "quotient by less than 0": (
        nodes.quotient(R.m, -2), [0, -1, -1, None, -1, -1, 0, -(LAST // 2), 0],
    ),
    "greatest": (nodes.greatest_of(R.n, R.m), [1, 2, 3, None, 2, 7, 0, LAST, 0]),
    "greatest of three": (
        nodes.greatest_of(R.n, R.m, literal(2)), [2, 2, 3, 2, 2, 7, 2, LAST, 2],
    ),
    "lower": (
        nodes.lower(R.text), ["ab", "ab", None, None, "", "o'neil", "a\\b", "{%}", "zażółć 漢字"],
    ),
    "length": (nodes.length(R.text), [2, 2, None, None, 0, 6, 3, 3, 9]),
    "before": (nodes.before(R.place), ["", "", None, "a", "a", "", "漢", "a\nb", "{%}"]),
    "seconds": (nodes.seconds(R.i), [1e-6, 2e-6, None, 2147.483647, -2147.483648, 0, 3e-6, None, 4e-6]),
    "a number": (real(0.5), [0.5] * 9),
    "no number": (null(Type.DOUBLE), [None] * 9),
    "moment as a number": (nodes.micros(R.at), VALUES["at"]),
    "number as a moment": (nodes.moment(R.n), VALUES["n"]),
    "a moment": (at(LEAST), [LEAST] * 9),
    "no moment": (at(None), [None] * 9),
}  # fmt: skip


@pytest.mark.parametrize("said", [*TRUTHS, *OTHERS])
def test_value_when_parts_are_null_or_the_last_of_their_kind_is_as_in_sql(said: str) -> None:
    expression, expected = (TRUTHS | OTHERS)[said]
    assert values_of(expression) == expected
    if said in TRUTHS:
        held = holds(expression, of_table(ROWS), COUNT).to_pylist()
        assert held == [bool(each) for each in expected]


#: What only Arrow computes.
BY_ARROW = {
    *("lower", "length", "before", "seconds", "a number", "no number"),
    *("like", "like a part", "like an escaped sign", "like a rare character"),
    *("among", "among NULL", "not among NULL", "among numbers", "mapped"),
}


@pytest.mark.parametrize("said", sorted({*TRUTHS, *OTHERS} - {"counts"}))
def test_value_when_it_is_computed_row_by_row_is_the_same(said: str) -> None:
    expression, expected = (TRUTHS | OTHERS)[said]
    rows = FewRows(ROWS)

    try:
        found = [value_of(expression, rows.row(place)) for place in range(COUNT)]
    except NotByRowError:
        assert said in BY_ARROW
    else:
        assert found == expected


@pytest.mark.parametrize(
    "expression",
    [R.n + 1, R.n - 1, R.i + integer(1), integer(-(2**31)) - integer(1), nodes.moment(R.n) == R.n],
)
def test_value_when_it_is_none_of_its_type_is_refused(expression: Expression) -> None:
    with pytest.raises(pa.ArrowException):
        evaluate(expression, of_table(ROWS))


@pytest.mark.parametrize(
    "expression",
    [
        FAIL,
        Struct(named("n")),
        count(),
        R.unknown,
        integer(2**31),
        integer(-(2**31) - 1),
        literal(2**63),
        at(2**63),
    ],
)
def test_value_when_arrow_has_none_is_left_to_others(expression: Expression) -> None:
    with pytest.raises(NotByArrowError):
        evaluate(expression, of_table(ROWS))


# -- what an expression is -------------------------------------------------------------------------------


def test_expression_when_asked_whether_it_is_true_refuses() -> None:
    condition = R.n == 1
    for asked in (
        lambda: bool(condition),
        lambda: condition and R.p,
        lambda: not condition,
        lambda: 1 if condition else 2,
        lambda: 0 < R.n < 2,
        lambda: [R.m].index(R.n),
    ):
        with pytest.raises(TypeError, match="neither true nor false"):
            asked()


def test_literal_when_it_is_of_another_type_is_refused() -> None:
    for value in (1.5, None, b"x", [1]):
        with pytest.raises(TypeError, match="is no literal"):
            literal(value)  # type: ignore[arg-type]


# -- files -----------------------------------------------------------------------------------------------

FILES = pa.schema(
    {
        "segment": pa.int64(),
        "id": pa.int64(),
        "pri": pa.int32(),
        "name": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "unmeasured": pa.int64(),
    }
)
_NAMES = (
    None,
    "",
    "a",
    "b",
    "O'Neil",
    "漢字",
    "x" * 63 + "z\U00020bb7",
    "y" * 63 + "\U0010ffff" * 3,
)
#: In microseconds: statistics know no more than milliseconds.
_MOMENTS = (None, 0, 999, 1_000, 1_001, -1, -62_135_596_800_000_000, LAST, LEAST)
#: Of each column what a row may have, and a condition may ask for.
CHOICES: dict[str, tuple[Sequence[Any], Type]] = {
    "segment": ((-5, 0, 7), Type.BIGINT),
    "id": ((None, LEAST, -1, 0, 1, 2, LAST), Type.BIGINT),
    "pri": ((None, -3, 0, 1, 2**31 - 1), Type.INT),
    "name": (_NAMES, Type.STRING),
    "at": (_MOMENTS, Type.TIMESTAMP),
    "unmeasured": ((None, 0, 1), Type.BIGINT),
}


def statistics(rows: pa.Table) -> str:
    """The statistics of a file of rows."""
    columns = data_files._of_rows(rows, FILES.names[1:-1])
    return as_json(data_files._statistics(rows.num_rows, columns))


def a_file(chance: random.Random) -> tuple[DataFile, pa.Table]:
    """A file of a few rows, most often with statistics."""
    segment = chance.choice((-5, 0, 7))
    count_of_rows = chance.randrange(1, 4)
    columns: list[list[Any]] = [[segment] * count_of_rows]
    for name in FILES.names[1:]:
        few = chance.choices(CHOICES[name][0], k=2)
        columns.append(chance.choices(few, k=count_of_rows))
    arrays = [nested(values, f.type) for values, f in zip(columns, FILES, strict=True)]
    rows = pa.Table.from_arrays(arrays, schema=FILES)
    stats = statistics(rows)
    told = stats if chance.random() < 0.9 else None
    return DataFile("x", 1, {"segment": segment}, told), rows


def a_condition(chance: random.Random, depth: int = 3) -> Expression:
    if depth and chance.random() < 0.6:
        parts = [a_condition(chance, depth - 1) for _ in range(chance.randrange(1, 4))]
        return chance.choice((all_of(*parts), any_of(*parts), ~parts[0]))
    name = chance.choice(FILES.names)
    choices, kind = CHOICES[name]
    found = nodes.Column(name, chance.choice(("", "t")))
    wanted = [nodes.Literal(chance.choice(choices), kind) for _ in range(chance.randrange(1, 4))]
    sign = chance.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
    return chance.choice(
        (
            nodes.Call(sign, found, wanted[0]),
            nodes.Call(sign, found, wanted[0]),
            nodes.Call(sign, wanted[0], found),
            found.is_in(wanted),
            ~found.is_in(wanted),
            found.is_null(),
            found.is_not_null(),
            null(Type.BOOLEAN),
        )
    )


@pytest.mark.parametrize("seed", range(8))
def test_file_when_it_has_a_row_of_a_condition_is_never_skipped(seed: int) -> None:
    chance = random.Random(seed)
    files = [a_file(chance) for _ in range(40)]
    seen: Counter[tuple[bool, bool]] = Counter()
    for _ in range(60):
        condition = a_condition(chance)
        may_hold = files_of(condition, FILES)
        for file, rows in files:
            has_one = any(holds(condition, of_table(rows), rows.num_rows).to_pylist())
            seen[has_one, may_hold(file)] += 1
            assert may_hold(file) or not has_one, condition
    assert min(seen[True, True], seen[False, False]) > 50


@pytest.mark.parametrize(
    ("condition", "is_read"),
    [
        (TRUE, True),
        (R.id == 1, True),
        (R.id == 4, False),
        (R.id < 1, False),
        (R.id > 3, False),
        (R.id.is_in([0, 4]), False),
        (R.id.is_in(["a", "b"]), True),
        (R.segment.is_in([4, 6]), False),
        (R.segment.is_in([6, 5]), True),
        (R.name == "a", False),
        (R.name.same_as("a"), True),
        ((R.id == 4) | (R.segment == 5), True),
        ((R.id == 1) & (R.segment == 6), False),
        (~(R.id == 4), True),
        (R.unknown == 9, True),
        (R.id == "a", True),
        # Bounds of moments know no more than milliseconds.
        (R.at <= at(1_999_999), False),
        (R.at <= at(2_000_000), True),
        (R.at >= at(4_000_000), True),
    ],
)
def test_file_when_its_statistics_exclude_a_condition_is_skipped(
    condition: Expression, is_read: bool
) -> None:
    columns = [[5, 5], [1, 3], [2, 2], [None, None], [2_000_001, 3_000_000], [0, 0]]
    arrays = [nested(values, f.type) for values, f in zip(columns, FILES, strict=True)]
    rows = pa.Table.from_arrays(arrays, schema=FILES)
    stats = statistics(rows)
    file = DataFile("x", 1, {"segment": 5}, stats)
    assert files_of(condition, FILES)(file) is is_read


class _Counting(dict[str, int | None]):
    """A partition that counts the looks at it."""

    looks = 0

    def __getitem__(self, name: str) -> int | None:
        self.looks += 1
        return super().__getitem__(name)


def test_file_when_a_condition_names_many_segments_is_not_compared_with_each() -> None:
    partition = _Counting(segment=5_001)
    assert not files_of(R.segment.is_in(range(0, 10_000, 2)), FILES)(DataFile("x", 1, partition))
    assert partition.looks < 5
