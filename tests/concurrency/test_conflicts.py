"""A verb decides anew only after a real conflict when a commit lands in the middle of its MERGE on Spark.

The statement reads its snapshot, then its source waits at a gate in a Python function; the winner
commits; the gate opens. Delta then says whether the two can both stand (its conflict matrix in terms
of our verbs), and the commit loop does what it must. Local files prove it for one JVM only.
"""

from __future__ import annotations

import os
import re
import select
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors.exceptions import captured
from pyspark.sql.types import IntegerType

from tests.concurrency.support import (
    FOR_EVER,
    TTR,
    WAIT,
    Tapped,
    World,
    end_heartbeat,
    ids_of,
    names,
    on_another_host,
    stored,
)
from tests.thorough import thorough
from tubeq_spark import PutItem, Queue, QueueConfig, TubeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark.testing import ManualClock

    Act = Callable[[World, Any], Any]


class Gate(Tapped):
    """A Spark session whose next MERGE into a table waits, after it has begun, to be let go."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        super().__init__(spark)
        self._directory = directory
        self._table: str | None = None
        self._gate: Callable[[int], int] = int
        self._number = 0
        self.reached, self.open = -1, -1

    def run(self, session: SparkSession, text: str, sql: Callable[[str], DataFrame]) -> DataFrame:
        """Run a statement, through the gate if it is the one."""
        if self._table is None or not text.startswith(f"MERGE INTO {self._table} "):
            return sql(text)
        self._table = None
        source = re.compile(r" USING (.+?) s ON ", re.DOTALL)
        gated = rf" USING (SELECT * FROM \1 WHERE tubeq_gate_{self._number}(1) = 1) s ON "
        text, found = source.subn(gated, text, count=1)
        assert found
        session.udf.register(f"tubeq_gate_{self._number}", self._gate, IntegerType())
        return sql(text)

    def arm(self, table: str) -> None:
        """Let the next MERGE into this table wait."""
        self._number += 1
        reached, go = (self._directory / f"{name}{self._number}" for name in ("reached", "go"))
        for fifo in (reached, go):
            os.mkfifo(fifo)
        # Open for both: neither side then waits for the other to open.
        self.reached, self.open = os.open(reached, os.O_RDWR), os.open(go, os.O_RDWR)
        passed = str(self._directory / f"passed{self._number}")

        def gate(one: int) -> int:
            import contextlib  # noqa: PLC0415  (it runs in a process of its own)
            import os  # noqa: PLC0415

            # A source may be read more than once, by several tasks at a time.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(passed, os.O_CREAT | os.O_EXCL))
                with reached.open("wb", buffering=0) as told:
                    told.write(b".")
                with go.open("rb", buffering=0) as awaited:
                    awaited.read(1)
            return one

        self._gate = gate
        self._table = table

    def wait(self) -> None:
        """Wait for the statement to reach the gate."""
        assert select.select([self.reached], [], [], WAIT)[0]

    def let_go(self) -> None:
        """Open the gate."""
        os.write(self.open, b".")


@pytest.fixture(scope="module")
def gate(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Gate:
    return Gate(spark, tmp_path_factory.mktemp("gates"))


@pytest.fixture(scope="module")
def gated(pair: World, gate: Gate) -> World:
    """The module's tube, as a queue with a gate and one on another host see it."""
    config = QueueConfig(
        attempts=6, backoff_first=0, backoff_most=0, vacuum_hours=0, fold_segments=1
    )
    pair.mine = Queue(gate, pair.place, clock=pair.clock, config=config)  # type: ignore[arg-type]
    pair.mine.cfg(ttr=FOR_EVER)
    end_heartbeat(pair.mine)
    pair.tube = pair.mine["shared"]
    pair.rivals = on_another_host(pair.open_queue())
    pair.rival = pair.rivals["shared"]
    return pair


@pytest.fixture
def overlap(gated: World, gate: Gate) -> Iterator[World]:
    yield gated
    gated.rival.truncate()


def taken(world: World, letters: str, count: int, *, by_rival: bool = False) -> list[int]:
    world.put(letters)
    return ids_of((world.rival if by_rival else world.tube).take_many(count))


def delayed(world: World, letters: str) -> None:
    world.rival.put_many([PutItem(letter, delay=TTR) for letter in letters])
    world.clock.advance(TTR)


#: The statement that waits and the verb that commits meanwhile: what is there before both, the first verb and the second
#: one, how often the first must decide anew, the tube after both, and what the first returns.
MEETINGS: dict[str, tuple[Callable[[World], Any], Act, Act, tuple[int, str, object]]] = {
    "take, put": (
        lambda w: w.put("ab"),
        lambda w, _: names(w.tube.take_many(1)),
        lambda w, _: w.rival.put("c"),
        (0, "at br cr", "a"),
    ),
    "take, take": (
        lambda w: w.put("ab"),
        lambda w, _: names(w.tube.take_many(1)),
        lambda w, _: w.rival.take_many(1),
        (1, "at bt", "b"),
    ),
    "take, ack of another lease segment": (
        lambda w: taken(w, "ab", 1, by_rival=True),
        lambda w, _: names(w.tube.take_many(1)),
        lambda w, ids: w.rival.ack_many(ids),
        (0, "bt", "b"),
    ),
    "ack of a part, take of others": (
        lambda w: taken(w, "abc", 2),
        lambda w, ids: names(w.tube.ack_many(ids[:1])),
        lambda w, _: w.rival.take_many(1),
        (0, "bt ct", "a"),
    ),
    "ack of a part, bury in the same lease segment": (
        lambda w: taken(w, "abc", 3),
        lambda w, ids: names(w.tube.ack_many(ids[:1])),
        lambda w, ids: w.rival.bury(ids[1]),
        (1, "b! ct", "a"),
    ),
    "put, take": (
        lambda w: w.put("a"),
        lambda w, _: names(w.tube.put_many(["b"])),
        lambda w, _: w.rival.take_many(1),
        (0, "at br", "b"),
    ),
    "sweep of what is due, take of some of it": (
        lambda w: delayed(w, "ab"),
        lambda w, _: w.mine.sweep().tubes["shared"].readied,
        lambda w, _: w.rival.take_many(1),
        (1, "at br", 1),
    ),
    "compaction, take of its tasks": (
        lambda w: w.put_each("abcdefg"),
        lambda w, _: w.mine.sweep().tubes["shared"].folded,
        lambda w, _: w.rival.take_many(7),
        (1, "at bt ct dt et ft gt", 0),
    ),
}


def overlapped(
    gate: Gate, table: str, loser: Callable[[], object], winner: Callable[[], object]
) -> Any:
    """Run one verb while the first MERGE of another is held in the middle; the latter's result."""
    gate.arm(table)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(loser)
        try:
            gate.wait()
            winner()
        finally:
            gate.let_go()
        return future.result(WAIT)


@pytest.mark.parametrize(
    "meeting",
    # In `make test` one stands for those that begin anew, and one for those that stand both.
    ["take, take", "put, take", *thorough(*sorted({*MEETINGS} - {"take, take", "put, take"}))],
)
def test_verb_when_another_commits_in_the_middle_of_its_statement(
    overlap: World, gate: Gate, meeting: str
) -> None:
    world = overlap
    setup, loser, winner, (conflicts, after, result) = MEETINGS[meeting]
    given = setup(world)
    before, first = world.conflicts(), world.version()
    table = f"delta.`{world.place}/shared`"

    found = overlapped(gate, table, lambda: loser(world, given), lambda: winner(world, given))

    assert found == result
    assert world.conflicts() - before == conflicts
    assert sorted(world.stored().split()) == sorted(after.split())
    if not conflicts:
        # Both stand, although the one had not seen the other.
        last = world.spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]
        assert (last["version"], last["readVersion"]) == (first + 2, first)


@pytest.mark.thorough
def test_take_when_its_conflict_comes_without_a_class_of_its_own_begins_anew(
    overlap: World, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with delta-spark before 4.4, which has such classes, but PySpark does not know of them.
    monkeypatch.setattr(captured, "convert_exception", captured._convert_exception)
    overlap.put("ab")
    before = overlap.conflicts()

    got = overlapped(
        gate,
        f"delta.`{overlap.place}/shared`",
        lambda: names(overlap.tube.take_many(1)),
        lambda: overlap.rival.take_many(1),
    )

    assert got == "b"
    assert overlap.conflicts() - before == 1


@pytest.mark.thorough
def test_put_when_the_tube_is_dropped_in_the_middle_of_its_statement_is_refused(
    gated: World, gate: Gate
) -> None:
    name = "dropped_in_the_middle"
    mine = gated.mine.create_tube(name)
    rival = gated.rivals[name]

    with pytest.raises(TubeNotFoundError):
        overlapped(gate, f"delta.`{gated.place}/{name}`", lambda: mine.put("a"), rival.drop)

    assert stored(gated.rivals.create_tube(name)) == ""


@pytest.mark.thorough
def test_lease_of_a_slot_when_a_rival_leases_one_in_the_middle_of_it_gives_no_number_twice(
    spark: SparkSession,
    gate: Gate,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tubeq_spark.model.ids.SLOTS", 1)
    place = str(tmp_path / "queue")
    config = QueueConfig(number_horizon=1.0, vacuum_hours=0)
    former = Queue(spark, place, clock=clock, config=config)
    tube = former.create_tube("numbered")
    ids = ids_of(tube.put_many([1]))
    clock.advance(2)
    # The one slot there is counts as free, and both want it.
    mine = Queue(gate, place, clock=clock, config=config)  # type: ignore[arg-type]
    rivals = on_another_host(Queue(spark, place, clock=clock, config=config))
    mine_tube, rival_tube = mine["numbered"], rivals["numbered"]

    ids += overlapped(
        gate,
        f"delta.`{place}/_tubeq_sessions`",
        lambda: ids_of(mine_tube.put_many([2, 3])),
        lambda: ids.extend(ids_of(rival_tube.put_many([4, 5]))),
    )

    assert len(set(ids)) == 5
    assert mine._context.loop.conflicts() == 1
    for queue in (former, mine, rivals):
        end_heartbeat(queue)
