"""Writes checkpoints of a table on an object store, and removes its old commits."""

from __future__ import annotations

import itertools
import logging
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.durability.commit_file import DamagedFileError
from tubeq_spark.storage.durability.log_names import LAST_CHECKPOINT, version_of
from tubeq_spark.storage.native.delta_log import checkpoints, versions
from tubeq_spark.storage.native.delta_log.actions import UnknownLogError, hours_of
from tubeq_spark.storage.native.delta_log.dead_files import dead_files
from tubeq_spark.storage.native.delta_log.log_files import EVERY, is_checkpoint_due
from tubeq_spark.storage.native.store_log import KEPT_HOURS, LOG, StoreLog
from tubeq_spark.storage.tables.schema import LOG_RETENTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.native.background import Background
    from tubeq_spark.storage.native.delta_log.actions import Actions
    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot
    from tubeq_spark.storage.store.store import Store

log = logging.getLogger(__name__)

#: How many files are listed, and removed, by one request.
_PAGE = 1_000
#: The removed files of so many commits are remembered for the next checkpoint.
_REMOVES = 1_000

_CLOCK = SystemClock()


class StoreTidying:
    """Writes the checkpoints of one table, and removes commits after their retention. Thread-safe."""

    def __init__(self, files: Store, uri: str, background: Background) -> None:
        """Use the files of the table at a URI."""
        self._files, self._uri, self._background = files, uri, background
        self._lock = threading.Lock()
        #: The files that commits since the last checkpoint have removed, by version.
        self._removes: dict[int, Sequence[Mapping[str, Any]]] = {}

    def note_removes(self, version: int, actions: Actions) -> None:
        """Remember the files that a version has removed, for the next checkpoint."""
        with self._lock:
            self._removes[version] = actions.removes
            while len(self._removes) > _REMOVES:
                del self._removes[min(self._removes)]

    def forget(self) -> None:
        """Forget the removed files, because the table may be another one."""
        with self._lock:
            self._removes.clear()

    def after(self, snapshot: Snapshot) -> None:
        """After a version of this process write a checkpoint and remove old commits, if it is time, in the background."""
        if snapshot.version % EVERY == 0:
            self._background.run(lambda: self._tidy(snapshot))

    def _tidy(self, snapshot: Snapshot) -> None:
        if is_checkpoint_due(StoreLog(self._files, self._uri), snapshot.version):
            self.checkpoint(snapshot)
            self._clean(snapshot)

    def vacuum(self, snapshot: Snapshot) -> Sequence[str]:
        """Remove the old part of the log, and return the files that a version and those before it do not need."""
        self._write_checkpoint(snapshot)
        self._clean(snapshot)
        return dead_files(StoreLog(self._files, self._uri), snapshot, self._files.list(""))

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        files, now_ms = StoreLog(self._files, self._uri), to_us(_CLOCK.now()) // 1_000
        checkpoints.write(files, snapshot, now_ms, dict(self._removes))

    def checkpoint(self, snapshot: Snapshot) -> None:
        """Write the checkpoint of a version. If that fails, readers go on from the last one."""
        try:
            self._write_checkpoint(snapshot)
        except (OSError, UnknownLogError, DamagedFileError, pa.ArrowException, ValueError):
            log.warning("%s has no new checkpoint", self._uri, exc_info=True)

    def _clean(self, snapshot: Snapshot) -> None:
        """Remove commits that are older than the retention and before the checkpoint, the oldest first."""
        hours = hours_of(snapshot.shape.properties, LOG_RETENTION)
        name = versions.checkpoint_name(snapshot.version)
        mine = self._files.list(LOG, f"{snapshot.version:020}", _PAGE)
        # The time by the store's clock, because the checkpoint was written just now.
        at = next((file.at for file in mine if file.name == name), None)
        if hours is None or at is None:
            return
        before = at - max(hours, KEPT_HOURS) * 3600
        while True:
            listed = self._files.list(LOG, most=_PAGE)
            old = list(
                itertools.takewhile(
                    lambda file: (
                        file.at < before
                        and (version_of(file.name) or 0) < snapshot.version
                        and file.name != LAST_CHECKPOINT
                    ),
                    listed,
                )
            )
            if old:
                self._files.delete([f"{LOG}/{file.name}" for file in old])
            if len(old) < _PAGE:
                return
