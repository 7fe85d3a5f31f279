"""Each verb refuses a bad value of each of its arguments before it writes anything.

The bad value is one that only the check that the argument must have refuses; what else that check refuses is in `tests/unit`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.acceptance.support import take
from tests.thorough import thorough
from tubeq_spark import InvalidOptionError, Queue, TubeqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.acceptance.support import Versions
    from tubeq_spark import Tube

VERBS_ON_SEVERAL = ("ack_many", "release_many", "bury_many", "delete_many")


class Tubes(NamedTuple):
    """A queue and two of its tubes, each with a ready task and with one that is held."""

    queue: Queue
    fifo: Tube
    fifottl: Tube
    held: int
    held_timed: int


@pytest.fixture(scope="module")
def tubes(queue: Queue) -> Tubes:
    """The tubes that all cases share."""
    fifo = queue.create_tube("fifo", "fifo")
    fifottl = queue.create_tube("fifottl", "fifottl")
    for tube in (fifo, fifottl):
        tube.put_many(["held", "ready"])
    return Tubes(queue, fifo, fifottl, take(fifo).task_id, take(fifottl).task_id)


#: Where a verb is, the verb, its arguments, and its options; the last of these is what is refused.
#: `HELD` stands for the id of a task that is held.
HELD = "the task that is held"
BAD_PUT: dict[str, Any] = {"pri": 2**31, "ttl": -0.001, "ttr": 0, "delay": -0.001}
REFUSED: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    *(("queue", "create_tube", (), {"name": name}) for name in ("_x", None)),
    *(("queue", "create_tube", ("x",), {"type": name}) for name in ("FIFO", None)),
    *(
        ("queue", "create_tube", ("x", "fifottl"), option)
        for option in (
            *({name: value} for name, value in (BAD_PUT | {"capacity": 1}).items()),
            *(
                {"schema": schema}
                for schema in ("not a ddl ((", "", " ", "a NOSUCHTYPE", "a INT, A INT")
            ),
            *({name: 1} for name in ("change_feed", "temporary", "if_not_exists")),
            *({"max_attempts": 0}, {"storage_mode": "foo"}, {"on_task_change": "print"}),
        )
    ),
    *(
        ("queue", "create_tube", ("x", "fifo"), {option: value})
        for option, value in {"pri": 0, "capacity": 1, "storage_mode": "ready_buffer"}.items()
    ),
    ("queue", "create_tube", ("fifottl", "fifottl"), {"if_not_exists": True, "ttl": -1}),
    ("queue", "create_tube", ("fifottl", "fifottl"), {"if_not_exists": True, "capacity": 1}),
    *(
        ("fifottl", verb, data, {option: value})
        for verb, data in (("put", ("x",)), ("put_many", (["x"],)))
        for option, value in (BAD_PUT | {"utube": "a", "timeout": 1}).items()
    ),
    ("fifottl", "put", ("x",), {"timeout": -0.001}),
    *(("fifo", "put", ("x",), {option: 0}) for option in ("pri", "utube")),
    ("fifo", "put", ("x",), {"timeout": 1}),
    *(("fifo", "put", (), {"data": data}) for data in ({1: "a"}, {"a": [math.nan]}, b"x")),
    ("fifo", "put_df", (), {"df": None}),
    ("fifo", "put_df", (), {"df": [1]}),
    ("fifo", "take", (), {"timeout": -0.001}),
    *(
        ("fifottl", verb, (), {"n": 1, option: value})
        for verb in ("take_many", "take_df", "take_arrow")
        for option, value in (("n", -1), ("n", None), ("timeout", -0.001), ("per_utube", 2))
    ),
    *(
        ("fifo", "exchange", (), {"ack": [], "take": 1, option: value})
        for option, value in (("take", -1), ("take", None), ("timeout", -0.001), ("per_utube", 2))
    ),
    *(
        ("fifo", verb, (), {"task_id": 1.0})
        for verb in ("ack", "release", "bury", "delete", "peek", "why")
    ),
    ("fifottl", "touch", (), {"increment": 1, "task_id": 1.0}),
    ("fifottl", "touch", (HELD,), {"increment": -0.001}),
    ("fifo", "touch", (HELD,), {"increment": -0.001}),
    *(
        ("fifo", verb, (), {"task_ids": task_ids})
        for verb in VERBS_ON_SEVERAL
        for task_ids in ([HELD, HELD], 1, None, "1")
    ),
    ("fifottl", "release", (HELD,), {"delay": -0.001}),
    ("fifottl", "release_many", ([HELD],), {"delay": -0.001}),
    ("fifo", "release", (HELD,), {"delay": 1}),
    ("fifo", "kick", (), {"count": -1}),
    ("fifo", "on_task_change", (), {"callback": "print"}),
]


@pytest.mark.parametrize(
    ("place", "verb", "arguments", "options"),
    REFUSED,
    ids=lambda value: f"{value!r:.40}" if isinstance(value, dict) else None,
)
def test_verb_with_a_bad_argument_is_refused_by_its_name(
    tubes: Tubes,
    versions: Versions,
    place: str,
    verb: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    before, settings = versions(), tubes.queue.cfg()
    held = tubes.held if place == "fifo" else tubes.held_timed

    def real(value: Any) -> Any:
        if isinstance(value, list):
            return [real(each) for each in value]
        return held if value is HELD else value

    with pytest.raises(InvalidOptionError, match=list(options)[-1]):
        getattr(getattr(tubes, place), verb)(
            *map(real, arguments), **{name: real(value) for name, value in options.items()}
        )

    assert (versions(), tubes.queue.cfg()) == (before, settings)


def test_verb_with_what_has_another_error_is_refused_before_anything_is_written(
    tubes: Tubes, versions: Versions
) -> None:
    before = versions()

    for verb, given in (
        (tubes.queue.create_tube, {"name": "x", "if_not_exist": True}),
        (tubes.fifottl.put_many, {"items": ["x"], "priority": 1}),
    ):
        with pytest.raises(TypeError, match=list(given)[-1]):
            verb(**given)  # type: ignore[operator]
    for bad in (1, None, "1", ["1"], [1, 1]):
        with pytest.raises((InvalidOptionError, TypeError)):
            tubes.fifo.exchange(ack=bad, take=1)  # type: ignore[arg-type]
    for items in (None, "text", {"a": 1}):
        with pytest.raises((InvalidOptionError, TypeError)):
            tubes.fifo.put_many(items)  # type: ignore[arg-type]
    for verb in VERBS_ON_SEVERAL:
        with pytest.raises(InvalidOptionError, match="task_id"):
            getattr(tubes.fifo, verb)([tubes.held, 1.0])
    with pytest.raises(InvalidOptionError, match="state"):
        list(tubes.fifo.tasks_by_state(None))  # type: ignore[arg-type]

    assert versions() == before


@pytest.mark.on_spark
def test_take_of_none_takes_nothing_without_a_commit(tubes: Tubes, versions: Versions) -> None:
    before = versions()

    assert tubes.fifo.take_many(0) == []
    assert tubes.fifo.exchange(ack=[], take=0) == []
    assert tubes.fifo.kick(0) == 0
    assert tubes.fifo.put_many([]) == []
    for verb in VERBS_ON_SEVERAL:
        assert getattr(tubes.fifo, verb)([]) == []
    assert versions() == before


# -- on Spark --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_name", "row", "said"),
    [
        ("fifottl", "'1' AS data, 1 AS priority", "priority"),
        ("fifo", "1 AS pri", "data"),
        (
            "fifottl",
            "'1' AS data, pri FROM VALUES (1), (-7), (2) AS given(pri)",
            "^df column pri='1 bad rows': must be a whole number .*; one of them is '-7'$",
        ),
        (
            "fifo",
            "data FROM VALUES ('{'), ('1], [2'), (' '), ('1, 2'), ('1') AS given(data)",
            "^df column data='4 bad rows': must be JSON text .*; one of them is '",
        ),
        *thorough(
            ("fifottl", "'1' AS data, 2147483648L AS pri", "pri"),
            ("fifottl", "'1' AS data, -1.0D AS ttl", "ttl"),
            ("fifottl", "'1' AS data, 0.0D AS ttr", "ttr"),
            ("fifottl", "'1' AS data, double('NaN') AS delay", "delay"),
            ("fifottl", "'1' AS data, double('Infinity') AS ttl", "ttl"),
            ("fifottl", "'1' AS data, 'a' AS utube", "utube"),
            ("fifo", "'1' AS data, 1 AS pri", "pri"),
        ),
    ],
)
def test_put_df_with_bad_values_or_columns_is_refused(
    spark: SparkSession, tubes: Tubes, versions: Versions, type_name: str, row: str, said: str
) -> None:
    rows, before = spark.sql(f"SELECT {row}"), versions()

    with pytest.raises(InvalidOptionError, match=said):
        getattr(tubes, type_name).put_df(rows)

    assert versions() == before


@pytest.mark.parametrize("location", ["", None, "spark_catalog.no_such", "a`b.c", "a.b.c.d"])
def test_queue_at_what_is_no_location_is_refused(spark: SparkSession, location: Any) -> None:
    with pytest.raises(TubeqError, match="location"):
        Queue(spark, location)
