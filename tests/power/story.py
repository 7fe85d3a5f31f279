"""One process calls verbs on a queue; at each of its steps the power may be cut, and what is left is judged."""

from __future__ import annotations

import itertools
import random
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

from tests.power.crash_states import KINDS, Recorder, write
from tests.power.readers import disagreements
from tubeq_spark import Queue, QueueConfig, TaskState, TubeNotFoundError
from tubeq_spark.storage import disk
from tubeq_spark.storage.durability import background, shortening, sync_mark
from tubeq_spark.storage.native.delta_log import log_files
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.sql.quoting import path_table
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pytest

    from tests.power.crash_states import Files, Sync

__all__ = ["Point", "Story", "judged"]

#: The tubes, which have what options.
TUBES: dict[str, dict[str, Any]] = {
    "plain": {"type": "fifo"},
    "ttl": {"type": "fifottl"},
    "subs": {"type": "utubettl"},
    "full": {"type": "limfifottl", "capacity": 6},
    "gone": {"type": "fifo"},
}
_STATES = frozenset(str(state) for state in TaskState)
_ROW = ("task_id", "state", "attempts", "utube", "pri", "data")
_HOURS = 3 * 3600
#: A log that is shortened all the time: `EVERY` and `SECONDS` of `log_files`, `VERSIONS` of `shortening`.
_EVERY, _SECONDS, _VERSIONS = 4, 0.0, 4

#: What is in the tubes.
Rows = dict[str, frozenset[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Point:
    """A moment at which the power was cut.

    Attributes:
        step: Which verb had been called.
        done: How many had been acknowledged.
        floor: How many had been when all was last written to the disk.
        clock: When it was.
        kind: What of all that may be left this is.
        files: It.
    """

    step: str
    done: int
    floor: int
    clock: ManualClock
    kind: str | int
    files: Files

    def __str__(self) -> str:
        return f"power cut in {self.step!r}, {self.kind} left"


@dataclass(slots=True)
class Story:
    """What the process did.

    Attributes:
        durability: The queue's.
        rows: What was in the tubes before the first verb and after each.
        issued: The ids of all tasks that were put so far, after each.
        points: Moments of power cuts.
        syncs: What was synced, by kind.
    """

    durability: str
    rows: list[Rows] = field(default_factory=lambda: [{}])
    issued: list[set[int]] = field(default_factory=lambda: [set()])
    points: list[Point] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    _step: str = ""
    _floor: int = 0
    _seen: set[int] = field(default_factory=set)

    def tell(
        self,
        root: Path,
        patched: pytest.MonkeyPatch,
        *,
        seeds: Sequence[int] = (),
        leaves_out: Callable[[Sync], bool] = lambda _: False,
    ) -> Story:
        """Have the process do it.

        Args:
            root: A new directory.
            patched: Undone by the test.
            seeds: Of states at random.
            leaves_out: Syncs that are not made.
        """
        root.mkdir()
        recorder = Recorder(root, leaves_out)
        clock = ManualClock()
        kinds = (*KINDS, *seeds)
        recorder.at_event = lambda: self._cut(recorder, clock, kinds)
        recorder.at_sync = self._synced
        with busy_logs(patched), recorder.watching(patched):
            with opened(root, self.durability, clock) as queue:
                for self._step, verb in _verbs(queue, clock):
                    verb()
                    self._remember(rows_of(queue, root))
                    self._cut(recorder, clock, kinds)
        recorder.close()
        return self

    def _remember(self, rows: Rows) -> None:
        self.rows.append(rows)
        self.issued.append(self.issued[-1] | {row[0] for some in rows.values() for row in some})

    def _cut(self, recorder: Recorder, clock: ManualClock, kinds: Sequence[str | int]) -> None:
        done = len(self.rows) - 1
        for kind in kinds:
            files = recorder.state(kind)
            known = hash((done, frozenset(files.items())))
            if known not in self._seen:
                self._seen.add(known)
                at = ManualClock(clock.now())
                self.points.append(Point(self._step, done, self._floor, at, kind, files))

    def _synced(self, sync: Sync) -> None:
        self.syncs.append(sync)
        if sync.is_whole:
            self._floor = len(self.rows) - 1


@contextmanager
def busy_logs(patched: pytest.MonkeyPatch) -> Iterator[None]:
    """Shorten logs all the time, remove dead files at once, and flush when told to."""
    whole = DeltaTable.vacuum

    def vacuum(table: DeltaTable, **options: Any) -> list[str]:
        return whole(table, 0, enforce_retention_duration=False, **options)

    with patched.context() as patch:
        patch.setattr(log_files, "EVERY", _EVERY)
        patch.setattr(log_files, "SECONDS", _SECONDS)
        patch.setattr(shortening, "VERSIONS", _VERSIONS)
        patch.setattr(background, "INTERVAL", 3600.0)
        patch.setattr(DeltaTable, "vacuum", vacuum)
        yield


def opened(root: Path, durability: str, clock: ManualClock) -> Queue:
    """The queue below a directory."""
    config = QueueConfig(
        durability=durability, fold_segments=2, fold_heartbeats=2, vacuum_hours=1.0
    )
    return Queue(None, str(root / "queue"), config=config, clock=clock, engine="native")


def rows_of(queue: Queue, root: Path) -> Rows:
    """The tasks in the tubes that there are, as they are stored."""
    found: Rows = {}
    engine = NativeEngine()
    for name in _there(queue):
        table = path_table(str(root / "queue" / name))
        rows = engine.rows(f"SELECT {', '.join(_ROW)} FROM {table}")
        found[name] = frozenset(
            tuple(row[column] for column in _ROW) for row in rows if row["state"] in _STATES
        )
    return found


def _there(queue: Queue) -> list[str]:
    """The tubes that there are."""
    found = []
    for name in TUBES:
        with suppress(TubeNotFoundError):
            found.append(queue[name].name)
    return found


def _verbs(queue: Queue, clock: ManualClock) -> Iterator[tuple[str, Callable[[], object]]]:
    """Verbs, by what they are called."""
    held: dict[str, list[int]] = {name: [] for name in TUBES}
    numbers = itertools.count()

    def put(name: str, count: int = 1, **options: Any) -> Callable[[], object]:
        payloads = [f"{name} {next(numbers)}" for _ in range(count)]
        if count == 1:
            return lambda: queue[name].put(payloads[0], **options)
        return lambda: queue[name].put_many(payloads, **options)

    def take(name: str, count: int = 1) -> Callable[[], object]:
        def call() -> None:
            held[name] += [task.task_id for task in queue[name].take_many(count)]

        return call

    def settle(name: str, verb: str, count: int | None = 1) -> Callable[[], object]:
        def call() -> None:
            ids = held[name][:count]
            assert ids
            del held[name][:count]
            getattr(queue[name], verb)(ids)

        return call

    def put_arrow(name: str) -> Callable[[], object]:
        table = pa.table({"data": pa.array(['"a"', '"b"']), "pri": pa.array([0, 3], pa.int32())})
        return lambda: queue[name].put_arrow(table, key="key")

    def exchange(name: str) -> Callable[[], object]:
        def call() -> None:
            tasks = queue[name].exchange(ack=held[name], take=2)
            held[name] = [task.task_id for task in tasks]

        return call

    for name, options in TUBES.items():
        yield f"create {name}", lambda name=name, options=options: queue.create_tube(name, **options)  # type: ignore[misc]
    yield "put plain", put("plain", 2)
    for _ in range(4):
        yield "put plain", put("plain")
        yield "take plain", take("plain")
        yield "ack plain", settle("plain", "ack_many")
    yield "put ttl", put("ttl", 4, pri=1)
    yield "put_arrow ttl", put_arrow("ttl")
    yield "put_arrow ttl again", put_arrow("ttl")
    yield "take ttl", take("ttl", 3)
    yield "ack ttl", settle("ttl", "ack_many")
    yield "release ttl", settle("ttl", "release_many")
    yield "bury ttl", settle("ttl", "bury_many")
    yield "kick ttl", lambda: queue["ttl"].kick(1)
    for utube in ("u1", "u2", "u1", "u2"):
        yield f"put {utube}", put("subs", utube=utube)
    yield "take subs", take("subs")
    yield "take subs", take("subs")
    yield "ack subs", settle("subs", "ack_many")
    yield "take subs", take("subs")
    yield "release subs", settle("subs", "release_many")
    yield "put full", put("full", 3)
    yield "take full", take("full")
    yield "ack full", settle("full", "ack_many")
    yield "exchange ttl", take("ttl")
    yield "exchange ttl", exchange("ttl")
    yield "exchange subs", exchange("subs")
    yield "put gone", put("gone")
    yield "truncate gone", lambda: queue["gone"].truncate()
    yield "drop gone", lambda: queue["gone"].drop()
    yield "create gone", lambda: queue.create_tube("gone", "fifo")
    yield "put gone", put("gone")
    yield "flush", background.flush_now
    for _ in range(4):
        yield "put plain", put("plain")
    yield "sweep", lambda: queue.sweep()
    # Another process would take their leases to be over.
    yield "ack ttl", settle("ttl", "ack_many", None)
    yield "release subs", settle("subs", "release_many", None)
    yield "three hours pass", lambda: clock.advance(_HOURS)
    yield "sweep with VACUUM", lambda: queue.sweep()
    yield "put plain", put("plain")
    yield "take subs", take("subs")


# -- what is left --------------------------------------------------------------------------------


def judged(
    story: Story,
    point: Point,
    place: Path,
    patched: pytest.MonkeyPatch,
    *,
    thorough: bool = True,
) -> list[str]:
    """What is wrong with what a power cut has left, once the queue is opened there.

    Args:
        story: What the process did.
        point: When the power was cut, and what that left.
        place: A new directory.
        patched: Undone by the test.
        thorough: Whether to call verbs there, and to ask all readers, too.
    """
    write(point.files, place)
    if not point.done:
        return []
    machine, _ = sync_mark._host()
    with busy_logs(patched), patched.context() as patch:
        patch.setattr(disk.os, "fsync", lambda _: None)
        patch.setattr(disk, "sync_file_system", lambda _: None)
        patch.setattr(sync_mark, "_host", lambda: (machine, "another boot"))
        try:
            with opened(place, story.durability, point.clock) as queue:
                wrong = [*_wrong_rows(story, point, rows_of(queue, place))]
                if thorough:
                    wrong += _wrong_verbs(story.issued[point.done], queue)
            if thorough:
                wrong += disagreements(place / "queue")
        except Exception as error:  # noqa: BLE001  (that it cannot be used is what is looked for)
            wrong = [f"{type(error).__name__}: {error}"]
    return [f"{point}: {text}" for text in wrong]


def _wrong_rows(story: Story, point: Point, found: Rows) -> Iterator[str]:
    first = point.done if story.durability == "commit" else point.floor
    allowed = story.rows[first : point.done + 2]
    for name in sorted({name for rows in allowed for name in rows} | {*found}):
        rows = found.get(name)
        if rows not in [some.get(name) for some in allowed]:
            wanted = story.rows[point.done].get(name)
            gone = sorted((wanted or set()) - (rows or set()))
            new = sorted((rows or set()) - (wanted or set()))
            yield f"{name} lacks {gone} and has {new}" if rows is not None else f"{name} is gone"


def _wrong_verbs(issued: set[int], queue: Queue) -> Iterator[str]:
    """Use the tubes."""
    for name in _there(queue):
        tube, is_subs = queue[name], name == "subs"
        busy = {task.utube for task in tube.tasks_by_state("t")} if is_subs else set()
        put = tube.put("after", **({"utube": "after"} if is_subs else {}))
        assert put is not None
        if put.task_id in issued:
            yield f"{name}: the id {put.task_id} was issued before"
        tasks = tube.take_many(20)
        if put.task_id not in {task.task_id for task in tasks}:
            yield f"{name}: a task that was put is not handed out: {tasks}"
        if busy & {task.utube for task in tasks}:
            yield f"{name}: of {busy}, which are held, some was handed out: {tasks}"
        tube.ack_many([task.task_id for task in tasks])


def some(points: Sequence[Point], count: int, seed: int) -> list[Point]:
    """A choice of points, in their order."""
    chosen = random.Random(seed).sample(range(len(points)), min(count, len(points)))
    return [points[place] for place in sorted(chosen)]
