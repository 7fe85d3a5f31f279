"""Proves that our reader and `deltalake` read the same rows of each version that a log still has."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.parquet import ParquetFile

from tests.native.logs import log_files_of
from tubeq_spark.storage.log import reading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.line import Line, Version
    from tests.simulation.sim_store import SimStore


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
            _compare(Path(place), line, line.versions[number])
        return len(kept)


def _compare(place: Path, line: Line, version: Version) -> None:
    number, right = version.number, set(version.files)
    ours = reading.newest(log_files_of(place / "_delta_log"), number)
    line.require(set(ours.files) == right, f"our reader reads version {number} wrongly")
    theirs = DeltaTable(str(place), version=number)
    paths = {uri.split(f"{place.name}/", 1)[1] for uri in theirs.file_uris()}
    line.require(paths == right, f"deltalake reads version {number} wrongly")
    if all((place / path).exists() for path in right):
        rows = theirs.to_pyarrow_table()["task_id"].to_pylist()
        ids = [i for path in right for i in _ids((place / path).read_bytes())]
        line.require(sorted(rows) == sorted(ids), f"deltalake reads other rows of {number}")


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
