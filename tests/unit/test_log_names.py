"""What the name of a file in a log says."""

from __future__ import annotations

import pytest

from tubeq_spark.storage.log.names import (
    LogFile,
    checkpoints_in,
    log_file,
    names_after,
    version_of,
    versions_of,
)

V = f"{12:020}"
UUID = "a1b2c3d4-0000-1111-2222-333344445555"
NAMES = {
    f"{V}.json": LogFile(12, "json"),
    f"{V}.crc": LogFile(12, "crc"),
    f"{V}.{20:020}.compacted.json": LogFile(12, "compacted"),
    f"{V}.checkpoint.parquet": LogFile(12, "checkpoint", "", is_parquet=True),
    f"{V}.checkpoint.{1:010}.{3:010}.parquet": LogFile(
        12, "checkpoint", f"{1:010}.{3:010}", is_parquet=True
    ),
    f"{V}.checkpoint.{UUID}.parquet": LogFile(12, "checkpoint", UUID, is_parquet=True),
    f"{V}.checkpoint.{UUID}.json": LogFile(12, "checkpoint", UUID),
}
OTHERS = (f".{V}.json.crc", f".{V}.json.x.tmp", f"{V}.json.tmp", "12.json", "_last_checkpoint", V)


@pytest.mark.parametrize("name", NAMES)
def test_name_of_a_file_of_a_version_tells_its_kind(name: str) -> None:
    assert log_file(name) == NAMES[name]
    assert version_of(name) == version_of(f".{name}.crc") == 12


@pytest.mark.parametrize("name", OTHERS)
def test_name_when_it_is_no_versions_tells_nothing(name: str) -> None:
    assert log_file(name) is None


def test_checkpoint_of_one_parquet_file_is_plain() -> None:
    found = checkpoints_in([*NAMES, *OTHERS])

    assert [file.is_plain for file in found.values()] == [True, False, False, False]


def test_versions_are_those_of_commits_alone() -> None:
    assert versions_of([*NAMES, *OTHERS]) == [12]
    assert list(names_after(NAMES, 11)) == list(NAMES)
    assert list(names_after(NAMES, 12)) == [f"{V}.{20:020}.compacted.json"]
