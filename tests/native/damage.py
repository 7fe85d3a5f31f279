"""Damages of a tube's table, to be planted and found: `PLANTED`.

The tube has the tasks 0 to 9, each put by itself: version n + 1 has added the task n. There is a checkpoint of
version 8.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from tubeq_spark import Queue, QueueConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "CONFIG",
    "PLANTED",
    "Planted",
    "checkpoint",
    "commit",
    "data_file",
    "made_sound",
    "opened",
]

CONFIG = QueueConfig(durability="none")

_OLD = 2 * 3600


@dataclass(frozen=True, slots=True)
class Planted:
    """A damage.

    Attributes:
        name: Its name.
        damage: Plants it in a table.
        kind: As a check calls it.
        said: What it says of it.
        loses: Whether its repair loses something.
        lost: The tasks that are lost with it.
    """

    name: str
    damage: Callable[[Path], None]
    kind: str
    said: str
    loses: bool = False
    lost: tuple[int, ...] = ()


def opened(place: Path) -> Queue:
    """A queue that may be damaged."""
    return Queue(None, str(place), engine="native", config=CONFIG)


def made_sound(place: Path) -> Path:
    """Make a queue with that tube, `work`, and two versions after its checkpoint."""
    with opened(place) as queue:
        tube = queue.create_tube("work")
        for number in range(8):
            tube.put(number)
        DeltaTable(str(place / "work")).create_checkpoint()
        tube.put(8)
        tube.put(9)
    return place


def commit(table: Path, version: int) -> Path:
    """The commit file of a version."""
    return table / "_delta_log" / f"{version:020}.json"


def checkpoint(table: Path, version: int = 8) -> Path:
    """The checkpoint of a version."""
    return table / "_delta_log" / f"{version:020}.checkpoint.parquet"


def data_file(table: Path, version: int) -> Path:
    """The file that a version has added."""
    lines = commit(table, version).read_text().splitlines()
    (path,) = (json.loads(line)["add"]["path"] for line in lines if line.startswith('{"add"'))
    return table / path


def _emptied(which: Callable[[Path], Path]) -> Callable[[Path], None]:
    def damage(table: Path) -> None:
        which(table).write_bytes(b"")

    return damage


def _cut(file: Path, to: int) -> None:
    file.write_bytes(file.read_bytes()[:to])


def _cut_in_a_line(table: Path) -> None:
    _cut(commit(table, 9), -40)


def _cut_at_a_line(table: Path) -> None:
    _cut(commit(table, 9), commit(table, 9).read_bytes().index(b"\n") + 1)


def _leave(table: Path) -> None:
    left = table / "_delta_log" / "_commit_0.json.tmp"
    left.write_text("{}")
    at = left.stat().st_mtime - _OLD
    os.utime(left, (at, at))


def _misled(text: str) -> Callable[[Path], None]:
    def damage(table: Path) -> None:
        (table / "_delta_log" / "_last_checkpoint").write_text(text)

    return damage


def _old_hint(table: Path) -> None:
    """As a slow session of Spark leaves it, after others have shortened the log."""
    _misled('{"version":3,"size":5}')(table)
    for version in range(5):
        commit(table, version).unlink()


PLANTED = (
    Planted(
        "commit of 0 bytes before the end",
        _emptied(lambda table: commit(table, 9)),
        "commit",
        "version 9 is empty",
        loses=True,
        lost=(8, 9),
    ),
    Planted(
        "commit of 0 bytes at the end",
        _emptied(lambda table: commit(table, 10)),
        "commit",
        "version 10 is empty",
        loses=True,
        lost=(9,),
    ),
    Planted(
        "commit of 0 bytes before a checkpoint",
        _emptied(lambda table: commit(table, 3)),
        "commit",
        "version 3 is empty",
    ),
    Planted(
        "commit of 0 bytes at a checkpoint",
        _emptied(lambda table: commit(table, 8)),
        "commit",
        "version 8 is empty",
    ),
    Planted(
        "commit cut in a line",
        _cut_in_a_line,
        "commit",
        "version 9 is cut short",
        loses=True,
        lost=(8, 9),
    ),
    Planted(
        "commit cut at the end of a line",
        _cut_at_a_line,
        "commit",
        "version 9 is cut short",
        loses=True,
        lost=(8, 9),
    ),
    Planted(
        "newest checkpoint empty",
        _emptied(checkpoint),
        "checkpoint",
        "is empty",
    ),
    Planted(
        "newest checkpoint cut",
        lambda table: _cut(checkpoint(table), 900),
        "checkpoint",
        "is no whole Parquet file",
    ),
    Planted(
        "hint of a checkpoint that is not there",
        _misled('{"version":77,"size":5}'),
        "pointer",
        "version 77",
    ),
    Planted("hint that is garbage", _misled("\0" * 20), "pointer", "cannot be read"),
    Planted("hint older than the log", _old_hint, "pointer", "version 3"),
    Planted(
        "hole",
        lambda table: commit(table, 9).unlink(),
        "hole",
        "version 9 is missing",
        loses=True,
        lost=(8, 9),
    ),
    Planted(
        "data file missing",
        lambda table: data_file(table, 3).unlink(),
        "file",
        "is missing",
        loses=True,
        lost=(2,),
    ),
    Planted(
        "data file empty",
        _emptied(lambda table: data_file(table, 3)),
        "file",
        "is empty",
        loses=True,
        lost=(2,),
    ),
    Planted(
        "data file cut short",
        lambda table: _cut(data_file(table, 3), 500),
        "file",
        "500 bytes instead of",
        loses=True,
        lost=(2,),
    ),
    Planted("file left over", _leave, "leftover", "never became part of the log"),
)
