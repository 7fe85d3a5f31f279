"""VACUUM by our own log removes exactly the files that a full VACUUM of the library removes."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.native.support import Place
from tests.thorough import thorough
from tubeq_spark.storage.location import path_of

#: Removed files are kept for two hours.
OLD, YOUNG = 3 * 3600, 3600


def directory_of(place: Place) -> Path:
    return Path(path_of(place.tube) or "")


def files(place: Place) -> set[str]:
    """The files of the table, without its log."""
    root = directory_of(place)
    found = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {path for path in found if not path.startswith("_delta_log/")}


def make_older(place: Place, seconds: int) -> None:
    """Let all data files be written, and all removed ones be removed, earlier."""
    root = directory_of(place)
    for name in files(place):
        at = (root / name).stat().st_mtime - seconds
        os.utime(root / name, (at, at))
    for commit in (root / "_delta_log").glob("*.json"):
        text = commit.read_text(encoding="utf-8")
        earlier = re.sub(
            r'(?<="deletionTimestamp":)\d+', lambda at: str(int(at[0]) - 1000 * seconds), text
        )
        commit.write_text(earlier, encoding="utf-8")
    place.engine._handles.table(place.tube).forget()


def leave(place: Place, name: str) -> None:
    """Write a file that no commit names."""
    path = directory_of(place) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"left")


def removed(place: Place) -> set[str]:
    """The files that our VACUUM removes, which the library would remove, too."""
    wanted = set(DeltaTable(str(directory_of(place))).vacuum(dry_run=True, full=True))
    before, stored = files(place), place.stored()
    place.engine.tables.vacuum(place.tube)
    assert before - files(place) == wanted
    assert files(place) <= before
    assert DeltaTable(str(directory_of(place))).vacuum(dry_run=True, full=True) == []
    assert Place(directory_of(place).parent).stored() == stored
    return wanted


def test_vacuum_keeps_an_old_file_that_was_removed_a_moment_ago(place: Place) -> None:
    place.put(5, [50])
    make_older(place, OLD)
    place.run(place.statements.delete_segments([5]))
    assert removed(place) == set()
    # Its commit is before the last checkpoint now.
    assert removed(place) == set()
    make_older(place, OLD)
    # The checkpoint still tells the time of its removal.
    assert removed(place) == set()


def test_vacuum_never_removes_hidden_files(place: Place) -> None:
    for name in ("_notes/part-1.parquet", "_part-1.parquet", ".part-1.parquet.crc"):
        leave(place, name)
    make_older(place, 100 * OLD)
    assert removed(place) == set()


def test_vacuum_knows_paths_that_another_writer_has_encoded(place: Place) -> None:
    leave(place, "segment=6/a b.parquet")
    make_older(place, OLD)
    remove = {
        "path": "segment=6/a%20b.parquet",
        "dataChange": True,
        "partitionValues": {"segment": "6"},
        "size": 4,
    }
    version = place.version(place.tube) + 1
    log, now = directory_of(place) / "_delta_log", 4_000_000_000_000
    text = json.dumps({"remove": remove | {"deletionTimestamp": now}})
    (log / f"{version:020}.json").write_text(f"{text}\n", encoding="utf-8")
    place.engine.tables.vacuum(place.tube)
    assert files(place) == {"segment=6/a b.parquet"}


@pytest.mark.parametrize("seed", [*range(4), *thorough(*range(4, 10))])
def test_vacuum_removes_what_the_library_would_remove(place: Place, seed: int) -> None:
    rng, segments, wanted = random.Random(seed), list[int](), 0
    for number in range(1, 40):
        match rng.randrange(6):
            case 0 | 1:
                place.put(number, [number])
                segments.append(number)
            case 2 if segments:
                place.run(place.statements.delete_segments([segments.pop()]))
            case 3:
                leave(place, f"segment={rng.choice([number, 1])}/part-{number}.parquet")
            case 4:
                make_older(place, rng.choice([YOUNG, OLD]))
            case _:
                wanted += len(removed(place))
    make_older(place, 2 * OLD)
    assert wanted + len(removed(place)) > 0


def test_vacuum_when_the_retention_cannot_be_read_removes_nothing(place: Place) -> None:
    leave(place, "segment=6/part-1.parquet")
    make_older(place, OLD)
    name = "delta.deletedFileRetentionDuration"
    assert place.engine.tables.set_property(place.tube, name, "a while")
    place.engine.tables.vacuum(place.tube)
    assert files(place) == {"segment=6/part-1.parquet"}
