"""Examines one table: reads its whole log and the data files of its newest version. Reads only."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.reports import Damage
from tubeq_spark.storage.arrow.arrays import array
from tubeq_spark.storage.check.verdict import judge
from tubeq_spark.storage.durability.files_there import (
    fits,
    is_elsewhere,
    is_of_the_system,
    stale_of,
)
from tubeq_spark.storage.log.commit_text import fault_of_length, fault_of_size
from tubeq_spark.storage.log.facts import BEGINNING, Contents, LogFacts
from tubeq_spark.storage.log.names import LAST_CHECKPOINT, LEFT_SECONDS, commit_file
from tubeq_spark.storage.tables.schema import PARTITION
from tubeq_spark.storage.tables.tube_table import OWN_SEGMENTS
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tubeq_spark.storage.check.verdict import Verdict

_STATES = array([state.value for state in TaskState], pa.string())


def fault_of_file(file: Path, size: int) -> str:
    """Why a data file is damaged, by its length and its end; empty if it is sound.

    Raises:
        OSError: The system refuses to read it.
    """
    fault = fault_of_length(file, size)
    if fault:
        return fault
    try:
        pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        if is_of_the_system(error):
            raise
        return "is no whole Parquet file"
    return ""


def tasks_in(file: Path) -> set[int] | None:
    """The ids of the tasks in a file of a tube; `None` if it cannot be read."""
    try:
        rows = pq.ParquetFile(file).read(columns=["tube", "task_id", "state"])
        is_task = pc.and_(pc.greater(rows["tube"], 0), pc.is_in(rows["state"], value_set=_STATES))
    except (pa.ArrowException, OSError, KeyError):
        return None
    return {id for id in rows.filter(is_task)["task_id"].to_pylist() if id is not None}


def tasks_by_statistics(add: Mapping[str, Any]) -> tuple[tuple[int, ...], str]:
    """The tasks in an unreadable file of a tube, as far as the log has their ids.

    Args:
        add: The action that has added the file.

    Returns:
        The ids that are known for certain, and all that is known in words.
    """
    if str(dict(add.get("partitionValues") or {}).get(PARTITION)) in map(str, OWN_SEGMENTS):
        return (), "it held no tasks"
    try:
        told = json.loads(add.get("stats") or "{}")
        count = int(told["numRecords"])
        first, last = (int(told[bound]["task_id"]) for bound in ("minValues", "maxValues"))
    except (ValueError, KeyError, TypeError):
        return (), "its tasks are not known"
    if last - first + 1 == count:
        return tuple(range(first, last + 1)), f"it held {_named(first, last, count)}"
    ends = (first, last) if count > 1 else (first,)
    return ends, f"it held {count} tasks with ids from {first} to {last}"


def _named(first: int, last: int, count: int) -> str:
    return f"the task {first}" if count == 1 else f"the tasks {first} to {last}"


#: So many ids are named in a sentence.
_NAMED = 20


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a location.

    Attributes:
        directory: Where it is.
        tube: The tube that it is of; `None`: it is one of the queue's own.
        uri: Where it is on an object store; then the directory has a copy of its log only.
        sizes: The sizes of its other files there.
    """

    directory: Path
    tube: str | None
    uri: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """The directory of its log."""
        return self.directory / "_delta_log"

    def damage(self, kind: str, path: object, message: str, **more: Any) -> Damage:
        """A damage of the table."""
        place = str(path)
        if self.uri is not None:
            place = place.replace(str(self.directory), self.uri, 1)
        return Damage(self.directory.name, self.tube, kind, place, message, **more)

    def fault_of(self, path: str, size: int) -> str:
        """Why a data file is damaged; empty if it is not, as far as can be told without reading all of it.

        Raises:
            OSError: The system refuses to read it.
        """
        if self.uri is not None:
            return fault_of_size(self.sizes.get(path), size)
        return fault_of_file(self.directory / path, size)


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
    state: Contents = field(default_factory=Contents)
    bad_files: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def examine(table: Table, now: float) -> Examined:
    """Examine a table.

    Args:
        table: The table.
        now: The moment, in seconds since the epoch.
    """
    try:
        log = LogFacts.listed(table.log)
        log.read()
    except OSError as error:
        message = f"the log cannot be read: {reason_of(error)}"
        return Examined([table.damage("unreadable", table.log, message, loses=True)])
    damages = [*_leftovers(table, log, now)]
    if log.unread:
        message = (
            f"the checkpoint {log.unread} is one that only Spark reads: the table is not checked"
        )
        damages.append(table.damage("unreadable", table.log / log.unread, message, loses=True))
        return Examined(damages, log)
    if not log.versions and not log.states:
        message = "the log has no version that can be read; only a copy of the table helps"
        damages.append(table.damage("hole", table.log, message, loses=True))
        return Examined(damages, log)
    verdict = judge(log)
    state = Contents()
    if verdict.readable is not None:
        state = log.at(verdict.begins, verdict.readable)
    found = Examined(damages, log, verdict, state)
    damages += _of_log(table, log, verdict, state)
    damages += _of_checksums(table, log)
    damages += _of_files(table, found)
    return found


# -- the log ----------------------------------------------------------------------------------------


def _of_log(table: Table, log: LogFacts, verdict: Verdict, state: Contents) -> Iterator[Damage]:
    first_lost = None if verdict.is_whole else (verdict.readable or 0) + 1
    if verdict.readable is None:
        first_lost = 0
    places = [(version, "commit", f"is {_is(fault)}") for version, fault in log.faults.items()]
    places += [(version, "hole", "is missing") for version in verdict.holes]
    for version, kind, what in sorted(places):
        said = f"the commit of version {version} {what}"
        path = Path(commit_file(table.log, version))
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
        yield table.damage("checkpoint", table.log / name, message, loses=not is_lossless)
    if verdict.hint_fault:
        path = table.log / LAST_CHECKPOINT
        message = (
            f"{LAST_CHECKPOINT} {verdict.hint_fault}; it is only a hint, and can be written anew"
        )
        yield table.damage("pointer", path, message)


def _is(fault: str) -> str:
    return fault.removeprefix("is ") if fault.startswith("is ") else f"damaged: it {fault}"


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


def _lost_tasks(table: Table, log: LogFacts, verdict: Verdict, state: Contents) -> tuple[int, ...]:
    """The tasks of the newest known version that are not in the last readable one."""
    if table.tube is None or verdict.readable is None:
        return ()
    later = Contents(dict(state.adds))
    for version in sorted(version for version in log.commits if version > verdict.readable):
        later.apply(log.commits[version])
    new = {path: add for path, add in later.adds.items() if path not in state.adds}
    new |= {path: {} for path in _unnamed(table, log, verdict.readable)}
    return tuple(sorted(_all_tasks(table, new) - _all_tasks(table, state.adds)))


def _unnamed(table: Table, log: LogFacts, version: int) -> Iterator[str]:
    """Data files after a version that no commit names, most likely of damaged commits."""
    try:
        since = Path(commit_file(table.log, version)).stat().st_mtime
    except FileNotFoundError:
        since = 0.0
    named = {path for commit in log.commits.values() for path in (*commit.adds, *commit.removes)}
    named |= {path for state in log.states.values() for path in state.adds}
    for file in table.directory.rglob("*.parquet"):
        path = file.relative_to(table.directory).as_posix()
        if table.log not in file.parents and path not in named and file.stat().st_mtime >= since:
            yield path


def _all_tasks(table: Table, files: Mapping[str, Mapping[str, Any]]) -> set[int]:
    found: set[int] = set()
    for path, add in files.items():
        if not is_elsewhere(path):
            ids = tasks_in(table.directory / path)
            found |= set(tasks_by_statistics(add)[0]) if ids is None else ids
    return found


# -- beside it --------------------------------------------------------------------------------------


def _leftovers(table: Table, log: LogFacts, now: float) -> Iterator[Damage]:
    for name in log.names:
        if name.endswith(".tmp"):
            file = table.log / name
            try:
                age = now - file.stat().st_mtime
            except FileNotFoundError:
                continue
            if age > LEFT_SECONDS:
                message = f"{name} was prepared {age / 3600:.0f} hours ago and never became part of the log"
                yield table.damage("leftover", file, message)


def _of_checksums(table: Table, log: LogFacts) -> Iterator[Damage]:
    bad = {f"{version:020}.json" for version in log.faults} | {*log.bad_checkpoints}
    for name in log.names:
        file = table.log / name
        if name in bad or f".{name}.crc" not in log.names:
            continue
        path = table.log / f".{name}.crc"
        if any(stale_of(table.log, [name])):
            message = f"the checksum of {name} cannot be that file's, so Spark does not read it"
            yield table.damage("checksum", path, message)
        elif not fits(file):
            message = (
                f"{name} does not fit its checksum, so it may not be what was written, and Spark does "
                "not read it; its repair takes it as it is"
            )
            yield table.damage("checksum", path, message, loses=True)


def _of_files(table: Table, found: Examined) -> Iterator[Damage]:
    for path, add in found.state.adds.items():
        if is_elsewhere(path):
            continue
        file = table.directory / path
        try:
            fault = table.fault_of(path, int(add["size"]))
        except OSError as error:
            message = f"the data file {path} cannot be read: {reason_of(error)}"
            yield table.damage("unreadable", file, message, loses=True)
            continue
        if fault:
            found.bad_files[path] = add
            tasks, held = ((), "") if table.tube is None else tasks_by_statistics(add)
            held = held or "it held rows of the queue's own"
            message = f"the data file {path} {fault}: {held}"
            message += "; its repair takes it out of the table" if table.uri is None else ""
            yield table.damage("file", file, message, loses=True, tasks=tasks)


def repaired(damages: Iterable[Damage], left: Iterable[Damage]) -> list[Damage]:
    """The damage before a repair; what is not found afterwards is marked as repaired."""
    still = {(damage.kind, damage.path) for damage in left}
    return [replace(found, repaired=(found.kind, found.path) not in still) for found in damages]
