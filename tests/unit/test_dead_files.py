"""Removal of dead files gives way to rivals, wrong clocks and catalogs."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delta.exceptions import MetadataChangedException

from tubeq_spark import QueueConfig
from tubeq_spark.admin.dead_files import SYSTEM, DeadFiles, Tables
from tubeq_spark.clock import SystemClock, to_us
from tubeq_spark.model.membership import Survey
from tubeq_spark.storage.locks.committer import Committer
from tubeq_spark.storage.locks.table_lock import TableLock, table_lock_of
from tubeq_spark.storage.spark.tables import SparkTables
from tubeq_spark.storage.tables.schema import LOG_CLEANUP

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tubeq_spark.runtime.context import QueueContext

HOUR = 3_600_000_000


class FakeQueue:
    """What a removal asks of a queue object: its notes, its statements."""

    def __init__(
        self,
        *,
        fails: Exception | None = None,
        cleanup: str = "false",
        ahead_us: int = 0,
        **details: dict[str, Any],
    ) -> None:
        self.fails, self.cleanup = fails, cleanup
        #: How far this host's clock is ahead of the storage's.
        self.ahead_us = ahead_us
        self.ran: list[str] = []
        #: What Delta tells of tables, by their names, and those that were vacuumed.
        self.details, self.vacuumed = details, list[str]()
        #: What was noted: whether it was tried only.
        self.noted: list[bool] = []
        self.config = QueueConfig(vacuum_hours=1, retention_hours=1)
        self.engine = self.own = self
        self.tables = SparkTables(cast("Any", self))
        self.tables.last_commit = self.last_commit  # type: ignore[method-assign]
        self.sessions = SimpleNamespace(
            note_vacuum=lambda key, now_us, *, tried=False: self.noted.append(tried),
        )

    def hurried(self, table: str) -> nullcontext[None]:
        """All tables are alike here."""
        return nullcontext()

    def committing_jvm(self) -> Committer:
        return Committer()

    def sql_rows(self, sql: str) -> list[dict[str, Any]]:
        if sql.startswith("SHOW TBLPROPERTIES"):
            return [{"key": LOG_CLEANUP, "value": self.cleanup}]
        found = {"tableFeatures": None, "properties": {}}
        return [found | self.details.get(sql.rsplit(" ", 1)[1], {})]

    def last_commit(self, table: str) -> tuple[int, int]:
        """Every commit was made just now."""
        return 1, to_us(SystemClock().now()) - self.ahead_us

    def sql(self, sql: str) -> None:
        self.ran.append(sql.split(" ", maxsplit=1)[0])
        if sql.startswith("VACUUM"):
            self.vacuumed.append(sql.rsplit(" ", 1)[1])
        if self.fails is not None:
            raise self.fails


def surveyed(tried: Mapping[int, int] | None = None) -> Survey:
    """What a sweep knows of earlier removals: the moments at which they were only tried."""
    return Survey({}, 0, {}, tried or {})


def removed(queue: FakeQueue, table_lock: TableLock) -> list[str]:
    """The statements of a removal an hour after the table was made."""
    tables = Tables(1, [("t", table_lock)], 0)
    DeadFiles(cast("QueueContext", queue), surveyed(), HOUR).remove(tables)
    return queue.ran


def test_remove_dead_files_where_no_lock_keeps_writers_off_makes_them_begin_anew_first(
    tmp_path: Path,
) -> None:
    assert removed(FakeQueue(), TableLock(None)) == ["ALTER", "VACUUM"]
    assert removed(FakeQueue(), TableLock(tmp_path / "t.lock")) == ["VACUUM"]


@pytest.mark.parametrize("error", [MetadataChangedException("m"), ConnectionResetError()])
def test_remove_dead_files_when_a_rival_does_it_or_the_change_before_it_fails_removes_nothing(
    error: Exception,
) -> None:
    queue = FakeQueue(fails=error)
    with pytest.raises(type(error)) if isinstance(error, OSError) else nullcontext():
        removed(queue, TableLock(None))
    # A rival says itself what it does.
    assert (queue.ran, queue.noted) == (["ALTER"], [True])


@pytest.mark.parametrize("hours", [-3, 0, 3])
def test_remove_dead_files_when_the_clock_of_its_host_is_hours_ahead_removes_nothing(
    hours: int, tmp_path: Path
) -> None:
    removes = [] if hours > 0 else ["VACUUM"]
    # VACUUM would take the files of running writes for old ones, and they are in no version yet.
    assert removed(FakeQueue(ahead_us=hours * HOUR), TableLock(None)) == ["ALTER", *removes]
    # Where a lock keeps writers off, no write is running.
    assert removed(FakeQueue(ahead_us=hours * HOUR), TableLock(tmp_path / "t.lock")) == ["VACUUM"]


def test_remove_dead_files_when_it_was_tried_waits_for_a_part_of_the_interval() -> None:
    queue = FakeQueue()
    tables = Tables(1, [("t", TableLock(None))], 0)

    def is_done(now_us: int) -> bool:
        survey = surveyed({1: 2 * HOUR})
        return DeadFiles(cast("QueueContext", queue), survey, now_us).remove(tables)

    assert not is_done(2 * HOUR + HOUR // 24 - 1)
    assert (queue.ran, queue.noted) == ([], [])
    assert is_done(2 * HOUR + HOUR // 24)
    assert (queue.ran, queue.noted) == (["ALTER", "VACUUM"], [True, False])


def test_remove_dead_files_when_delta_would_shorten_the_log_of_local_files_switches_that_off(
    tmp_path: Path,
) -> None:
    table_lock = TableLock(tmp_path / "t.lock")
    assert removed(FakeQueue(cleanup="true"), table_lock) == ["ALTER", "VACUUM"]


@pytest.mark.parametrize(
    "detail",
    [
        {"tableFeatures": ["appendOnly", "catalogManaged", "inCommitTimestamp"]},
        {"tableFeatures": ["catalogOwned-preview"]},
        {"properties": {"delta.feature.catalogManaged": "supported"}},
    ],
)
def test_dead_files_of_a_catalog_managed_table_are_left_to_the_catalog(
    detail: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    queue: Any = FakeQueue(managed=detail, own={}, last={})
    lock = table_lock_of("catalog", "t", None)
    tables = Tables(SYSTEM, [("own", lock), ("managed", lock), ("last", lock)], 0)

    with caplog.at_level(logging.INFO, "tubeq_spark"):
        assert DeadFiles(queue, surveyed(), HOUR).remove(tables)
        survey = Survey({}, 0, {SYSTEM: HOUR}, {})
        assert not DeadFiles(queue, survey, HOUR + 1).remove(tables)

    assert queue.vacuumed == ["own", "last"]
    assert [(record.levelname, "managed" in record.message) for record in caplog.records] == [
        ("INFO", True)
    ]
