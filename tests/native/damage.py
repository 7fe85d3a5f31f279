"""Plants damages in a tube's table, so that tests find them: `PLANTED`.

The tube has the tasks 0 to 9, each put by itself: version n + 1 has added the task n. There is a checkpoint of
version 8.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from tests.native.support import opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_OLD = 2 * 3600


@dataclass(frozen=True, slots=True)
class Planted:
    """A damage.

    Attributes:
        name: Its name.
        damage: Plants it in a table.
        kind: As a check calls it.
        said: What it says of it.
        lost: The tasks that are lost with it, after a repair that loses something.
    """

    name: str
    damage: Callable[[Path], None]
    kind: str
    said: str
    lost: tuple[int, ...] = ()


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


def _cut(which: Callable[[Path, int], Path], version: int, to: int = 0) -> Callable[[Path], None]:
    """Cut a file of a version."""

    def damage(table: Path) -> None:
        file = which(table, version)
        file.write_bytes(file.read_bytes()[:to])

    return damage


def _cut_at_a_line(table: Path) -> None:
    text = commit(table, 9).read_bytes()
    commit(table, 9).write_bytes(text[: text.index(b"\n") + 1])


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


PLANTED = tuple(
    Planted(*each)
    for each in (
        ("empty commit before the end", _cut(commit, 9), "commit", "version 9 is empty", (8, 9)),
        ("empty commit at the end", _cut(commit, 10), "commit", "version 10 is empty", (9,)),
        ("empty commit before a checkpoint", _cut(commit, 3), "commit", "version 3 is empty"),
        ("empty commit at a checkpoint", _cut(commit, 8), "commit", "version 8 is empty"),
        ("commit cut in a line", _cut(commit, 9, -40), "commit", "9 is cut short", (8, 9)),
        ("commit cut at a line", _cut_at_a_line, "commit", "version 9 is cut short", (8, 9)),
        ("newest checkpoint empty", _cut(checkpoint, 8), "checkpoint", "is empty"),
        ("newest checkpoint cut", _cut(checkpoint, 8, 900), "checkpoint", "is no whole Parquet"),
        ("hint without checkpoint", _misled('{"version":77,"size":5}'), "pointer", "version 77"),
        ("hint that is garbage", _misled("\0" * 20), "pointer", "cannot be read"),
        ("hint older than the log", _old_hint, "pointer", "version 3"),
        ("hole", lambda table: commit(table, 9).unlink(), "hole", "version 9 is missing", (8, 9)),
        ("data file missing", lambda t: data_file(t, 3).unlink(), "file", "is missing", (2,)),
        ("data file empty", _cut(data_file, 3), "file", "is empty", (2,)),
        ("data file cut short", _cut(data_file, 3, 500), "file", "500 bytes instead of", (2,)),
        ("file left over", _leave, "leftover", "never became part of the log"),
    )
)
