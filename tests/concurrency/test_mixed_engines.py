"""Spark and the native engine at one location: what the one commits is to the other as its own.

For a verb of one engine a rival's verb of the other comes in at each of its steps. Both are one process,
so they share the locks of local files; the last tests take these away.
"""

from __future__ import annotations

import itertools
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.concurrency.both_at_once import ENGINES, NAMES, native_side, opened, other
from tests.concurrency.meetings import (
    DROP,
    OF_SUBQUEUES,
    VERBS,
    Kind,
    Line,
    assert_serial,
    left,
    meet,
    outcome,
)
from tests.concurrency.support import (
    TTR,
    ids_of,
    names,
    on_another_host,
    rows_of,
    stored,
)
from tests.concurrency.test_conflicts import Gate, overlapped
from tests.thorough import one_in, thorough
from tubeq_spark import Queue, QueueConfig, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.concurrency.both_at_once import Both
    from tubeq_spark import Tube


#: Verbs that would change the same rows.
MEETINGS = {
    "put": "take",
    "take": "take",
    "ack_lease_segment": "bury_held_by_other",
    "release_some": "bury_held_by_other",
    "exchange": "take",
    "sweep": "take",
}


@pytest.mark.parametrize(
    ("engine_of_mine", "verb"),
    [
        ("spark", "take"),
        *thorough(("native", "put")),
        *one_in(3, product(ENGINES, [verb for verb in MEETINGS if verb not in ("put", "take")])),
    ],
)
def test_verb_when_a_rival_of_the_other_engine_commits_at_any_step_is_as_one_after_the_other(
    both: Both, engine_of_mine: str, verb: str
) -> None:
    table = both.table(engine_of_mine, Kind())
    rival = MEETINGS[verb]
    for point in range(3):
        table.lay(native_side(table))
        mine, theirs = (verb, VERBS[verb]), (rival, VERBS[rival])
        assert meet(table, both.probes[engine_of_mine], point, mine, theirs)


#: The same of sub-queues, which are locked by a commit of its own.
MEETINGS_OF_SUBQUEUES = {
    "take": "take_all",
    "take_all": "take",
    "exchange": "take",
    "ack": "bury_held_by_other",
}


@pytest.mark.parametrize(
    ("engine_of_mine", "verb"), one_in(3, product(ENGINES, MEETINGS_OF_SUBQUEUES))
)
def test_verb_of_subqueues_when_a_rival_of_the_other_engine_commits_at_any_step_is_as_one_after_the_other(
    both: Both, engine_of_mine: str, verb: str
) -> None:
    rival = MEETINGS_OF_SUBQUEUES[verb]
    mine, theirs = (verb, OF_SUBQUEUES[verb]), (rival, OF_SUBQUEUES[rival])
    for point in itertools.count():
        table = both.table(engine_of_mine, Kind("utube", ("ab", "cd")))
        table.lay_subqueues(native_side(table))
        if not meet(table, both.probes[engine_of_mine], point, mine, theirs):
            break

    assert point >= 3


@pytest.mark.parametrize(
    ("engine_of_mine", "verbs"),
    one_in(
        3, product(ENGINES, [("drop", "put"), ("put", "drop"), ("take", "drop"), ("drop", "drop")])
    ),
)
def test_drop_when_a_rival_of_the_other_engine_commits_at_any_step_is_as_one_after_the_other(
    both: Both, engine_of_mine: str, verbs: tuple[str, str]
) -> None:
    mine, theirs = ((verb, DROP[verb]) for verb in verbs)
    for point in itertools.count():
        table = both.table(engine_of_mine, Kind(held=("", "")))
        table.lay(native_side(table))
        if not meet(table, both.probes[engine_of_mine], point, mine, theirs):
            break

    assert point >= 2


@pytest.mark.parametrize("verb", ["take", "exchange", *thorough("release_some", "sweep")])
def test_native_verb_when_spark_commits_between_its_decision_and_its_commit_is_as_one_after_the_other(
    both: Both, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    table, line = both.table("native", Kind()), Line(monkeypatch)
    rival, results = VERBS[MEETINGS[verb]], list[object]()
    table.lay(table.mine)

    with line.before_next(lambda: results.append(outcome(rival, table.rival))):
        result = outcome(VERBS[verb], table.mine)

    found = (result, *results, left(table.rival, table.mine))
    assert_serial(found, (verb,), (VERBS[verb], rival), lambda t: t.lay(t.mine))


@pytest.mark.thorough
@pytest.mark.parametrize("engine_of_late", ENGINES)
def test_take_when_the_other_engine_took_from_its_subqueue_first_takes_nothing(
    both: Both, spark: SparkSession, engine_of_late: str
) -> None:
    hasty = opened(spark, both.place, both.clock, other(engine_of_late))
    tube = both.queues[engine_of_late].create_tube(next(NAMES), "utubettl")
    both.queues["native"][tube.name].put_many(list("ab"), utube="u")
    taken: list[str] = []

    def take_over() -> None:
        taken.append(names(hasty[tube.name].take_many(1)))

    with both.probes[engine_of_late].interrupted("decided", "take", take_over):
        assert tube.take(0) is None

    assert taken == ["a"]
    assert stored(both.queues["native"][tube.name]) == "at br"


# -- what is stored -------------------------------------------------------------------------------


def made(place: str, table: str) -> tuple[Any, ...]:
    """What a table was made as: columns, partitions, properties, protocol."""
    from deltalake import DeltaTable  # noqa: PLC0415  it is optional

    found = DeltaTable(f"{place}/{table}")
    protocol, metadata = found.protocol(), found.metadata()
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    return found.schema().to_json(), metadata.partition_columns, metadata.configuration, versions


def worked(tube: Tube) -> None:
    """Verbs that each write a note."""
    tube.put_many(list("abcd"))
    a, b, c = ids_of(tube.take_many(3, **({"per_utube": 3} if tube.type == "utubettl" else {})))
    tube.ack(a)
    tube.release(b)
    tube.bury(c)
    tube.kick(1)
    tube.truncate()


@pytest.mark.thorough
def test_tables_when_either_engine_makes_and_writes_them_are_the_same(both: Both) -> None:
    name = {engine: next(NAMES) for engine in ENGINES}
    for engine, queue in both.queues.items():
        queue.create_tube(name[engine], "utubettl")
    first = {engine: made(both.place, name[engine]) for engine in ENGINES}

    for engine in ENGINES:
        worked(both.queues[other(engine)][name[engine]])

    assert first["native"] == first["spark"]
    assert {engine: made(both.place, name[engine]) for engine in ENGINES} == first


@pytest.mark.thorough
def test_history_when_both_engines_have_committed_tells_both_alike(both: Both) -> None:
    tube = both.queues["spark"].create_tube(next(NAMES))
    told: dict[str, list[tuple[Any, ...]]] = {}
    for engine, queue in both.queues.items():
        since = tube.history(1).collect()[0]["version"]
        worked(queue[tube.name])
        rows = tube.history().where(f"version > {since}").collect()
        told[engine] = [(r["operation"], r["tasks"], r["conflicts"]) for r in reversed(rows)]
        assert {r["session"] for r in rows} == {str(queue.session_uuid)}

    assert told["native"] == told["spark"]
    assert [operation for operation, _, _ in told["native"]] == (
        ["put", "take", "ack", "release", "bury", "kick", "truncate"]
    )


@pytest.mark.thorough
def test_keyed_put_when_the_other_engine_has_done_it_puts_nothing(
    both: Both, spark: SparkSession
) -> None:
    tube = both.queues["spark"].create_tube(next(NAMES))
    native = both.queues["native"][tube.name]
    frame = spark.sql("SELECT '\"a\"' AS data")
    table = pa.table({"data": ['"a"']})

    assert tube.put_df(frame, key="first by spark").count == 1
    assert native.put_arrow(table, key="first by spark").count == 0
    assert native.put_arrow(table, key="first by native").count == 1
    assert tube.put_df(frame, key="first by native").count == 0
    assert stored(native) == "ar ar"


# -- changes --------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_changes_when_a_native_queue_has_a_session_are_those_that_spark_notes(
    both: Both, spark: SparkSession, tmp_path: Path
) -> None:
    config = QueueConfig(vacuum_hours=0)
    with Queue(spark, both.place, clock=both.clock, engine="native", config=config) as queue:
        tube = queue.create_tube(next(NAMES), change_feed=True)
        tube.put_many(list("ab"))
        a, b = ids_of(tube.take_many(2))
        tube.ack(a)
        tube.release(b)
        tube.delete(b)
        told = tube.changes(starting=0).writeStream.format("memory").queryName("told_by_both")
        told = told.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        told.start().awaitTermination()

    rows = spark.sql("SELECT task_id, change FROM told_by_both ORDER BY version, step").collect()
    assert [row["change"] for row in rows if row["task_id"] == a] == ["put", "take", "ack"]
    assert [row["change"] for row in rows if row["task_id"] == b] == [
        "put",
        "take",
        "release",
        "delete",
    ]


@pytest.mark.thorough
def test_row_verbs_of_a_tube_with_a_change_feed_when_there_is_no_session_are_refused(
    both: Both,
) -> None:
    native, name = both.queues["native"], next(NAMES)
    both.queues["spark"].create_tube(name, change_feed=True).put("a")
    tube = native[name]
    verbs = (
        lambda: tube.put("b"),
        lambda: tube.take(0),
        tube.truncate,
        tube.drop,
        lambda: native.create_tube(next(NAMES), change_feed=True),
    )

    for verb in verbs:
        with pytest.raises(StoreError, match="engine='spark'"):
            verb()

    assert native.statistics(name)["tasks"]["ready"] == 1
    assert names(tube.tasks_by_state("r")) == "a"
    assert native.sweep().tubes[name].error is None
    assert stored(both.queues["spark"][name]) == "ar"
    both.queues["spark"][name].drop()


# -- nothing keeps them apart but Delta -----------------------------------------------------------


@pytest.mark.parametrize(
    ("winner", "expected", "conflicts"), [*thorough(("put", "a", 0)), ("take", "b", 1)]
)
def test_spark_take_when_the_native_engine_commits_in_the_middle_of_its_merge(
    both: Both,
    spark: SparkSession,
    tmp_path: Path,
    winner: str,
    expected: str,
    conflicts: int,
) -> None:
    gate = Gate(spark, tmp_path)
    mine = on_another_host(opened(gate, both.place, both.clock, "spark"))
    rivals = on_another_host(opened(spark, both.place, both.clock, "native"))
    name = rivals.create_tube(next(NAMES), "fifottl", ttr=TTR).name
    rival = rivals[name]
    rival.put_many(list("ab"))
    acts = {"put": lambda: rival.put("c"), "take": lambda: rival.take_many(1)}
    # Its lease and its numbers are there.
    mine["first"].put_many([1])
    mine["first"].take(0)
    before = mine._context.loop.tally.total()

    got = overlapped(
        gate,
        f"delta.`{both.place}/{name}`",
        lambda: names(mine[name].take_many(1)),
        acts[winner],
    )

    assert got == expected
    assert mine._context.loop.tally.total() == before + conflicts
    states = {row["data"]: row["state"] for row in rows_of(rival, "data", "state")}
    assert states == (
        {'"a"': "t", '"b"': "r", '"c"': "r"} if winner == "put" else {'"a"': "t", '"b"': "t"}
    )
