"""Stops verbs, runs rivals and reads the stored rows, for the tests of concurrency."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.locks.table_lock import TableLock
from tubeq_spark.storage.native.memory_engine import MemoryEngine
from tubeq_spark.storage.query import Select, named
from tubeq_spark.storage.spark.jvm import clone_of
from tubeq_spark.storage.uninterrupted import THREAD_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark import Queue, Task, Tube
    from tubeq_spark.runtime.context import QueueContext
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.testing import ManualClock

FOR_EVER = 10 * 365 * 86_400.0
#: Seconds that a test waits for what must come, before it fails.
WAIT = 120.0
#: The ttr of the tasks of these tests, and a step of the clock that ends it.
TTR = 60.0
PAST_TTR = TTR + 1


def is_verb_of_main(thread: int) -> bool:
    """Whether this thread runs a verb for that one, which is the main thread."""
    is_main = thread == threading.main_thread().ident
    return is_main and threading.current_thread().name == THREAD_NAME


class Stop(BaseException):
    """The process ends here; nothing that follows in it is run."""


def stop_at(step: str, operation: str) -> Callable[[str, str], None]:
    """An observer that stops a process at a step of an operation."""

    def observe(*seen: str) -> None:
        if seen == (step, operation):
            raise Stop(*seen)

    return observe


class Probe:
    """An observer of a queue: counts its steps, stops it, or lets a rival in between two of them.

    Only the thread that made it is observed, and what runs its verbs, not the heartbeat's. What
    happens in an interruption is written down, but not interrupted.
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self._thread = threading.get_ident()
        self._hooks: list[Callable[[str, str], None]] = []
        self._is_busy = False

    def __call__(self, step: str, operation: str) -> None:
        if threading.get_ident() != self._thread and not is_verb_of_main(self._thread):
            return
        self.events.append((step, operation))
        if self._is_busy:
            return
        self._is_busy = True
        try:
            for hook in list(self._hooks):
                hook(step, operation)
        finally:
            self._is_busy = False

    @contextmanager
    def _hooked(self, hook: Callable[[str, str], None]) -> Iterator[None]:
        self._hooks.append(hook)
        try:
            yield
        finally:
            self._hooks.remove(hook)

    def stopped_after(self, commits: int, call: Callable[[], object]) -> bool:
        """Run `call` and stop it when it has made so many commits; 0 is at its first step.

        To all others the steps between two commits are the same.

        Returns:
            False when it ended with fewer.
        """
        first = len(self.events)

        def stop(step: str, operation: str) -> None:
            if [seen for seen, _ in self.events[first:]].count("committed") >= commits:
                raise Stop(step, operation)

        return self._is_stopped(stop, call)

    def stopped_at(self, step: str, operation: str, call: Callable[[], object]) -> bool:
        """Run `call` and stop it when it comes to a step of an operation.

        Returns:
            False when it ended before it got there.
        """
        return self._is_stopped(stop_at(step, operation), call)

    def _is_stopped(self, stop: Callable[[str, str], None], call: Callable[[], object]) -> bool:
        with self._hooked(stop):
            try:
                call()
            except Stop:
                return True
        return False

    @contextmanager
    def interrupted(
        self, step: str, operation: str, act: Callable[[], object], nth: int = 1
    ) -> Iterator[None]:
        """Do something when the block comes to a step of an operation, the nth time only.

        With `nth` 0: each time.
        """
        seen = 0

        def interrupt(seen_step: str, seen_operation: str) -> None:
            nonlocal seen
            if (seen_step, seen_operation) == (step, operation):
                seen += 1
                if nth in (0, seen):
                    act()

        with self._hooked(interrupt):
            yield
        assert seen >= max(nth, 1), f"never came to {step} of {operation}: {self.events[-20:]}"


class OpenQueue(Protocol):
    """Opens one more queue on the module's location, with a session of its own."""

    def __call__(
        self, *, ttr: float = FOR_EVER, clock: ManualClock | None = None, **options: Any
    ) -> Queue: ...


def end_heartbeat(queue: Queue) -> None:
    """Let a queue beat only when a test makes it: real time has no part in these tests."""
    queue._context.session.stop()


class Tapped:
    """A Spark session whose statements, and those of the sessions made of it, go through `run`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def sql(self, text: str, **frames: DataFrame) -> DataFrame:
        """Run a statement in this session."""
        return self.run(self._spark, text, partial(self._spark.sql, **frames))

    def cloneSession(self) -> SparkSession:  # noqa: N802  (as Spark Connect has it)
        """Make a session of this one, tapped as well."""
        session = clone_of(self._spark)
        plain = session.sql
        session.sql = lambda text, **frames: self.run(session, text, partial(plain, **frames))
        return session

    def run(self, session: SparkSession, text: str, sql: Callable[[str], DataFrame]) -> DataFrame:
        """Run a statement of a session by its own `sql`."""
        raise NotImplementedError


def jobs_of(spark: SparkSession, name: str, work: Callable[[], object]) -> list[int]:
    """The jobs that Spark runs for what is called in this thread; none has this name yet."""
    context = spark.sparkContext
    context.setJobGroup(name, name)
    try:
        work()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    return list(context.statusTracker().getJobIdsForGroup(name))


def on_another_host(queue: Queue) -> Queue:
    """Make a queue commit as if from another host: nothing here waits for what it writes.

    A native engine finds conflicts by the version then.

    On `file:` locations locks keep all writers apart, so that Delta never has to; on storage that many
    hosts share there are none between them. Within one JVM, and only there, Delta's commits to local
    files are as safe as on such storage: what these tests show is Delta's part, not the file system's.
    """
    opened = queue._context.opened
    queue._context.opened = replace(opened, uri=f"{opened.uri}#{queue.session_uuid}", locks=None)
    queue._context.sessions._table_lock = queue._context.registry._table_lock = TableLock(None)
    queue._context.session._slots._table_lock = queue._context.sessions._table_lock
    return queue


@dataclass
class Hosts:
    """A tube as two sessions on two hosts see it, the first one observed."""

    clock: ManualClock
    probe: Probe
    mine: Queue
    tube: Tube
    rivals: Queue
    rival: Tube


def two_hosts(open_queue: OpenQueue) -> tuple[Probe, Queue, Queue]:
    """An observed queue and another one: no lock keeps them apart, only Delta and the protocol do."""
    probe = Probe()
    return (
        probe,
        on_another_host(open_queue(observer=probe, attempts=10)),
        on_another_host(open_queue(attempts=10)),
    )


@dataclass
class World:
    """A tube shared by two sessions on one clock: one that is interrupted, and a plain one.

    Without Spark there is no session: `spark` is `None` then, and nobody asks for a frame.
    """

    spark: Any
    place: str
    clock: ManualClock
    probe: Probe
    mine: Queue
    rivals: Queue
    tube: Tube
    rival: Tube
    open_queue: OpenQueue

    def version(self, table: str | None = None) -> int:
        """The latest version of a table, from its log; the tube's by default."""
        log = Path(self.place, table or self.tube.name, "_delta_log")
        return max(int(commit.stem) for commit in log.glob("*.json") if commit.stem.isdigit())

    def stored(self) -> str:
        """All tasks as stored, as in `"ar bt"`: data and state, in the order of put."""
        return stored(self.tube)

    def conflicts(self) -> int:
        """How often the interrupted queue had to begin anew so far."""
        return self.mine._context.loop.conflicts()

    def put(self, letters: str) -> list[int]:
        """Let the rival put tasks, each a letter."""
        return ids_of(self.rival.put_many(list(letters)))

    def put_each(self, letters: str) -> None:
        """Let the rival put tasks one by one, so that each has a segment of its own."""
        for letter in letters:
            self.rival.put(letter)

    def taken(self, letters: str) -> list[int]:
        """Put tasks, and take all of them."""
        self.put(letters)
        return ids_of(self.tube.take_many(len(letters)))

    def frame(self, letters: str) -> DataFrame:
        """Payloads for a `put_df`, each a letter."""
        rows = ", ".join(f"('\"{letter}\"')" for letter in letters)
        found: DataFrame = self.spark.sql(f"SELECT data FROM VALUES {rows} AS v(data)")
        return found

    def ids(self, names: str) -> DataFrame | list[int]:
        """What names tasks of the tube by their data: a frame, and where there are none the ids."""
        named = {json.dumps(name) for name in names}
        rows = rows_of(self.rival, "task_id", "data")
        ids = [row["task_id"] for row in rows if row["data"] in named]
        assert len(ids) == len(names)
        if self.spark is None:
            return ids
        named_by: DataFrame = self.spark.sql(
            " UNION ALL ".join(f"SELECT {i}L AS task_id" for i in ids)
        )
        return named_by


def rows_of(tube: Tube, *columns: str, now_us: int | None = None) -> list[dict[str, Any]]:
    """The tasks of a tube as they are stored, or as they are at a moment."""
    is_typed = tube._ctx.record.options.schema is not None
    is_named = path_of(tube._ctx.table.name) is None
    if tube._ctx.queue.spark is not None and (is_typed or is_named):
        rows = tube.df(effective=now_us is not None).select(*columns).collect()
        return [row.asDict() for row in rows]
    table, found = tube._ctx.table, named(*columns)
    if now_us is not None:
        found["state"] = tube._ctx.table.state(now_us)
    rows = _engine_beside(tube).rows(Select(table.name, found, table.mine()))
    return [row for row in rows if now_us is None or row["state"] is not None]


def _engine_beside(tube: Tube) -> Engine:
    """What reads a tube's table: on files an engine of its own, which remembers nothing; the faster one."""
    engine = tube._ctx.queue.engine
    if isinstance(engine, MemoryEngine):
        return engine
    from tubeq_spark.storage.native.engine import NativeEngine  # noqa: PLC0415  it is optional

    return NativeEngine()


def stored(tube: Tube) -> str:
    """All tasks of a tube as stored; none may be there twice."""
    rows = rows_of(tube, "task_id", "data", "state")
    assert len({row["task_id"] for row in rows}) == len(rows)
    # Each is a letter as JSON, or what a test has made of it.
    tasks = [(row["task_id"], row["data"].strip('"') + row["state"]) for row in rows]
    return " ".join(text for _, text in sorted(tasks))


def spoil(tube: Tube, task_id: int, letter: str) -> None:
    """Write a task's data, a letter, by SQL and without its second quote: no take can read it."""
    edit(tube._ctx.queue, tube._ctx.table.name, "data", f"'\"{letter}'", f"task_id = {task_id}")


def edit(queue: QueueContext, table: str, column: str, value: str, where: str) -> None:
    """Write a column of some rows past the verbs."""
    if queue.spark is None:
        from deltalake import DeltaTable  # noqa: PLC0415  it is optional

        DeltaTable(str(path_of(table))).update({column: value}, predicate=where)
    else:
        queue.spark.spark.sql(f"UPDATE {table} SET {column} = {value} WHERE {where}")


def names(tasks: Iterable[Task]) -> str:
    """The data of tasks, each a letter."""
    return "".join(task.data for task in tasks)


def ids_of(tasks: Iterable[Task]) -> list[int]:
    """The ids of tasks."""
    return [task.task_id for task in tasks]
