"""Acts at a table as other programs do, by the rules of Delta alone, and compares what `deltalake` reads.

They know the truth and make no mistakes, so what they break was broken before.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.parquet import ParquetFile, read_table

from tests.simulation.programs import HOURS, SCHEMA
from tubeq_spark.storage.log import data_files, reading
from tubeq_spark.storage.log.log_files import LogFiles, names_after
from tubeq_spark.storage.log.snapshot import Shape
from tubeq_spark.storage.store.store import DictStore, Files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.simulation.line import Line, Version
    from tests.simulation.sim_store import SimStore


_OTHER = "other"


class OtherProgram:
    """A program that is not ours."""

    def __init__(self, world: SimStore, line: Line, directory: str, ids: list[int]) -> None:
        """Use the table at a directory."""
        self._world, self._line, self._directory, self._ids = world, line, directory, ids

    def append(self) -> None:
        """Append a row."""
        self._ids.append(len(self._ids) + 1)
        segment = self._world.rng.randint(1, 4)
        columns = {"segment": [segment], "task_id": [self._ids[-1]], "data": ["other"]}
        rows = pa.table(columns, schema=SCHEMA)
        found = self._actions(0)
        shape = Shape.parse(found["metaData"], found["protocol"])
        [(file, _, content)] = data_files.encoded(shape, rows, self._now_ms)
        self._world.create(_OTHER, f"{self._directory}/{file.path}", content)
        self._commit("WRITE", [file.added()])

    def remove(self) -> None:
        """Remove a file."""
        files = self._line.last.files
        if files:
            path = self._world.rng.choice(sorted(files))
            removal = {"path": path, "deletionTimestamp": self._now_ms, "dataChange": True}
            self._commit("DELETE", [{"remove": removal}])

    def alter(self) -> None:
        """Set a property."""
        metadata = self._actions(0)["metaData"]
        changed = {**self._line.last.properties, "tubeq.altered": str(self._world.now)}
        self._commit("SET TBLPROPERTIES", [{"metaData": {**metadata, "configuration": changed}}])

    def vacuum(self) -> None:
        """Remove data files that no version needs which is younger than the retention."""
        before = self._world.now - HOURS * 3600
        kept = {*self._line.last.files, *self._removed_since(before)}
        start = f"{self._directory}/"
        dead = [
            name
            for name, file in self._world.files.items()
            if name.startswith(f"{start}segment=")
            and name[len(start) :] not in kept
            and file.at < before
        ]
        paths = [name[len(start) :] for name in dead]
        early = [path for path in paths if self._line.removed.get(path, 0) >= before * 1000]
        self._line.require(not early, f"checkpoints let VACUUM remove too early: {early}")
        self._world.remove(_OTHER, dead)
        if dead:
            self._world.note(_OTHER, f"VACUUM removes {len(dead)} files")

    def lose_pointer(self) -> None:
        """Lose the hint where readers begin: a program may end before it writes it."""
        self._world.remove(_OTHER, [f"{self._directory}/_delta_log/_last_checkpoint"])

    def _removed_since(self, before: float) -> set[str]:
        """The files that the log, beginning at its newest checkpoint, has removed since a time."""
        start = f"{self._directory}/_delta_log/"
        names = sorted(name for name in self._world.files if name.startswith(start))
        checkpoints = [name for name in names if name.endswith(".checkpoint.parquet")]
        first = int(checkpoints[-1][len(start) :][:20]) if checkpoints else -1
        found = []
        if checkpoints:
            content = self._world.files[checkpoints[-1]].content
            found += read_table(pa.BufferReader(content))["remove"].drop_null().to_pylist()
        for number in range(first + 1, self._line.last.number + 1):
            file = self._world.files[f"{start}{number:020}.json"]
            actions = [json.loads(line) for line in file.content.splitlines()]
            found += [action["remove"] for action in actions if "remove" in action]
        return {gone["path"] for gone in found if gone["deletionTimestamp"] >= before * 1000}

    @property
    def _now_ms(self) -> int:
        return int(self._world.now * 1000)

    def _commit(self, operation: str, actions: list[dict[str, Any]]) -> None:
        said = {"timestamp": self._now_ms, "operation": operation, "engineInfo": "other"}
        info = {"commitInfo": said}
        content = "".join(f"{json.dumps(action)}\n" for action in (info, *actions)).encode()
        number = self._line.last.number + 1
        self._world.create(_OTHER, f"{self._directory}/_delta_log/{number:020}.json", content)
        self._world.note(_OTHER, f"version {number}: {operation}")

    def _actions(self, number: int) -> dict[str, Any]:
        """The actions of the first commit, by their kinds."""
        name = f"{self._directory}/_delta_log/{number:020}.json"
        # A commit that came too late may have the name, too.
        content = next(e.content for e in self._world.journal if e.name == name and e.content)
        return {
            k: action for line in content.splitlines() for k, action in json.loads(line).items()
        }


# -- other readers ---------------------------------------------------------------------------------


def compare(world: SimStore, line: Line, directory: str) -> int:
    """Compare the readers at each version that is kept; returns the number of versions."""
    files = {
        name[len(directory) + 1 :]: file.content
        for name, file in world.files.items()
        if name.startswith(f"{directory}/")
    }
    with tempfile.TemporaryDirectory(prefix="tubeq-simulation-") as place:
        for name, content in files.items():
            path = Path(place, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        kept = _kept(files, line)
        for number in kept:
            _compare(files, Path(place), line, line.versions[number])
        return len(kept)


def _compare(files: Mapping[str, bytes], place: Path, line: Line, version: Version) -> None:
    number, right = version.number, set(version.files)
    ours = reading.newest(_log_until(files, number))
    line.require(set(ours.files) == right, f"our reader reads version {number} wrongly")
    theirs = DeltaTable(str(place), version=number)
    paths = {uri.split(f"{place.name}/", 1)[1] for uri in theirs.file_uris()}
    line.require(paths == right, f"deltalake reads version {number} wrongly")
    if all((place / path).exists() for path in right):
        rows = theirs.to_pyarrow_table()["task_id"].to_pylist()
        ids = [i for path in right for i in _ids((place / path).read_bytes())]
        line.require(sorted(rows) == sorted(ids), f"deltalake reads other rows of {number}")


def _log_until(files: Mapping[str, bytes], number: int) -> LogFiles:
    """The log as it was when a version was the newest one."""
    store = DictStore(Files(lambda: 0.0), "")
    names = [name.removeprefix("_delta_log/") for name in files if name.startswith("_delta_log/")]
    for name in {*names}.difference(names_after(names, number)):
        store.put(f"_delta_log/{name}", files[f"_delta_log/{name}"])
    return LogFiles(store)


def _ids(content: bytes) -> Iterable[int]:
    with ParquetFile(pa.BufferReader(content)) as file:
        found: list[int] = file.read(["task_id"], use_threads=False)["task_id"].to_pylist()
    return found


def _kept(files: Iterable[str], line: Line) -> list[int]:
    """The versions that can be read: those after a checkpoint, or after the first commit."""
    names = sorted(name.removeprefix("_delta_log/") for name in files)
    commits = {int(n[:20]) for n in names if n.endswith(".json") and n[:20].isdigit()}
    starts = {int(n[:20]) for n in names if n.endswith(".checkpoint.parquet")} | (
        {0} & commits - {*line.late}
    )
    found: list[int] = []
    for number in range(min(starts), line.last.number + 1):
        is_next = bool(found) and found[-1] == number - 1 and number in commits
        if number in starts or (is_next and number not in line.late):
            found.append(number)
    return found
