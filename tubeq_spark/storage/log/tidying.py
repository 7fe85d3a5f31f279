"""Keeps a table small: writes checkpoints, removes the commits before them, and finds files that nobody needs.

A growing log makes readers slower that list it. The cost of a checkpoint grows with the number of files of the table,
and of removed files that it lists. If there are many, checkpoints are written less often.

The removed files are before a checkpoint that stays, so each later version can be read as before.

The files that no kept version needs are found as Delta's VACUUM finds them: removed ones, and those that a stopped
writer has left, which no version has ever named.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tubeq_spark.clock import Clock, to_us
from tubeq_spark.storage.durability.synced_log import LOCKS, SyncedLog
from tubeq_spark.storage.locks.committer import without_readers
from tubeq_spark.storage.log import checkpoints
from tubeq_spark.storage.log.actions import FEED, hours_of
from tubeq_spark.storage.log.log_files import (
    KEPT_HOURS,
    LEFT_SECONDS,
    LOG,
    LogFiles,
    checkpoint_name,
    checkpoints_in,
    commit_name,
    pointer,
    version_of,
)
from tubeq_spark.storage.log.reading import UnreadableCheckpointError, checkpoint
from tubeq_spark.storage.tables.schema import CHANGE_FEED, LOG_RETENTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.log.actions import Actions
    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.store.store import Entry, Store

#: Versions between two checks whether the log needs a checkpoint.
EVERY = 50
#: The next checkpoint comes after at least one commit for this many actions of the last one.
_ACTIONS = 200
#: But after no more commits than about this.
_SELDOM = 1_000
#: How many files are removed by one request.
_AT_ONCE = 1_000
#: The removed files of this many commits are remembered for the next checkpoint.
_REMOVES = 1_000
#: Names that begin like these are no data files, except the files of a change feed.
_HIDDEN = ("_", ".")


class Tidying:
    """Writes the checkpoints of one table, and removes commits after their retention. Thread-safe."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        retention: Retention,
        later: Callable[[Callable[[], object]], object],
    ) -> None:
        """Tidy the log of a table.

        Args:
            store: Its files.
            clock: Real time.
            retention: How long its commits stay.
            later: Runs work that must not fail a commit: at once, or in the background.
        """
        self._store, self._clock, self._retention, self.later = store, clock, retention, later
        self._lock = threading.Lock()
        #: The files that commits since the last checkpoint have removed, by version.
        self._removes: dict[int, Sequence[Mapping[str, Any]]] = {}

    def note_removes(self, version: int, actions: Actions) -> None:
        """Remember the files that a version has removed, for the next checkpoint."""
        with self._lock:
            self._removes[version] = list(actions.removes.values())
            while len(self._removes) > _REMOVES:
                del self._removes[min(self._removes)]

    def forget(self) -> None:
        """Forget the removed files, because the table may be another one."""
        with self._lock:
            self._removes.clear()

    def after(self, snapshot: Snapshot) -> None:
        """After a version of this process write a checkpoint and remove old commits, if it is time."""
        if snapshot.version and snapshot.version % EVERY == 0:
            self.later(lambda: self._tidy(snapshot))

    def _tidy(self, snapshot: Snapshot) -> None:
        if self._is_checkpoint_due(snapshot.version):
            self.write_checkpoint(snapshot)
        # This lists the whole log, so it is done once for about as many versions as stay.
        if snapshot.version // EVERY % max(1, self._retention.versions // EVERY) == 0:
            self.clean(snapshot)

    def _is_checkpoint_due(self, version: int) -> bool:
        files = LogFiles(self._store)
        last = pointer(files)
        if last is None or version - last["version"] >= min(last["size"] // _ACTIONS, _SELDOM):
            return True
        is_plain = not (last.get("parts") or last.get("v2Checkpoint"))
        return is_plain and not files.exists(checkpoint_name(last["version"]))

    def dead_files(self, snapshot: Snapshot, *, purges: bool = False) -> Sequence[str]:
        """Remove the old part of the log, and return the files that neither a version nor those before it need.

        Args:
            snapshot: The newest version. It gets a checkpoint, whose time is the storage's clock.
            purges: Whether to return also files that only older versions need. No version has named the files of
                running writes yet, so these stay.
        """
        self.write_checkpoint(snapshot)
        self.clean(snapshot)
        listed = self._store.list("")
        checkpoint = f"{LOG}/{checkpoint_name(snapshot.version)}"
        now = next((entry.at for entry in listed if entry.name == checkpoint), None)
        hours = hours_of(
            snapshot.shape.properties, checkpoints.DELETED_RETENTION, checkpoints.DELTAS_HOURS
        )
        if now is None or hours is None:
            return []
        before = now - hours * 3600
        gone = checkpoints.removed(LogFiles(self._store), snapshot.version)
        removed = gone - snapshot.files.keys()
        needed = snapshot.files.keys() | (set() if purges else removed)
        return [
            entry.name
            for entry in listed
            if (entry.at < before or (purges and entry.name in removed))
            and entry.name not in needed
            and (entry.name.startswith(FEED) or not entry.name.startswith(_HIDDEN))
        ]

    def delete_removed(self, until: int) -> None:
        """Remove the data files that versions up to one have removed, as far as they are remembered."""
        with self._lock:
            old = sorted(version for version in self._removes if version <= until)
            gone = [action["path"] for version in old for action in self._removes.pop(version)]
        self.delete(gone)

    def write_checkpoint(self, snapshot: Snapshot) -> None:
        """Write the checkpoint of a version. If that fails, readers go on from the last one. Raises as `checkpoints.write`."""
        now_ms = to_us(self._clock.now()) // 1_000
        checkpoints.write(LogFiles(self._store), snapshot, now_ms, dict(self._removes))

    def clean(self, snapshot: Snapshot) -> None:
        """Remove the log before a checkpoint, except commits within their retention.

        Args:
            snapshot: A version; the storage's time of its commit counts as the current time.
        """
        at = self._written_at(snapshot.version)
        with self._retention.seconds(snapshot.shape.properties) as seconds:
            if at is not None and seconds is not None:
                self.shorten(snapshot.version, at - seconds)

    def shorten(self, newest: int, before: float) -> int:
        """Remove the log before a checkpoint, except commits since a time, the oldest first.

        Args:
            newest: The newest version.
            before: The time, in seconds since 1970, by the storage's clock.

        Returns:
            The number of removed files.
        """
        gone = self._before_checkpoint(newest, before)
        if gone:
            self._retention.secure()
        self.delete([f"{LOG}/{name}" for name in gone])
        return len(gone)

    def delete(self, names: Sequence[str]) -> None:
        """Remove files, some by each request."""
        for first in range(0, len(names), _AT_ONCE):
            self._store.delete(names[first : first + _AT_ONCE])

    def _written_at(self, version: int) -> float | None:
        """When a commit was written, by the storage's clock; `None` if it is gone."""
        name = commit_name(version)
        listed = self._store.list(LOG, f"{version:020}", self._retention.page)
        return next((file.at for file in listed if file.name == name), None)

    def _before_checkpoint(self, newest: int, before: float) -> list[str]:
        """The files before the last whole checkpoint that was written before a time."""
        last = pointer(LogFiles(self._store))
        # Readers may begin at the checkpoint that `_last_checkpoint` names.
        first = -1 if last is None else int(last["version"])
        most = min(first, newest - self._retention.versions)
        files = list(self._listed(most))
        there = checkpoints_in(file.name for file in files)
        plain = {name for name, found in there.items() if found.is_plain and found.version <= most}
        start = self._start([file for file in files if file.name in plain and file.at <= before])
        # A checkpoint with further files is removed together with these, by the engine that wrote it.
        others = {name for name, found in there.items() if not found.is_parquet}
        since = before - LEFT_SECONDS
        left = [file.name for file in files if file.name.endswith(".tmp") and file.at < since]
        return left + [
            file.name for file in files if file.name not in others and _goes(file.name, start)
        ]

    def _listed(self, most: int) -> Iterator[Entry]:
        """The files of the log; where a page of them costs a request, at least those up to a version."""
        after, page = "", self._retention.page
        while True:
            files = self._store.list(LOG, after, page)
            yield from files
            if page is None or len(files) < page or (version_of(files[-1].name) or 0) > most:
                return
            after = files[-1].name

    def _start(self, checkpoints_of: Sequence[Entry]) -> int:
        """The version of the last whole one of some checkpoints; -1 if there is none."""
        for file in reversed(checkpoints_of):
            version = int(file.name[:20])
            with suppress(UnreadableCheckpointError):
                # It is read, because it may be damaged between its ends.
                checkpoint(LogFiles(self._store), version)
                return version
        return -1


def _goes(name: str, start: int) -> bool:
    """Whether a file of the log goes if readers begin at the checkpoint of version `start`."""
    version = version_of(name)
    return version is not None and version < start


class Retention:
    """How long the commits of a table stay in its log: not at all, if a subclass says no more.

    Attributes:
        versions: This many of the newest versions stay in any case.
        page: How many files are listed at once; `None` for all.
    """

    versions = 0
    page: int | None = None

    @contextmanager
    def seconds(self, _properties: Mapping[str, str | None]) -> Iterator[float | None]:
        """For how many seconds commits stay while a block runs; `None` if none may be removed."""
        yield 0.0

    def secure(self) -> None:
        """Put the rest of the log on the disk, before a part of it goes. A store is durable by itself."""


class StoreRetention(Retention):
    """The retention on an object store: that of the table, and at least `KEPT_HOURS`."""

    page = 1_000

    @contextmanager
    def seconds(self, properties: Mapping[str, str | None]) -> Iterator[float | None]:
        """For how many seconds commits stay."""
        hours = hours_of(properties, LOG_RETENTION)
        yield None if hours is None else max(hours, KEPT_HOURS) * 3600.0


class LocalRetention(Retention):
    """The retention on local files.

    Nobody needs old commits there. Writers hold the table's lock from their read to their commit. Readers without Spark
    keep a version in memory, and need the log while they open a table or move to a newer version; if they were paused
    for longer than commits stay, they try again. Spark needs the log while it plans a statement, which may take long:
    if a process of this host reads by Spark, more is kept. If a tube has a longer retention than the default, or a
    change feed, the log is kept for all of that time.
    """

    #: Verbs search this many versions after lost answers.
    versions = 200
    #: Commits of the last this many seconds stay: a reader needs less time to list a log and to read the listed files.
    SECONDS = 5.0
    #: The same where Spark reads.
    SPARK_SECONDS = 600.0
    #: The hours of the default retention.
    _DEFAULT_HOURS = 2

    def __init__(self, synced: SyncedLog) -> None:
        """Keep a log."""
        self._synced, self._locks = synced, synced.table.parent / LOCKS

    @contextmanager
    def seconds(self, properties: Mapping[str, str | None]) -> Iterator[float | None]:
        """For how many seconds commits stay while a block runs. No process begins to read by Spark meanwhile."""
        hours = hours_of(properties, LOG_RETENTION)
        with without_readers(self._locks) as unread:
            if hours is None:
                yield None
            elif properties.get(CHANGE_FEED) == "true" or hours > self._DEFAULT_HOURS:
                yield hours * 3600.0
            else:
                yield self.SECONDS if unread else self.SPARK_SECONDS

    def secure(self) -> None:
        """Sync all commits to the disk.

        Raises:
            OSError: They may not be on the disk.
        """
        self._synced.flush()
