"""A full disk refuses puts and keeps no part of them, while takes and acks still drain the queue."""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.power.disk import require_root
from tubeq_spark import Queue, StoreError
from tubeq_spark.storage.log import data_files
from tubeq_spark.storage.native import plain_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tubeq_spark import Tube


class Usage(NamedTuple):
    """As `shutil.disk_usage` tells it."""

    total: int
    used: int
    free: int


FULL = Usage(10**12, 10**12 - 10**6, 10**6)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A small file system in memory."""
    require_root()
    place = tmp_path / "memory"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def files(table: Path) -> set[Path]:
    return {path for path in table.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["fifottl", "limfifottl", "utubettl"])
def test_put_when_the_disk_is_nearly_full_is_refused_and_all_else_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    options = {"capacity": 10} if kind == "limfifottl" else {}
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue.create_tube("work", kind, **options)
        of_one = {"utube": "a"} if kind == "utubettl" else {}
        for number in range(5):
            tube.put(number, **of_one)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: FULL)
        before = files(tmp_path / "work")

        with pytest.raises(
            StoreError, match=r"only 976 KB are free: the last \d+ KB are for takes"
        ):
            tube.put("more", **of_one)

        assert files(tmp_path / "work") == before
        assert queue.statistics("work")["tasks"]["total"] == 5
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue["work"]
        first = tube.take(0)
        tube.release(first.task_id)
        second = tube.take(0)
        tube.bury(second.task_id)
        assert tube.kick() == 1
        for _ in range(5):
            task = tube.take(0)
            tube.ack(task.task_id)
        assert queue.statistics("work")["tasks"]["done"] == 5


def test_put_when_the_disk_is_full_in_the_middle_of_it_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue.create_tube("work")
        tube.put("a")
        before = files(tmp_path / "work")
        with monkeypatch.context() as patch:
            patch.setattr(data_files, "_statistics", full)
            with pytest.raises(StoreError, match="No space left"):
                tube.put("b")
        assert files(tmp_path / "work") == before


def fill(tube: Tube) -> None:
    payloads = random.Random(1)
    for _ in range(1_000):
        tube.put(payloads.randbytes(20_000).hex())


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.processes
def test_queue_on_a_disk_that_puts_have_filled_is_drained_by_takes_and_acks(memory: Path) -> None:
    with Queue(None, str(memory / "queue"), engine="native") as queue:
        tube = queue.create_tube("work")
        with pytest.raises(StoreError, match="are free: the last"):
            fill(tube)
        assert queue.statistics("work")["tasks"]["ready"] > 50
        held = tube.take_many(3)
        assert len(tube.ack_many([task.task_id for task in held])) == 3
        task = tube.take(0)
        tube.ack(task.task_id)
        assert queue.statistics("work")["tasks"]["done"] == 4
    # It could give everything back, and write its last row.
    assert shutil.disk_usage(memory).free > 0
    assert plain_table._PART * shutil.disk_usage(memory).free < 2 * shutil.disk_usage(memory).total


def test_tube_without_tasks_when_the_disk_is_nearly_full_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue.create_tube("work")
        monkeypatch.setattr(shutil, "disk_usage", lambda _: FULL)

        tube.drop()

        assert queue.tubes() == []
