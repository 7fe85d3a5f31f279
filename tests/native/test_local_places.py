"""Directories at which no queue is opened, since nothing would keep its writers apart."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tubeq_spark import Queue, StoreError
from tubeq_spark.storage import location
from tubeq_spark.storage.location import Location, refuse_mounts


def opened(place: object) -> None:
    with Queue(None, str(place), engine="native") as queue:
        queue.create_tube("work", if_not_exists=True)


@pytest.mark.parametrize(
    "place", ["/Volumes/main/default/files/queue", "file:/dbfs/queue", "file:///Volumes/a/b/c"]
)
def test_opening_when_databricks_shows_a_store_as_a_directory_is_refused(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with pytest.raises(StoreError, match=r"abfss://…, s3://…, gs://…"):
        opened(place)


@pytest.mark.parametrize("place", ["/local_disk0/q", "s3://dbfs/q", "/tmp/Volumes/q", "main.dbfs"])
def test_place_on_databricks_when_it_is_another_one_is_not_refused(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    refuse_mounts(Location.parse(place))


@pytest.fixture
def unlinked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without hard links."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(location, "_linked", set())
    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("unlinked")
def test_opening_when_there_are_no_hard_links_says_what_to_do_and_leaves_no_table(
    tmp_path: Path,
) -> None:
    with pytest.raises(StoreError, match=r"without hard links, .* engine='spark'"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["_tubeq_locks"]
    assert not [*tmp_path.glob("_tubeq_locks/_links*")]


def test_opening_when_it_was_opened_before_looks_for_hard_links_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []
    link = os.link

    def told(source: Path, target: Path) -> None:
        asked.append(Path(source).name)
        link(source, target)

    monkeypatch.setattr(os, "link", told)
    for _ in range(3):
        opened(tmp_path)
    assert len([name for name in asked if name.startswith("_links")]) == 1
    assert not [*tmp_path.glob("_tubeq_locks/_links*")]
