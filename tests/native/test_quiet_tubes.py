"""A sweep and metrics open no data file of a tube that has not changed since they last looked."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tubeq_spark import PutItem, Queue, QueueConfig
from tubeq_spark.clock import US
from tubeq_spark.storage.locks.table_lock import TableLock
from tubeq_spark.storage.native.tables import NativeTables
from tubeq_spark.storage.tables.counts import depth, waiting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.testing import ManualClock

TUBES = 20


class Counted:
    """Counts what is opened and listed of tubes, and how often their locks are taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = self.listed = self.locked = 0
        opened, listed, locked = pa.OSFile, os.listdir, TableLock.writing

        def open_file(path: str, *args: str) -> pa.OSFile:
            self.opened += "segment=" in path
            return opened(path, *args)

        def list_names(path: str) -> list[str]:
            self.listed += "_delta_log" in str(path)
            return listed(path)

        def lock(*args: object) -> object:
            self.locked += 1
            return locked(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(pa, "OSFile", open_file)
        monkeypatch.setattr(os, "listdir", list_names)
        monkeypatch.setattr(TableLock, "writing", lock)

    def clear(self) -> None:
        self.opened = self.listed = self.locked = 0

    def seen(self) -> tuple[int, int, int]:
        return self.opened, self.listed, self.locked


@pytest.fixture
def queue(tmp_path: Path, clock: ManualClock) -> Iterator[Queue]:
    """A queue of tubes, each with three tasks, which this process has not read yet."""
    config = QueueConfig(durability="none")
    with Queue(None, str(tmp_path), engine="native", clock=clock, config=config) as first:
        for number in range(TUBES):
            tube = first.create_tube(f"t{number}", "fifottl", ttr=600, ttl=3600)
            tube.put_many([1, 2, 3])
            assert tube.take(0) is not None
        with Queue(None, str(tmp_path), engine="native", clock=clock, config=config) as queue:
            yield queue


def test_sweep_of_quiet_tubes_takes_no_lock_and_opens_no_data_file(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    queue.sweep()
    assert counted.opened == 0
    assert counted.locked <= 3
    counted.clear()
    queue.sweep()
    assert counted.seen() == (0, 0, 0)
    before = queue.metrics()
    assert queue.metrics().tubes == before.tubes
    assert (counted.opened, counted.locked) == (0, 0)


def test_look_when_the_log_tells_enough_finds_what_the_rows_tell(
    queue: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = queue["t1"]
    tube.put_many([4, 5], delay=100)
    tube.put(6, ttl=50)
    tube.bury(tube.put(7).task_id)
    tube.take_many(2)
    queue["t2"].put_many([PutItem(8), PutItem(9, delay=100)])
    for seconds in (0, 60, 100, 3600):
        clock.advance(seconds)
        with Queue(None, queue.location, engine="native", clock=clock) as other:
            by_log = [_looked(other[f"t{number}"]._ctx) for number in range(4)]
        with monkeypatch.context() as patch:
            patch.setattr(NativeTables, "told_files", lambda *_: None)
            with Queue(None, queue.location, engine="native", clock=clock) as other:
                by_rows = [_looked(other[f"t{number}"]._ctx) for number in range(4)]
        assert by_log == by_rows


def _looked(ctx: TubeContext) -> tuple[object, object]:
    """What sweeps and metrics find."""
    now_us = ctx.queue.now_us()
    of = depth(ctx.queue.engine, ctx.table, now_us, now_us + 60 * US)
    found = waiting(ctx.queue.engine, ctx.table, now_us, 5)
    by_owner = replace(found, owners=tuple(sorted(found.owners)))
    return replace(of, states=dict(of.states)), by_owner
