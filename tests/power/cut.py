"""Makes one power cut: processes work on a disk, its power ends, and the checks judge what is left."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.chaos.checker import findings
from tests.chaos.drain import drain
from tests.chaos.history import History
from tests.chaos.journal import Journal, begun_in, lives_of
from tests.chaos.places import Native, SparkJob
from tests.chaos.plan import SESSION_TTR, TUBES, open_queue
from tests.chaos.worker import told
from tests.power.before import Before
from tests.power.readers import disagreements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.chaos.journal import Life
    from tests.chaos.plan import TubePlan
    from tests.power.disk import Disk
    from tubeq_spark import Queue, Task


#: Logs that are shortened all the time, as `Place` has it: so many versions stay, for so many seconds;
#: it is looked after them each so many versions.
SHORT_LOG = (20, 0.5, 10)

#: Tasks put and synced long before, by tube.
_OLD = {"work": 3_000, "sites": 600, "hosts": 300, "small": 10, "single": 300, "plain": 2_000}
#: Seconds until each process has called a verb.
_STARTS = 120.0
#: The journals of what is done after the cut.
_AFTER = ("after", "drain")
#: Seconds that may be lost at the most: one, and some on a machine that others use, too.
_MOST = 5.0
#: How far native processes stand back for a Spark job.
_NICE = 10


@dataclass(slots=True)
class Cut:
    """What came of it.

    Attributes:
        acknowledged: Verbs that were acknowledged before the cut.
        lost: Tasks of acknowledged puts that are gone, and were not acked.
        undone: Tasks that are there though their ack was acknowledged.
        seconds: How old the oldest commit was that is gone, by table; those of which none is are left out.
        moved: Versions that were moved aside.
        versions: Commits to all tables before the cut.
        findings: All that should not be.
    """

    acknowledged: int = 0
    lost: int = 0
    undone: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    moved: int = 0
    versions: int = 0
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} verbs acknowledged, {self.lost} tasks lost, {self.undone} acks undone, "
            f"{max(self.seconds.values(), default=0.0):.2f} s gone, {self.moved} versions moved aside, "
            f"{self.versions} commits, {len(self.findings)} findings"
        )


class PowerCut:
    """A queue on a disk, and what happens to it."""

    def __init__(
        self,
        directory: Path,
        disk: Disk,
        *,
        seed: int,
        durability: str,
        workers: int = 3,
        log: tuple[int, float, int] | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        """Prepare it.

        Args:
            directory: Where the journals go, which lose no power.
            disk: Where the queue goes.
            seed: What its decisions hang on; the moments are those of the machine.
            durability: The queue's.
            workers: Native processes, >= 2.
            log: How the processes keep logs short, if not as usual; see `Place`.
            spark: If given, a Spark program works there, too, and this session reads what is left.
        """
        self._journals = directory / "journals"
        self._journals.mkdir(parents=True)
        self._disk = disk
        self._place = disk.path / "queue"
        self._location = str(self._place)
        self._random = random.Random(seed)
        self._durability = durability
        nice = 0 if spark is None else _NICE
        settings: dict[str, Any] = {"durability": durability, "log": log}
        self._natives = [
            Native(self._location, self._journals, number, nice, **settings)
            for number in range(workers)
        ]
        self._job = None if spark is None else SparkJob(self._location, self._journals, durability)
        self._spark = spark

    def run(self, seconds: float) -> Cut:
        """Let them work for some seconds, cut the power, and judge what is left."""
        self._put_old()
        self._disk.sync()
        before = self._work_and_cut(seconds)
        self._disk.restart()
        lives = lives_of(self._journals)
        cut = Cut(_acknowledged(lives, before.cut))
        cut.versions = sum(max(times, default=-1) + 1 for times in before.versions.values())
        try:
            self._judge(cut, before, lives)
        except Exception as error:  # noqa: BLE001  (that nobody can open it is what is looked for)
            cut.lost = _waiting(lives, before.cut)
            cut.findings.append(f"UNREADABLE: {type(error).__name__}: {error}")
            cut.findings += disagreements(self._place, self._spark)
        return cut

    def _put_old(self) -> None:
        journal = Journal(self._journals / "old.journal")
        with self._open() as queue:
            for tube in TUBES:
                queue.create_tube(tube.name, **tube.options)
                items = [
                    [
                        f"old.{tube.name}.{n}",
                        f"u{n % tube.utubes}" if tube.utubes else None,
                        pri,
                        0.0,
                    ]
                    for n in range(_OLD[tube.name])
                    for pri in [n % 2 if tube.timed else 0]
                ]
                texts = [json.dumps({"label": label}) for label, *_ in items]
                columns: dict[str, Any] = {"data": pa.array(texts)}
                if tube.utubes:
                    columns["utube"] = pa.array([utube for _, utube, *_ in items])
                if tube.timed:
                    columns["pri"] = pa.array([pri for *_, pri, _ in items], pa.int32())
                with journal.verb("put", tube.name, how="arrow", items=items) as entry:
                    put = queue[tube.name].put_arrow(pa.table(columns))
                    entry.result.update(count=put.count, ends=[put.first_task_id, put.last_task_id])

    def _work_and_cut(self, seconds: float) -> Before:
        places: list[Native | SparkJob] = [*self._natives]
        if self._job is not None:
            places.append(self._job)
        try:
            for place in reversed(places):
                place.start()
            until = time.monotonic() + _STARTS
            while not all(self._verbs(place) for place in places):
                assert time.monotonic() < until, "a process did not begin to work"
                time.sleep(0.02)
            time.sleep(seconds * self._random.uniform(0.7, 1.0))
            before = Before.look(self._place)
            self._disk.cut()
        finally:
            for place in places:
                place.kill()
            if self._job is not None:
                self._job.end(0.0)
        return before

    def _verbs(self, place: Native | SparkJob) -> int:
        name = place.life if isinstance(place, Native) else "spark-1"
        return begun_in(self._journals / f"{name}.journal")

    def _open(self) -> Queue:
        return open_queue(self._location, durability=self._durability)

    # -- what is left ------------------------------------------------------------------------

    def _judge(self, cut: Cut, before: Before, lives: Sequence[Life]) -> None:
        cut.findings += self._go_on(before)
        before.look_again(self._place)
        cut.seconds = before.lost
        cut.findings += [
            f"{table} has lost what was committed {seconds:.1f} s before the cut"
            for table, seconds in cut.seconds.items()
            if seconds > _MOST
        ]
        cut.moved = len({*self._place.glob("*/_delta_log/_lost-*/*.json")})
        cut.findings += disagreements(self._place, self._spark)
        journal = Journal(self._journals / "drain.journal")
        drained, counted = drain(self._location, journal, before.cut)
        cut.findings += counted
        after = [life for life in lives_of(self._journals) if life.name in _AFTER]
        wrong = findings(History([*before.acknowledged(lives), *after]), drained)
        cut.lost = sum(text.startswith("LOST") for text in wrong)
        cut.undone = sum(text.startswith("DOUBLE") for text in wrong)
        if self._durability != "commit":
            wrong = findings(History([*before.surviving(lives), *after]), drained)
        cut.findings += wrong
        cut.findings += _issued_twice(lives, after)
        ops = [op for life in after for op in life.ops if op.error]
        cut.findings += [f"{op}: {op.result.get('message')}" for op in ops]

    def _go_on(self, before: Before) -> list[str]:
        """Put, take, ack and release in each tube, while the dead still hold what they have taken."""
        journal = Journal(self._journals / "after.journal")
        with self._open() as queue:
            return [text for tube in TUBES for text in self._use(queue, tube, journal, before.cut)]

    @staticmethod
    def _use(queue: Queue, tube: TubePlan, journal: Journal, cut: float) -> Iterator[str]:
        work, utube = queue[tube.name], "u0" if tube.utubes else None
        is_alone = tube.utubes and tube.parallel == 1
        held = {task.utube for task in work.tasks_by_state("t")} if is_alone else set()
        tasks: list[Task] = []
        items = [[f"after.{tube.name}.{n}", utube, 0, 0.0] for n in range(3)]
        with journal.verb("put", tube.name, items=items) as entry:
            put = work.put_many([{"label": label} for label, *_ in items], utube=utube)
            entry.result["ids"] = [task.task_id for task in put]
        with journal.verb("take", tube.name, count=4) as entry:
            tasks = work.take_many(4)
            entry.result["tasks"] = told(tasks)
        if time.monotonic() < cut + SESSION_TTR / 2:
            twice = {task.utube for task in tasks} & held
            yield from (f"{tube.name}: {utube} is held, and was handed out" for utube in twice)
        ids = [task.task_id for task in tasks]
        for verb, call, some in (
            ("ack", work.ack_many, ids[:2]),
            ("release", work.release_many, ids[2:]),
        ):
            with journal.verb(verb, tube.name, ids=some):
                call(some)


def _acknowledged(lives: Iterable[Life], cut: float) -> int:
    """How many verbs had been acknowledged before a moment, but for those that only look."""
    ops = [op for life in lives for op in life.ops if op.is_done and op.verb != "look"]
    return sum(op.end is not None and op.end <= cut for op in ops)


def _waiting(lives: Iterable[Life], cut: float) -> int:
    """How many tasks had been put and not acked by then."""
    done = [
        op
        for life in lives
        for op in life.ops
        if op.is_done and op.end is not None and op.end <= cut
    ]
    puts = sum(op.count for op in done if op.verb == "put")
    return puts - sum(len(op.arguments["ids"]) for op in done if op.verb in ("ack", "exchange"))


def _issued_twice(before: Iterable[Life], after: Iterable[Life]) -> Iterator[str]:
    """Tasks with ids that others had, be these lost or not."""
    issued = {(tube, task_id): label for tube, task_id, label in _named(before)}
    for tube, task_id, label in _named(after):
        if issued.get((tube, task_id), label) != label:
            yield f"{task_id} of {tube} was {issued[tube, task_id]} and is {label}"


def _named(lives: Iterable[Life]) -> Iterator[tuple[str, int, str]]:
    """The ids of tasks, and what they are called."""
    for op in (op for life in lives for op in life.ops):
        for task_id, label, *_ in op.result.get("tasks", ()):
            yield op.tube, task_id, label
        ids = op.result.get("ids") or ()
        for task_id, (label, *_) in zip(ids, op.arguments["items"] if ids else (), strict=True):
            yield op.tube, task_id, label
