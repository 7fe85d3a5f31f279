"""The files of a log, as one read of the log sees them, and the commits that came too late to be among them.

Commits are removed when the log's retention is over, by the store's clock. So a process that was paused for
long may commit a version that others had, and have removed: the store accepts this commit, and nobody will ever
read it. If the answer to a commit comes late, counted from the look that found its version free, the commit is
compared with the files of the log. The store tells when each of them was written.
"""

from __future__ import annotations

import itertools
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.log import versions
from tubeq_spark.storage.log.actions import hours_of
from tubeq_spark.storage.log.names import version_of, versions_of
from tubeq_spark.storage.tables.schema import LOG_RETENTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.store.store import Entry, Store

log = logging.getLogger(__name__)

#: An answer is late after the retention of commits, divided by this.
_LATE = 4
#: The directory of a log, below that of its table.
LOG = "_delta_log"
#: The clocks of a store's hosts differ by no more than this many seconds.
SKEW = 2.0
#: On an object store commits are kept for this many hours at least.
KEPT_HOURS = 2


class LogFiles:
    """The log of a table. Where requests are dear, a file is read once, even if others change the log meanwhile."""

    def __init__(self, store: Store, most: int = 1, first: int = 1) -> None:
        """Read nothing yet.

        Args:
            store: The files of the table.
            most: How many commits one request asks for at most. With 1 nothing is remembered.
            first: How many the first request asks for.
        """
        self._store, self._most = store, most
        self._held: dict[str, bytes | None] = {}
        #: The tags of files that were read or listed.
        self.tags: dict[str, str | None] = {}
        self._listed: dict[str, Entry] = {}
        #: The last version of a commit in a listing; `None`: nothing was listed.
        self._end: int | None = None
        #: How many commits the next request asks for, at least.
        self._asked = 0
        self._first = min(first, most)

    def __str__(self) -> str:
        return f"{self._store}/{LOG}"

    def read(self, name: str) -> bytes:
        """The contents of a file."""
        if self._most == 1:
            return self._content(name)
        if name not in self._held:
            self._fetch(name)
        found = self._held[name]
        if found is None:
            raise FileNotFoundError(f"{self}/{name}")
        return found

    def _fetch(self, name: str) -> None:
        names = [name]
        if name.endswith(".json"):
            first, count = int(name[:20]), max(self._asked, self._first)
            # The first two requests ask for one commit each: mostly there are no more.
            self._asked = min(2 * count, self._most) if self._asked or count > 1 else 1
            self._first = 1
            if self._end is not None:
                count = min(self._end - first + 1, self._most)
            # A commit that is not in the listing did not exist.
            names = [versions.commit_name(first + n) for n in range(count)]
            self._held[name] = None
        self._fetch_all(names)

    def fetch(self, some: Iterable[int]) -> None:
        """Read the commits of some versions at the same time, where requests are dear."""
        if self._most > 1:
            self._fetch_all([versions.commit_name(version) for version in some])

    def _fetch_all(self, names: Sequence[str]) -> None:
        self._held.update(zip(names, self._store.together(self._get, names), strict=True))

    def _get(self, name: str) -> bytes | None:
        try:
            return self._content(name)
        except FileNotFoundError:
            return None

    def _content(self, name: str) -> bytes:
        listed = self._listed.get(name)
        size = 0 if listed is None else listed.size
        content, self.tags[name] = self._store.get(f"{LOG}/{name}", size=size)
        return content

    def together(self, call: Callable[[Any], object], items: Iterable[Any]) -> None:
        """Call a function that reads a file for several items, at the same time where requests are dear."""
        self._store.together(call, items)

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        if self._most > 1 and name in self._listed:
            return True
        with suppress(FileNotFoundError):
            if name.endswith(".json"):
                # The caller reads a commit next, so it is read at once.
                self.read(name)
            else:
                self._store.get(f"{LOG}/{name}", span=(0, 1))
            return True
        return False

    def goes_on_after(self, version: int) -> bool:
        """Whether a listing has commits after a version, which others removed before they were read."""
        return self._end is not None and self._end > version

    def is_in_order(self) -> bool:
        """Whether the listed commits were written one after the other, so that none of them came too late."""
        times = [self._listed[versions.commit_name(v)].at for v in versions_of(self._listed)]
        return all(first <= then + SKEW for first, then in itertools.pairwise(times))

    def begin(self, version: int) -> int:
        """The first of the listed commits that lead to a version one after the other, without those that came too late."""
        listed = self._listed
        while version and (before := listed.get(versions.commit_name(version - 1))) is not None:
            after = listed.get(versions.commit_name(version))
            if after is not None and before.at > after.at + SKEW:
                break
            version -= 1
        return version

    def list_from(self, after: str = "") -> dict[str, Entry]:
        """List the files whose names come after a name."""
        self._listed = {file.name: file for file in self._store.list(LOG, after)}
        self._end = max(versions_of(self._listed), default=-1)
        self.tags.update((name, file.tag) for name, file in self._listed.items())
        return self._listed

    def names(self, *, whole: bool) -> tuple[Sequence[str], bool]:
        """The names of the log's files, and whether these are all. A missing log has none.

        Args:
            whole: Whether all names are wanted. If not, where requests are dear, those before the checkpoint with which
                readers begin are missing.
        """
        whole = whole or self._most == 1
        if whole:
            # Everything is read again, because others write and remove files.
            self._held.clear()
        last = None if whole else versions.pointer(self)
        # The files of that checkpoint, and those after it.
        after = "" if last is None else f"{last['version']:020}"
        return list(self.list_from(after)), not after

    def parquet(self, name: str) -> pa.NativeFile:
        """A Parquet file, opened to read."""
        return pa.BufferReader(self.read(name))

    def put(self, name: str, content: bytes) -> None:
        """Write or replace a file, as a whole or not at all."""
        self._store.put(f"{LOG}/{name}", content)


def may_be_late(snapshot: Snapshot, seconds: float) -> bool:
    """Whether others may have committed, and removed, the version after `snapshot` by now.

    Args:
        snapshot: A version.
        seconds: The time since this version was last known to be the newest.
    """
    hours = hours_of(snapshot.shape.properties, LOG_RETENTION) or KEPT_HOURS
    return seconds > max(hours, KEPT_HOURS) * 3600 / _LATE


def are_there(store: Store, files: Sequence[DataFile]) -> bool:
    """Whether data files still exist: others may have removed them, because no version names them yet."""

    def is_there(file: DataFile) -> bool:
        try:
            store.get(file.path, span=(0, 1))
        except FileNotFoundError:
            return False
        return True

    return all(store.together(is_there, files))


def removed_if_late(store: Store, version: int, tag: str | None, operation_id: int) -> bool:
    """Whether a commit came too late; if so, remove it.

    Args:
        store: The files of its table.
        version: The version that the commit has made.
        tag: The tag of the commit before it, if known.
        operation_id: The operation id of the commit.

    Raises:
        CommitUnknownError: Nobody can find out whether it came too late.
    """
    unknown = f"it is not known whether version {version} came too late: "
    try:
        after = versions.commit_name(version - 2) if version > 1 else ""
        is_late = _is_late(version, tag, LogFiles(store).list_from(after))
        if is_late:
            log.warning("%s: version %d came too late, and is removed", store, version)
            store.delete([f"{LOG}/{versions.commit_name(version)}"])
    except OSError as error:
        raise CommitUnknownError(unknown + reason_of(error), operation_id) from error
    if is_late is None:
        raise CommitUnknownError(f"{unknown}the log was removed since", operation_id)
    return is_late


def _is_late(version: int, tag: str | None, listed: Mapping[str, Entry]) -> bool | None:
    """Whether others had committed and removed a version before this commit of it; `None` if nobody can tell.

    A later version that is older than the commit proves this.

    Args:
        version: The version.
        tag: The tag of the version before it, if known.
        listed: The files of the log from the version before it on.
    """
    before, mine, after = (listed.get(versions.commit_name(version + n)) for n in (-1, 0, 1))
    if mine is None:
        return None
    later = [file.at for file in listed.values() if (version_of(file.name) or 0) > version]
    first = min(later, default=None)
    if first is None:
        return False
    if after is None:
        # Most stores tell times in whole seconds. If the commit is not late, a removal of old commits was cut short.
        return True if first <= mine.at else None
    if before is not None and tag in (None, before.tag):
        # Only a removal that was cut short leaves the versions before and after this one, but not this one.
        return first < mine.at - SKEW
    return None if abs(first - mine.at) <= SKEW else first < mine.at
