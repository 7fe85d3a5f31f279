"""Finds the newest version in the log of a table, and remembers it.

A look for new commits asks for the commit after the newest known version. Commits that were read or written are
remembered, and not read again.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.engine import Rivals
from tubeq_spark.storage.log import reading
from tubeq_spark.storage.log.actions import OURS, Actions, hours_of, info_in
from tubeq_spark.storage.log.log_files import (
    KEPT_HOURS,
    LOG,
    LogFiles,
    commit_name,
    moved_on,
)
from tubeq_spark.storage.store.store import Patience, Store, is_fresh
from tubeq_spark.storage.tables.schema import LOG_RETENTION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tubeq_spark.clock import Clock
    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.log.tidying import Tidying

#: An answer is late after the retention of commits, divided by this.
_LATE = 4
#: The last this many commits and looks show whether others commit.
_LAST = 4


#: On an object store one look asks for this many commits at the same time at most.
_AHEAD = 16
#: There a version counts as being in the log without a check for this many seconds.
_SURE = 60.0
#: For this many seconds a removal there takes the known version for the newest one, and if others commit, too, for
#: fewer: a rival's commit then costs a failed PUT.
_LATELY, _BESIDE_OTHERS = 10.0, 0.25


@dataclass(frozen=True, slots=True)
class Base:
    """A version on which a change may be decided.

    Attributes:
        snapshot: The version.
        tag: The tag of its commit; `None` if it was not read.
        at: It includes all commits before this moment, by the monotonic clock.
        sure: When it was last known to be in the log, by `LogReader._seconds_now`.
    """

    snapshot: Snapshot
    tag: str | None
    at: float
    sure: float


class LogReader:
    """Reads the log of one table, and remembers its newest version. Thread-safe."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tidying: Tidying,
        patience: Patience,
        *,
        is_far: bool = False,
    ) -> None:
        """Use the log of a table, which may not exist.

        Args:
            store: The files of the table.
            clock: Real time.
            tidying: Keeps the log short.
            patience: For how long a commit is repeated after errors that may pass.
            is_far: Whether each look costs a request, so that one serves all reads of an operation. Then no lock keeps
                other writers away, and a commit may arrive after its request was given up.
        """
        self.store, self.tidying, self._clock = store, tidying, clock
        self._offset = clock.now().timestamp() - clock.monotonic()
        self._patience, self._ahead = patience, _AHEAD if is_far else 1
        #: Whether each look costs a request, and answers can be lost.
        self.is_far = is_far
        self._known: Base | None = None
        #: The last commit of another program than a native queue; empty if none was read.
        self.stranger = ""
        self._lock = threading.Lock()
        #: Held by the thread that commits.
        self._writing = threading.Lock()
        #: For each of the last commits, the commits of others that came first.
        self._met: deque[Rivals] = deque(maxlen=_LAST)
        #: How many new commits each of the last looks has found.
        self._news: deque[int] = deque(maxlen=_LAST)

    @property
    def known(self) -> Snapshot | None:
        """The version that was last read or written; `None` if there is none yet."""
        known = self._known
        return None if known is None else known.snapshot

    @property
    def rivals(self) -> Rivals:
        """The commits of others that came before the last commits of this process; none where a lock keeps others away."""
        if not self.is_far:
            return Rivals()
        return Rivals(sum(met.commits for met in self._met), sum(met.takes for met in self._met))

    def newest(self) -> Snapshot:
        """The newest version. That is one request if nothing is new, and none if this operation has already looked.

        Raises:
            TableNotFoundError: The table does not exist.
            UnknownLogError: The table has features that this package does not know.
            DamagedFileError: A file of the log is damaged or missing.
            OSError: The storage fails.
        """
        return self._fresh().snapshot

    def _fresh(self) -> Base:
        known = self._known
        if known is not None and self.is_far and is_fresh(known.snapshot, known.at):
            return known
        return self._look()

    def _lately(self) -> Base | None:
        """The known version if it was the newest a moment ago, on a store; local files are always looked at."""
        known = self._known
        if known is None or not self.is_far:
            return None
        is_late = self._clock.monotonic() - known.at > (
            _BESIDE_OTHERS if self.rivals.commits else _LATELY
        )
        return None if is_late or not self._is_sure(known) else known

    def _is_sure(self, known: Base) -> bool:
        """Whether it was seen in the log so recently that the table cannot be another one."""
        return self._seconds_now() - known.sure < _SURE

    def _seconds_now(self) -> float:
        """A monotonic time in seconds that goes on while the machine sleeps."""
        clock = self._clock
        return max(clock.monotonic(), clock.now().timestamp() - self._offset)

    def _look(self) -> Base:
        known = self._known
        if known is None:
            return self._look_anew(known)
        return self._move_on(known) or self._look_anew(known)

    def _move_on(self, known: Base) -> Base | None:
        """Read the commits after the known version; `None` if the log must be read anew."""
        at, now = self._clock.monotonic(), self._seconds_now()
        files = LogFiles(self.store, self._ahead, max(self._news, default=0) + 1)
        is_sure = self.is_far and self._is_sure(known)
        if self.is_far and not is_sure and not self._is_listed(known, files):
            return None
        found = moved_on(files, known.snapshot, self._saw)
        # Others shorten a log at its beginning. So if the known version is there, read after the last one, then no
        # version after it was missing because it had been removed.
        if not self.is_far and not self._is_in_log(known):
            return None
        # A process that was paused meanwhile may have asked for a commit that others have made and removed.
        is_old = self._may_be_late(found, now)
        if is_old or files.goes_on_after(found.version) or not files.is_in_order():
            return None
        self._news.append(found.version - known.snapshot.version)
        if found is known.snapshot:
            return self._remember(Base(found, known.tag, at, known.sure if is_sure else now))
        return self._remember(Base(found, self._tag(files, found), at, now))

    def _look_anew(self, former: Base | None) -> Base:
        at, now = self._clock.monotonic(), self._seconds_now()
        before = None if former is None else former.snapshot
        self.tidying.forget()
        files = LogFiles(self.store, self._ahead)
        found = reading.newest(files, self._saw)
        return self._remember(Base(found, self._tag(files, found), at, now), before)

    def _saw(self, version: int, actions: Actions) -> None:
        """Remember what a commit of others has removed, and who is no native writer."""
        self.tidying.note_removes(version, actions)
        if actions.by not in (None, OURS):
            self.stranger = f"version {version} was committed by {actions.by}"

    def _is_in_log(self, known: Base) -> bool:
        """Whether a known version is still in the log, and not one of another table at this place."""
        name = commit_name(known.snapshot.version)
        try:
            return self.store.get(f"{LOG}/{name}", span=(0, 1))[1] == known.tag
        except FileNotFoundError:
            return False

    @staticmethod
    def _is_listed(known: Base, files: LogFiles) -> bool:
        """The same, by a listing of the log from there on."""
        version = known.snapshot.version
        name = commit_name(version)
        listed = files.list_from(commit_name(version - 1) if version else "")
        return name in listed and known.tag in (None, listed[name].tag)

    @staticmethod
    def _tag(files: LogFiles, found: Snapshot) -> str | None:
        return files.tags.get(commit_name(found.version))

    def _remember(self, found: Base, before: Snapshot | None = None) -> Base:
        """Know a version, unless a newer one is known. It replaces `before`, which is no longer in the log."""
        with self._lock:
            known = self._known
            if (
                known is None
                or known.snapshot is before
                or found.snapshot.version > known.snapshot.version
            ):
                self._known = found
            elif found.snapshot.version == known.snapshot.version:
                self._known = replace(
                    known, at=max(found.at, known.at), sure=max(found.sure, known.sure)
                )
            return self._known or found

    def forget(self) -> None:
        """Read the whole log again the next time."""
        with self._lock:
            self._known = None

    def history(self, limit: int) -> Iterator[Mapping[str, Any]]:
        """Look for new commits, and yield the newest commit infos with their versions, the newest first.

        Raises as `newest`.
        """
        newest, ahead = self._look().snapshot.version, self._ahead
        files, begin = LogFiles(self.store, ahead), max(newest - limit, -1)
        if self.is_far:
            files.list_from(commit_name(begin) if begin >= 0 else "")
            begin = max(begin, files.begin(newest) - 1)
        for version in range(newest, begin, -1):
            if (newest - version) % ahead == 0:
                first = max(version - ahead, begin) + 1
                files.fetch([commit_name(each) for each in range(first, version + 1)])
            try:
                info = info_in(files.read(commit_name(version)))
            except FileNotFoundError:
                return
            except ValueError:
                # The commit is damaged, or not ours.
                info = {}
            yield {**info, "version": version}

    def _may_be_late(self, snapshot: Snapshot, sure: float) -> bool:
        """Whether others may have committed and removed the version after one that was the newest at a moment."""
        if not self.is_far:
            return False
        hours = hours_of(snapshot.shape.properties, LOG_RETENTION) or KEPT_HOURS
        return self._seconds_now() - sure > max(hours, KEPT_HOURS) * 3600 / _LATE

    def _look_again(self) -> None:
        """Look again before the next commit."""
        with self._lock:
            if self._known is not None:
                self._known = replace(self._known, at=-math.inf)
