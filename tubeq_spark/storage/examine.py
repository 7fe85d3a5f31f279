"""Examines one table: reads its whole log and the data files of its newest version. Reads only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.reports import Damage
from tubeq_spark.storage.arrow.columns import array
from tubeq_spark.storage.location import SYSTEM
from tubeq_spark.storage.log.actions import Actions, DataFile, fault_of_file, fault_of_size
from tubeq_spark.storage.log.log_files import (
    LAST_CHECKPOINT,
    LEFT_SECONDS,
    LOG,
    LogFiles,
    commit_name,
    is_elsewhere,
)
from tubeq_spark.storage.log.reading import BEGINNING, LogFacts, led
from tubeq_spark.storage.store.store import RequestError, Store
from tubeq_spark.storage.tables.schema import PARTITION
from tubeq_spark.storage.tables.tube_table import OWN_SEGMENTS
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


_STATES = array([state.value for state in TaskState], pa.string())


def tasks_in(store: Store, path: str, size: int) -> set[int] | None:
    """The ids of the tasks in a file of a tube; `None` if it cannot be read."""
    try:
        with store.open_file(path, size) as opened:
            rows = pq.ParquetFile(opened).read(columns=["tube", "task_id", "state"])
        is_task = pc.and_(pc.greater(rows["tube"], 0), pc.is_in(rows["state"], value_set=_STATES))
    except (pa.ArrowException, OSError, KeyError):
        return None
    return {id for id in rows.filter(is_task)["task_id"].to_pylist() if id is not None}


def tasks_by_statistics(file: DataFile) -> tuple[tuple[int, ...], str]:
    """The tasks in an unreadable file of a tube, as far as the log has their ids.

    Returns:
        The ids that are known for certain, and all that is known in words.
    """
    if file.partition.get(PARTITION) in OWN_SEGMENTS:
        return (), "it held no tasks"
    try:
        count = file.rows
        bounds = [file.bound(which, "task_id") for which in ("minValues", "maxValues")]
        first, last = (None if bound is None else int(bound) for bound in bounds)
    except (ValueError, KeyError, TypeError, AttributeError):
        count = first = last = None
    if count is None or first is None or last is None:
        return (), "its tasks are not known"
    if last - first + 1 == count:
        ids = tuple(range(first, last + 1))
        return ids, f"it held {_tasks(ids)}"
    ends = (first, last) if count > 1 else (first,)
    return ends, f"it held {count} tasks with ids from {first} to {last}"


#: So many ids are named in a sentence.
_NAMED = 20


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a location.

    Attributes:
        name: Its name.
        store: Its files.
        directory: Where it is on local files; `None`: it is on an object store.
    """

    name: str
    store: Store
    directory: Path | None

    @property
    def tube(self) -> str | None:
        """The tube that it is of; `None`: it is one of the queue's own."""
        return None if self.name in SYSTEM else self.name

    def damage(self, kind: str, path: str, message: str, **more: Any) -> Damage:
        """A damage of a file, by its path in the table."""
        return Damage(self.name, self.tube, kind, f"{self.store}/{path}", message, **more)


@dataclass(slots=True)
class Examined:
    """The results of the examination of a table.

    Attributes:
        damages: What is not as it was written.
        log: Its log; `None`: it cannot be read at all.
        verdict: Which of its versions can be read.
        state: The last of these.
        bad_files: The data files of that version that are not as they were written.
    """

    damages: list[Damage]
    log: LogFacts | None = None
    verdict: Verdict | None = None
    state: Actions = field(default_factory=Actions)
    bad_files: list[DataFile] = field(default_factory=list)


def examine(table: Table, now: float) -> Examined:
    """Examine a table.

    Args:
        table: The table.
        now: The moment, in seconds since the epoch.

    Raises:
        RequestError: The object store fails.
    """
    try:
        log = LogFacts.listed(LogFiles(table.store))
        log.read()
    except RequestError:
        raise
    except OSError as error:
        message = f"the log cannot be read: {reason_of(error)}"
        return Examined([table.damage("unreadable", LOG, message, loses=True)])
    damages = [*_leftovers(table, log, now)]
    unread = log.unread(log.states)
    if unread:
        message = f"the checkpoint {unread} is one that only Spark reads: the table is not checked"
        damages.append(table.damage("unreadable", f"{LOG}/{unread}", message, loses=True))
        return Examined(damages, log)
    if not log.versions and not log.states:
        message = "the log has no version that can be read; only a copy of the table helps"
        damages.append(table.damage("hole", LOG, message, loses=True))
        return Examined(damages, log)
    verdict = judge(log)
    state = Actions()
    if verdict.readable is not None:
        state = log.at(verdict.begins, verdict.readable)
    found = Examined(damages, log, verdict, state)
    damages += _of_log(table, log, verdict, state)
    damages += _of_files(table, found)
    return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """The damage that was found.

    Attributes:
        begins: The checkpoint from which most versions can be read, the newest such one; `BEGINNING` if that is
            the first commit.
        readable: The last version that can be read, with all commits before it; `None` if there is none.
        newest: The newest version of which any file exists.
        holes: Versions that are missing between others, or before all readable ones.
        hint_fault: The fault of `_last_checkpoint`; empty if it has none.
    """

    begins: int
    readable: int | None
    newest: int
    holes: Sequence[int]
    hint_fault: str

    @property
    def is_whole(self) -> bool:
        """Whether the newest version is readable."""
        return self.readable == self.newest

    def is_needed(self, version: int) -> bool:
        """Whether readers of the newest version need the commit of a version."""
        return version > self.begins or not self.is_whole


def judge(facts: LogFacts) -> Verdict:
    """Judge a log with at least one commit or checkpoint."""
    good = {version for version in facts.versions if version not in facts.faults}
    there = {*facts.versions}
    newest = max([*facts.versions, *facts.states])
    reached = led(good, facts.states)
    readable = max(reached.values(), default=None)
    begins = max((start for start, end in reached.items() if end == readable), default=BEGINNING)
    first = facts.versions[0] if facts.versions else newest
    holes = [version for version in range(first, newest) if version not in there]
    if readable is None or readable < newest:
        # All later versions need this one.
        missing = 0 if readable is None else readable + 1
        holes = sorted({*holes, missing} - there)
    return Verdict(begins, readable, newest, holes, _hint_fault(facts, reached, readable))


def _hint_fault(facts: LogFacts, reached: Mapping[int, int], readable: int | None) -> str:
    if facts.hint_fault or facts.hint is None:
        return facts.hint_fault
    if any(name.startswith(f"{facts.hint:020}.") for name in facts.bad_checkpoints):
        # The fault of that checkpoint file is reported by itself.
        return ""
    if reached.get(facts.hint) != readable:
        return f"names the checkpoint of version {facts.hint}, with which readers cannot begin"
    return ""


# -- the log ----------------------------------------------------------------------------------------


def _of_log(table: Table, log: LogFacts, verdict: Verdict, state: Actions) -> Iterator[Damage]:
    first_lost = 0 if verdict.readable is None else verdict.readable + 1
    places = [(version, "commit", fault) for version, fault in log.faults.items()]
    places += [(version, "hole", "is missing") for version in verdict.holes]
    for version, kind, what in sorted(places):
        said = f"the commit of version {version} {what}"
        path = f"{LOG}/{commit_name(version)}"
        if not verdict.is_needed(version):
            message = f"{said}; {_begin(verdict)}, so nothing is lost with it"
            yield table.damage(kind, path, message)
        elif version == first_lost:
            tasks = _lost_tasks(table, log, verdict, state)
            message = f"{said}: {_what_is_lost(verdict, tasks)}"
            yield table.damage(kind, path, message, loses=True, tasks=tasks)
        else:
            yield table.damage(kind, path, f"{said}, as one before it is", loses=True)
    for name, fault in log.bad_checkpoints.items():
        is_lossless = verdict.is_whole
        message = f"the checkpoint {name} {fault}"
        message += (
            f"; {_begin(verdict)}, so nothing is lost with it"
            if is_lossless
            else ", and the rest of the log does not lead to the newest version"
        )
        yield table.damage("checkpoint", f"{LOG}/{name}", message, loses=not is_lossless)
    if verdict.hint_fault:
        path = f"{LOG}/{LAST_CHECKPOINT}"
        message = f"{LAST_CHECKPOINT} {verdict.hint_fault}; it is only a hint"
        yield table.damage("pointer", path, message)


def _begin(verdict: Verdict) -> str:
    if verdict.begins == BEGINNING:
        return "readers begin at version 0"
    return f"readers begin at the checkpoint of version {verdict.begins}"


def _what_is_lost(verdict: Verdict, tasks: tuple[int, ...]) -> str:
    if verdict.readable is None:
        return "no version can be read; only a copy of the table helps"
    lost = f"nothing after version {verdict.readable} can be read"
    named = f", and with them {_tasks(tasks)}" if tasks else ""
    return f"{lost}; its repair moves the commits up to version {verdict.newest} aside{named}"


def _tasks(tasks: tuple[int, ...]) -> str:
    if len(tasks) == 1:
        return f"the task {tasks[0]}"
    if len(tasks) > _NAMED:
        return f"{len(tasks)} tasks with ids from {tasks[0]} to {tasks[-1]}"
    return f"the tasks {', '.join(map(str, tasks))}"


def _lost_tasks(table: Table, log: LogFacts, verdict: Verdict, state: Actions) -> tuple[int, ...]:
    """The tasks of the newest known version that are not in the last readable one."""
    if table.tube is None or verdict.readable is None:
        return ()
    later = Actions(dict(state.adds))
    for version in sorted(version for version in log.commits if version > verdict.readable):
        later.apply(log.commits[version])
    new = [file for path, file in later.adds.items() if path not in state.adds]
    new += _unnamed(table, log, verdict.readable)
    return tuple(sorted(_all_tasks(table, new) - _all_tasks(table, state.adds.values())))


def _unnamed(table: Table, log: LogFacts, version: int) -> Iterator[DataFile]:
    """Data files after a version that no commit names, most likely of damaged commits."""
    commit = log.files.get(commit_name(version))
    since = 0.0 if commit is None else commit.at
    named = {path for commit in log.commits.values() for path in (*commit.adds, *commit.removes)}
    named |= {path for state in log.states.values() for path in state.adds}
    for file in table.store.list(""):
        is_data = file.name.endswith(".parquet") and not file.name.startswith(f"{LOG}/")
        if is_data and file.name not in named and file.at >= since:
            yield DataFile(file.name, file.size, {})


def _all_tasks(table: Table, files: Iterable[DataFile]) -> set[int]:
    found: set[int] = set()
    for file in files:
        if not is_elsewhere(file.path):
            ids = tasks_in(table.store, file.path, file.size)
            found |= set(tasks_by_statistics(file)[0]) if ids is None else ids
    return found


# -- beside it --------------------------------------------------------------------------------------


def _leftovers(table: Table, log: LogFacts, now: float) -> Iterator[Damage]:
    for name, file in log.files.items():
        age = now - file.at
        if name.endswith(".tmp") and age > LEFT_SECONDS:
            message = (
                f"{name} was prepared {age / 3600:.0f} hours ago and never became part of the log"
            )
            yield table.damage("leftover", f"{LOG}/{name}", message)


def _of_files(table: Table, found: Examined) -> Iterator[Damage]:
    directory, sizes = table.directory, dict[str, int]()
    if directory is None:
        sizes = {file.name: file.size for file in table.store.list("")}
    for path, file in found.state.adds.items():
        if is_elsewhere(path):
            continue
        try:
            fault = (
                fault_of_size(sizes.get(path), file.size)
                if directory is None
                else fault_of_file(directory / path, file.size)
            )
        except OSError as error:
            message = f"the data file {path} cannot be read: {reason_of(error)}"
            yield table.damage("unreadable", path, message, loses=True)
            continue
        if fault:
            found.bad_files.append(file)
            tasks, held = ((), "") if table.tube is None else tasks_by_statistics(file)
            held = held or "it held rows of the queue's own"
            message = f"the data file {path} {fault}: {held}"
            message += "" if directory is None else "; its repair takes it out of the table"
            yield table.damage("file", path, message, loses=True, tasks=tasks)


def repaired(damages: Iterable[Damage], left: Iterable[Damage]) -> list[Damage]:
    """The damage before a repair; what is not found afterwards is marked as repaired."""
    still = {(damage.kind, damage.path) for damage in left}
    return [replace(found, repaired=(found.kind, found.path) not in still) for found in damages]
