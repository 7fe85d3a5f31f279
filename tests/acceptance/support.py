"""Creates, empties and reads tubes on each engine for the acceptance tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tests.beside import beside_spark
from tests.thorough import without_spark
from tubeq_spark.storage.location import SESSIONS
from tubeq_spark.storage.log.log_files import versions_of
from tubeq_spark.storage.spark.jvm import is_classic
from tubeq_spark.testing import InMemoryQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

    from tubeq_spark import Clock, Queue, Task, Tube

    #: The fixture that reads the version of every tube.
    Versions = Callable[[], dict[str, int]]

FOR_EVER = 10 * 365 * 86_400.0
WAIT = 60.0
#: Seconds after which every program has seen a change of a tube's options.
SEEN = 5
#: What a fifo has is a part of what a fifottl has; its own cases are 010.
TUBE_TYPES = ("fifottl", *without_spark("fifo"))
#: Options of tubes that need no Spark, and that no session is remembered for.
_OF_ANY_ENGINE = frozenset(
    {"capacity", "delay", "max_attempts", "pri", "schema", "storage_mode", "ttl", "ttr"}
)


def outliving(engine: Engine, location: str, clock: Clock) -> Iterator[Queue]:
    """A queue whose session outlives every step of the clock, for a fixture."""
    queue = engine.open(location, clock=clock)
    queue.cfg(ttr=FOR_EVER)
    yield queue
    engine.leave(queue)


class OnSpark:
    """Delta tables."""

    def __init__(self, spark: SparkSession | None) -> None:
        self.spark = spark
        self._beside: dict[str, Queue] = {}

    @property
    def _commits(self) -> bool:
        """Whether Spark commits; a client of Spark Connect does not at a path."""
        return self.spark is not None and is_classic(self.spark)

    def open(self, location: str, *, clock: Clock | None = None, **options: Any) -> Queue:
        """Open a queue at a path; a new place is made for Spark's commits, natively, as tubes are."""
        # pyspark is imported where it is needed.
        from tubeq_spark import Queue  # noqa: PLC0415

        if self._commits and not Path(location).exists():
            beside_spark(location, clock=clock).close()
        return Queue(self.spark, location, clock=clock, **options)

    def create_tube(self, queue: Queue, name: str, type_name: str, **options: Any) -> Tube:
        """Make a tube that a test works with.

        Natively where that can, in a third of the time: either engine makes the same tables, as a test
        of its own shows.
        """
        if not {*options} <= _OF_ANY_ENGINE:
            return queue.create_tube(name, type_name, **options)
        beside = self._native(queue)
        made = beside.create_tube(name, type_name, **options)
        return made if beside is queue else queue[name]

    def empty(self, queue: Queue, name: str) -> None:
        """Empty a tube for the next test; natively, as it is made."""
        self._native(queue)[name].truncate()

    def leave(self, queue: Queue) -> None:
        """End the queue object of a module: to close it would look into each of its tubes."""
        if queue.engine == "native":
            queue.close()
            return
        from tubeq_spark.admin import life  # noqa: PLC0415

        queue._context.session.stop()
        life.end(queue._context)

    def _native(self, queue: Queue) -> Queue:
        """A queue without Spark at the location of another one, and by its clock."""
        if queue.engine == "native":
            return queue
        if queue.location not in self._beside:
            clock = queue._context.clock
            self._beside[queue.location] = beside_spark(queue.location, clock=clock)
        return self._beside[queue.location]

    def versions(self, location: str) -> dict[str, int]:
        """The latest versions in the Delta logs."""
        latest: dict[str, int] = {}
        for commit in Path(location).glob("*/_delta_log/*.json"):
            table = commit.parent.parent.name
            if commit.stem.isdigit() and table != SESSIONS:
                latest[table] = max(int(commit.stem), latest.get(table, 0))
        return latest

    def update(self, table: str, columns: dict[str, str], where: str = "TRUE") -> None:
        """Write SQL expressions into a table, as a program does that is no queue."""
        assert self.spark is not None
        sets = ", ".join(f"{name} = {value}" for name, value in columns.items())
        self.spark.sql(f"UPDATE delta.`{table}` SET {sets} WHERE {where}")


class Native(OnSpark):
    """Delta tables without Spark."""

    def __init__(self) -> None:
        """There is no session."""
        super().__init__(None)

    def open(self, location: str, *, clock: Clock | None = None, **options: Any) -> Queue:
        """Open a queue at a path."""
        return super().open(location, clock=clock, engine="native", **options)

    def update(self, table: str, columns: dict[str, str], where: str = "TRUE") -> None:
        """Write SQL expressions into a table."""
        from deltalake import DeltaTable  # noqa: PLC0415

        DeltaTable(table).update(columns, predicate=where)


class InMemory:
    """Tubes in memory."""

    #: There is no session.
    spark: SparkSession | None = None

    def __init__(self) -> None:
        self._opened: dict[str, InMemoryQueue] = {}

    def open(self, location: str, *, clock: Clock | None = None, **options: Any) -> Queue:
        """Open a queue, beside the one that is there."""
        beside = self._opened.get(location)
        queue = InMemoryQueue(clock, beside=beside, **options)
        self._opened[location] = self._opened[queue.location] = queue
        return queue

    def create_tube(self, queue: Queue, name: str, type_name: str, **options: Any) -> Tube:
        """Make a tube."""
        return queue.create_tube(name, type_name, **options)

    def empty(self, queue: Queue, name: str) -> None:
        """Empty a tube."""
        queue[name].truncate()

    def leave(self, queue: Queue) -> None:
        """Close a queue object."""
        queue.close()

    def versions(self, location: str) -> dict[str, int]:
        """The latest versions of the tables."""
        tables = self._opened[location]._location.files.tables
        newest = {path: max(versions_in(files)) for path, files in tables.items()}
        names = {path: path.rpartition("/")[2] for path in tables}
        return {names[path]: version for path, version in newest.items() if names[path] != SESSIONS}


#: What keeps the queues of a module.
Engine = OnSpark | InMemory


def versions_in(files: Iterable[str]) -> list[int]:
    """The versions of the commits among the files of a table."""
    return versions_of(name.removeprefix("_delta_log/") for name in files)


class NewTube(Protocol):
    """Makes a tube of its own for a test."""

    def __call__(self, type_name: str, **options: Any) -> Tube: ...


class SharedTube(Protocol):
    """Gives the module's tube of a type, emptied."""

    def __call__(self, type_name: str) -> Tube: ...


class InBackground(Protocol):
    """Starts a call in a thread of its own; returns once the thread runs."""

    def __call__(self, call: Callable[..., Any], *args: Any, **options: Any) -> Future[Any]: ...


class Session(Protocol):
    """Opens one more session on the module's queue, closed at the end of the test."""

    def __call__(self, *, ttr: float = FOR_EVER, **options: Any) -> Queue: ...


class Changes(list[tuple[str, Any, str]]):
    """An ``on_task_change`` callback that keeps (event, data, state) of every change."""

    def __call__(self, task: Task, stats_key: str) -> None:
        self.append((stats_key, task.data, task.state.value))

    def drain(self) -> list[tuple[str, Any, str]]:
        """What came since the last drain."""
        seen = list(self)
        self.clear()
        return seen


def take(tube: Tube) -> Task:
    """Take a task that must be there."""
    task = tube.take(timeout=0)
    assert task is not None
    return task


def put_and_take(tube: Tube, data: Any = None, **options: Any) -> Task:
    """Put a task and take it."""
    put = tube.put(data, **options)
    task = take(tube)
    assert task.task_id == put.task_id
    return task


def times(task: Task) -> tuple[float | None, float | None, float | None]:
    """Seconds from a task's creation to its next event, its ttl, and its ttr."""
    event = task.next_event
    return (event and (event - task.created).total_seconds()), task.ttl, task.ttr


def data_of(tasks: Iterable[Task]) -> list[Any]:
    """The data of tasks."""
    return [task.data for task in tasks]


def ids_of(tasks: Iterable[Task]) -> list[int]:
    """The ids of tasks."""
    return [task.task_id for task in tasks]


def all_tasks(tube: Tube) -> list[Task]:
    """The tasks of a tube in all states, by their ids."""
    found = [task for state in "rt!~" for task in tube.tasks_by_state(state)]
    return sorted(found, key=lambda task: task.task_id)


def moved(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """How many commits each table got."""
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def calls(queue: Queue, tube: Tube) -> dict[str, int]:
    """The call counters of a tube that are not zero, without the reads."""
    counters = queue.statistics(tube.name)["calls"]
    return {name: count for name, count in counters.items() if count and name != "peek"}


def counts(queue: Queue, tube: Tube) -> dict[str, int]:
    """The task counts of a tube that are not zero."""
    return {name: count for name, count in queue.statistics(tube.name)["tasks"].items() if count}
