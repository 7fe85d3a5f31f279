"""Each kind of native statement changes the right rows, and conflicts with the right commits of a rival.

The rival is another process with snapshots of its own, which commits between our decision and ours.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.native.support import NOW, Place, new_rows
from tubeq_spark.model.changes import Every, GiveBack
from tubeq_spark.storage.arrow.columns import table_of
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.outcome import EngineError, Outcome, outcome_of
from tubeq_spark.storage.rows import whole_segments
from tubeq_spark.storage.statement import (
    Affected,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READY, OTHER, HELD, KEPT, FRESH, NEXT = 5, 6, -50, -60, -70, -80


def rows_named(*rows: tuple[int, int]) -> pa.Table:
    """The rows of a settlement: segment and id of each."""
    return table_of(rows, {"segment": pa.int64(), "task_id": pa.int64()})


def stored(place: Place) -> None:
    """Two segments with ready tasks, two lease segments with two tasks each, and the gates."""
    place.put(READY, [50, 51], utube="a")
    place.put(OTHER, [60, 61], utube="b")
    for segment, ids in ((HELD, [70, 71]), (KEPT, [80, 81])):
        place.put(1_000 - segment, ids, utube="c")
        assert place.take({1_000 - segment: ids}, segment).updated == 2
    place.run(place.gates.begin(NOW, several=True))


def append(segment: int) -> Callable[[Place], object]:
    """A row of a segment that somebody adds by a plain append, as a writer of files may."""

    def run(place: Place) -> None:
        handle = DeltaTable(path_of(place.tube) or "")
        schema = pa.schema(handle.schema().to_arrow())
        rows = pa.Table.from_pylist([{"segment": segment, "tube": 1}], schema=schema)
        write_deltalake(handle, rows, mode="append")

    return run


PUT = lambda segment: lambda p: p.put(segment, [segment * 10])  # noqa: E731
IDS = {READY: [50, 51], OTHER: [60, 61]}
TAKE = lambda segment, to: lambda p: p.take({segment: IDS[segment]}, to)  # noqa: E731
ACK = lambda segment: lambda p: p.run(p.statements.delete_segments([segment]))  # noqa: E731
DRAIN = lambda p: p.run(p.statements.drain(NOW + 10**12, p.fresh()))  # noqa: E731


def capacity_put(segment: int) -> Callable[[Place], object]:
    def run(place: Place) -> object:
        room = place.put_gate.read(NOW, counts=True)
        rows = new_rows(segment, [segment * 10])
        return place.run(place.put_gate.put(rows, 1, [segment], room, now_us=NOW))

    return run


def settle(segment: int, task_id: int, dest: int) -> Callable[[Place], object]:
    """Give one task of a lease segment back; the rest stays."""

    def run(place: Place) -> object:
        rows = rows_named((segment, task_id))
        return place.run(place.statements.settle(rows, [(Every(), GiveBack(dest, now_us=0))]))

    return run


def whole(segment: int, dest: int) -> Callable[[Place], object]:
    changes = [(Every(), GiveBack(dest, now_us=0))]
    return lambda p: p.run(p.statements.settle(whole_segments([segment]), changes))


def exchange(segment: int, to: int) -> Callable[[Place], object]:
    """A take that also acks a task of a lease segment."""

    def run(place: Place) -> object:
        acked = [row for row in place.tasks.by_ids([70]) if row.segment == HELD]
        return place.run(place.taking({segment: IDS[segment]}, to, acked=acked))

    return run


def gated(utube: str, source: int, to: int) -> Callable[[Place], object]:
    """A take that raises the gate of its sub-queue, and writes its row."""

    def run(place: Place) -> object:
        seen = place.gates.read(with_rows=True)
        increments = seen.increments([utube], {utube: "1 5"}, all_takes=False)
        chosen = {source: IDS[source]}
        return place.run(place.taking(chosen, to, increments=increments, utube=utube))

    return run


def tidy(utube: str) -> Callable[[Place], object]:
    """A change of the row of a sub-queue, as by a sweep."""

    def run(place: Place) -> object:
        texts: dict[str | None, str | None] = {utube: "2 7"}
        change = place.gates.read(with_rows=True).increments(texts, texts, all_takes=False)
        return place.run(place.takes.tidy(change, NOW))

    return run


#: What we do, what a rival does meanwhile, and whether ours must fail for it.
CASES: dict[str, tuple[Any, Any, bool]] = {
    "put_put": (PUT(11), PUT(12), False),
    "put_take": (PUT(11), TAKE(READY, FRESH), False),
    "put_drain": (PUT(11), DRAIN, True),
    "capacity_put_capacity_put": (capacity_put(11), capacity_put(12), True),
    "capacity_put_drain": (capacity_put(11), DRAIN, True),
    "take_put": (TAKE(READY, FRESH), PUT(11), False),
    "take_take_same": (TAKE(READY, FRESH), TAKE(READY, NEXT), True),
    "take_take_other": (TAKE(READY, FRESH), TAKE(OTHER, NEXT), False),
    "take_ack": (TAKE(READY, FRESH), ACK(HELD), False),
    "take_drain": (TAKE(READY, FRESH), DRAIN, True),
    "take_append_there": (TAKE(READY, FRESH), append(READY), True),
    "take_append_to_its_segment": (TAKE(READY, FRESH), append(FRESH), True),
    "settle_settle_same": (settle(HELD, 70, FRESH), settle(HELD, 71, NEXT), True),
    "settle_settle_other": (settle(HELD, 70, FRESH), settle(KEPT, 80, NEXT), False),
    "settle_ack_same": (settle(HELD, 70, FRESH), ACK(HELD), True),
    "settle_segments_ack": (whole(HELD, FRESH), ACK(HELD), True),
    "ack_settle_same": (ACK(HELD), settle(HELD, 70, FRESH), True),
    "ack_ack_same": (ACK(HELD), ACK(HELD), True),
    # Each writes a new total of what has ended, computed again behind the other.
    "ack_ack_other": (ACK(HELD), ACK(KEPT), False),
    "ack_drain": (ACK(HELD), DRAIN, True),
    "ack_append_there": (ACK(HELD), append(HELD), True),
    "exchange_ack_same": (exchange(READY, FRESH), ACK(HELD), True),
    "exchange_take_same": (exchange(READY, FRESH), TAKE(READY, NEXT), True),
    "gated_gated_same": (gated("a", READY, FRESH), gated("a", READY, NEXT), True),
    # They are of two buckets.
    "gated_gated_other": (gated("a", READY, FRESH), gated("b", OTHER, NEXT), False),
    "gated_tidy_same": (gated("a", READY, FRESH), tidy("a"), True),
    "gated_tidy_other": (gated("a", READY, FRESH), tidy("b"), False),
    "gated_drain": (gated("a", READY, FRESH), DRAIN, True),
    "drain_take": (DRAIN, TAKE(READY, FRESH), True),
}


@pytest.mark.parametrize("name", CASES)
def test_statement_when_a_rival_commits_first_conflicts_or_not(
    place: Place, rival: Place, name: str, empty: Path, tmp_path: Path
) -> None:
    ours, theirs, conflicts = CASES[name]
    stored(place)
    ran: list[object] = []
    place.writer.goes_behind = True
    place.writer.rival = lambda: ran.append(theirs(rival))
    before = place.everything()
    if conflicts:
        with pytest.raises(EngineError) as failed:
            ours(place)
        assert outcome_of(failed.value) is Outcome.CONFLICT
    else:
        ours(place)
    assert ran
    # What is there now is as if they had come one after the other.
    shutil.copytree(empty, tmp_path / "alone")
    alone = Place(tmp_path / "alone", place.first)
    stored(alone)
    assert alone.everything() == before
    theirs(Place(tmp_path / "alone", rival.first))
    if not conflicts:
        ours(alone)
    assert place.everything() == alone.everything()


def test_put_when_the_tube_is_dropped_inserts_nothing_and_does_not_commit(place: Place) -> None:
    place.run(place.statements.drain(NOW, place.fresh()))
    before = place.version(place.tube)
    assert place.put(READY, [50, 51]) == Affected()
    assert place.version(place.tube) == before
