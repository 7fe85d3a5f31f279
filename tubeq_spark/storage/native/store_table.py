"""A plain table on an object store: its log is read and written here, with as few requests as possible.

A look for new commits asks for the commit after the newest known version. Commits and data files that were read or
written are remembered, and not read again. There is no lock: a commit is a conditional PUT of the next version.
A commit that lost to a rival reads the rival's commit. If the rival has not changed the partitions that were read,
the same data file is committed as the version after the rival's.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import CommitUnknownError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.times import US, to_us
from tubeq_spark.storage.native import late_commits
from tubeq_spark.storage.native.delta_log import data_files, reading, versions
from tubeq_spark.storage.native.delta_log.actions import UnknownLogError, encoded
from tubeq_spark.storage.native.delta_log.bad_files import BadFiles
from tubeq_spark.storage.native.rival_commit import RivalCommit
from tubeq_spark.storage.native.sending import sent_once
from tubeq_spark.storage.native.store_log import AHEAD, LOG, StoreLog
from tubeq_spark.storage.native.store_tidying import StoreTidying
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.store.patience import has_made, is_fresh

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.native.background import Background
    from tubeq_spark.storage.native.delta_log.actions import DataFile
    from tubeq_spark.storage.native.delta_log.plain_table import Commit
    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot
    from tubeq_spark.storage.store.object_store import ObjectStore

log = logging.getLogger(__name__)

#: After so many seconds a look also checks that the known version still exists: the table may be another one.
_SURE = 60.0
#: For so many seconds, alone or beside rivals, a removal takes the known version for the newest one. If a rival has
#: committed meanwhile, this costs a failed PUT, which a look would have avoided.
_LATELY, _LATELY_BESIDE_OTHERS = 10.0, 0.25
#: After so many commits of rivals a change is decided again, even if none of them matters to it.
_RIVALS = 50
#: How often a log is read again if others have shortened it meanwhile.
_TRIES = 20
#: The last so many commits and looks show whether others commit.
_LAST = 4

_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class _Known:
    """The newest known version.

    Attributes:
        snapshot: The version.
        tag: The tag of its commit; `None` if it was not read.
        at: It includes all commits before this moment, by the monotonic clock.
        sure: When it was last known to be in the log, by `late_commits.seconds_now`.
    """

    snapshot: Snapshot
    tag: str | None
    at: float
    sure: float

    def is_sure(self, now: float) -> bool:
        """Whether it was seen in the log so recently that the table cannot be another one."""
        return now - self.sure <= _SURE


class _NoBadFiles(BadFiles):
    """No bad files: on an object store the read of a damaged file fails."""

    def look(self, files: Iterable[DataFile], *, at_content: bool = True) -> None:
        """Look at no file."""


class StoreTable:
    """A table on an object store whose log this process reads and writes. Thread-safe."""

    def __init__(self, uri: str, files: ObjectStore, background: Background) -> None:
        """Use the table at a URI, which may not exist."""
        self._uri, self._files = uri, files
        self._background = background
        self._tidying = StoreTidying(files, uri, background)
        self.bad_files: BadFiles = _NoBadFiles(Path(uri))
        self._known: _Known | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        #: The version on which the statement of the committing thread was decided.
        self._base: _Known | None = None
        #: For each of the last commits, the number of commits of others that came first.
        self._met: deque[int] = deque(maxlen=_LAST)
        #: How many new commits each of the last looks has found.
        self._news: deque[int] = deque(maxlen=_LAST)

    # -- reading -------------------------------------------------------------------------------

    @property
    def known(self) -> Snapshot | None:
        """The version that was last read or written; `None` if there is none yet."""
        known = self._known
        return None if known is None else known.snapshot

    def recent(self, seconds: float) -> Snapshot | None:
        """The known version if it was the newest within the last so many seconds."""
        known = self._recently(seconds)
        return None if known is None else known.snapshot

    def _recently(self, seconds: float) -> _Known | None:
        known = self._known
        is_recent = known is not None and _CLOCK.monotonic() - known.at <= seconds
        return known if is_recent else None

    def newest(self) -> Snapshot:
        """The newest version. That is one request if nothing is new, and none if this operation has already looked."""
        return self._fresh().snapshot

    def _fresh(self) -> _Known:
        known = self._known
        is_new = known is None or not is_fresh(known.snapshot, known.at)
        return self._look() if known is None or is_new else known

    def _lately(self) -> _Known | None:
        """The known version if it was the newest a moment ago."""
        known = self._recently(_LATELY_BESIDE_OTHERS if self.rivals else _LATELY)
        is_sure = known is not None and known.is_sure(late_commits.seconds_now())
        return known if is_sure else None

    def _look(self) -> _Known:
        files = StoreLog(self._files, self._uri, ahead=max(self._news, default=0) + 1)
        at, now = _CLOCK.monotonic(), late_commits.seconds_now()
        known = self._known
        is_sure = known is not None and known.is_sure(now)
        if known is None or not (is_sure or self._is_there(known, files)):
            return self._look_anew(known, at, now)
        found = reading.moved_on(files, known.snapshot, None, self._tidying.note_removes)
        # A process that was paused meanwhile may have asked for a commit that others have made and removed.
        is_old = late_commits.may_be_late(found, now)
        if is_old or files.goes_on_after(found.version) or not files.is_in_order():
            return self._look_anew(known, at, now)
        self._news.append(found.version - known.snapshot.version)
        if found is known.snapshot:
            return self._remember(_Known(found, known.tag, at, known.sure if is_sure else now))
        return self._remember(_Known(found, self._tag(files, found), at, now))

    def _look_anew(self, former: _Known | None, at: float, now: float) -> _Known:
        before = None if former is None else former.snapshot
        self._tidying.forget()
        for _ in range(_TRIES):
            files = StoreLog(self._files, self._uri)
            found = reading.newest(files, None, None, self._tidying.note_removes)
            if not files.goes_on_after(found.version):
                return self._remember(_Known(found, self._tag(files, found), at, now), before)
        msg = f"the log changes too fast: {self._uri}"
        raise UnknownLogError(msg)

    @staticmethod
    def _is_there(known: _Known, files: StoreLog) -> bool:
        """Whether a known version is still in the log, which is listed from there on."""
        version = known.snapshot.version
        name = versions.commit_name(version)
        listed = files.list_from(versions.commit_name(version - 1) if version else None)
        return name in listed and known.tag in (None, listed[name].tag)

    @staticmethod
    def _tag(files: StoreLog, found: Snapshot) -> str | None:
        return files.tags.get(versions.commit_name(found.version))

    def _remember(self, found: _Known, before: Snapshot | None = None) -> _Known:
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

    def committed_us(self, snapshot: Snapshot) -> int:
        """The time of a version, from its commit, or else from its file."""
        files = StoreLog(self._files, self._uri)
        at_ms: int | None = versions.told(files, snapshot.version).get("timestamp")
        if at_ms is not None:
            return at_ms * 1000
        name = versions.commit_name(snapshot.version)
        return round(files.list_from(versions.commit_name(snapshot.version - 1))[name].at * US)

    def history(self, limit: int) -> Iterator[Mapping[str, Any]]:
        """Look for new commits, and yield the newest commit infos with their versions, the newest first."""
        newest = self._look().snapshot.version
        files, begin = StoreLog(self._files, self._uri), max(newest - limit, -1)
        files.list_from(versions.commit_name(begin) if begin >= 0 else None)
        begin = max(begin, files.begin(newest) - 1)
        for last in range(newest, begin, -AHEAD):
            first = max(last - AHEAD, begin) + 1
            files.fetch(range(first, last + 1))
            found = list(versions.history(files, last, last + 1 - first))
            yield from found
            if len(found) <= last - first:
                return

    def last_checkpoint(self) -> int:
        """The version of the last checkpoint; -1 if there is none."""
        pointer = versions.pointer(StoreLog(self._files, self._uri))
        return -1 if pointer is None else int(pointer["version"])

    def key(self, file: DataFile) -> str:
        """The key of a data file, which differs from those of all other tables."""
        return f"{self._files}/{file.path}"

    def opened(self, file: DataFile) -> pa.NativeFile:
        """Open a data file: a small one is read as a whole, of a large one only the parts that are needed."""
        return self._files.open_file(file.path, file.size)

    def has(self, files: Sequence[DataFile]) -> bool:
        """Whether files of one directory exist with the size that was written, by one listing."""
        if not files:
            return True
        directory = files[0].path.split("/")[0]
        there = {f"{directory}/{f.name}": f.size for f in self._files.list(directory)}
        return all(there.get(file.path) == file.size for file in files)

    def read(self, path: str) -> bytes:
        """The contents of a file below the table's directory."""
        return self._files.get(path)[0]

    def remove(self, directory: str) -> None:
        """Remove a directory below the table's with all that is in it."""
        listed = self._files.list(directory)
        if listed:
            self._files.delete([f"{directory}/{file.name}" for file in listed])

    def fetch(self, files: Sequence[DataFile]) -> None:
        """Fetch data files that are read next, several at the same time."""
        self._files.prefetch([(file.path, file.size) for file in files])

    # -- writing -------------------------------------------------------------------------------

    @contextmanager
    def writing(self, *, as_known: bool = False) -> Iterator[Snapshot]:
        """A version that was the newest in this operation, while no other thread of this process commits.

        If it is no longer the newest, the commit fails. With `as_known` it may have been the newest before this
        operation, but only a moment ago. Raises as `newest`.
        """
        with self._writing:
            self._base = (self._lately() if as_known else None) or self._fresh()
            yield self._base.snapshot

    def create(self, before: Snapshot, change: Commit) -> object:
        """Commit the first version of a table. Raises as `commit`."""
        with self._writing:
            return self.commit(before, change)

    def vacuum(self, snapshot: Snapshot) -> None:
        """Remove the old part of the log, and the files that no kept version needs."""
        dead = self._tidying.vacuum(snapshot)
        if dead:
            # A process that was paused since it has read `snapshot` would remove the files of later versions.
            named = self._look().snapshot.files
            self._files.delete([name for name in dead if name not in named])

    def with_checkpoint(self, snapshot: Snapshot) -> Snapshot:
        """The newest version, with a checkpoint with which other readers can begin."""
        log.info("%s gets a checkpoint, as its log misleads others", self._uri)
        self._tidying.checkpoint(snapshot)
        self.forget()
        return self.newest()

    def commit(self, snapshot: Snapshot, change: Commit) -> Sequence[tuple[DataFile, pa.Table]]:
        """Commit a change of a version, also behind commits of rivals that do not affect it.

        Returns:
            The new files, each with its rows.

        Raises:
            EngineError: Another commit came first, or the store refuses this one: nothing was changed.
            CommitUnknownError: It was sent, and its outcome cannot be found out.
            StoreError: It was not sent.
        """
        now_ms = to_us(_CLOCK.now()) // 1_000
        rival = self._rival_of(snapshot) if change.rows is not None else None
        try:
            written = self._written(snapshot, change, now_ms)
        except (pa.ArrowException, ValueError) as error:
            raise EngineError(reason_of(error), Outcome.FAILED) from error
        added = [file for file, _ in written]
        met = 0
        try:
            for met in range(_RIVALS):
                # If a rival has committed while data files were sent, no PUT is needed to find that out.
                if met or rival is None or not rival.is_there():
                    rival = self._rival_of(snapshot, met)
                    if self._committed(snapshot, change, [*added, *change.written], now_ms, rival):
                        return written
                later = self._lost_to(snapshot, rival)
                found = change.on(later)
                if found is None:
                    break
                snapshot, change = later, found
            met += 1
        except EngineError as error:
            if error.outcome is not Outcome.LOST:
                self._discard(added)
            raise
        except CommitUnknownError:
            # The log may begin after the known version.
            self.forget()
            raise
        except TubeqError:
            self._discard(added)
            raise
        finally:
            self._met.append(met)
        self._discard(added)
        msg = f"version {snapshot.version + 1} of {self._uri} was committed by somebody else"
        raise EngineError(msg, Outcome.CONFLICT)

    def _written(
        self, snapshot: Snapshot, change: Commit, now_ms: int
    ) -> list[tuple[DataFile, pa.Table]]:
        """Write the data files of a change."""
        if change.rows is None or not change.rows.num_rows:
            return []
        parts = list(data_files.encoded(change.shape or snapshot.shape, change.rows, now_ms))

        def put(part: tuple[DataFile, pa.Table, bytes]) -> None:
            self._files.put(part[0].path, part[2])

        self._files.together(put, parts)
        return [(file, rows) for file, rows, _ in parts]

    @property
    def rivals(self) -> int:
        """How many commits of others came before the last commits of this process."""
        return sum(self._met)

    def _rival_of(self, snapshot: Snapshot, met: int = 0) -> RivalCommit:
        """The commit that others may make after a version. If others commit, it is asked for at once.

        A process that asked only after a failed PUT would need two round trips for each version, and would never
        catch up with others that need one.
        """
        rival = RivalCommit(self._files, self._uri, snapshot.version + 1)
        if met or self.rivals:
            rival.ask_ahead()
        return rival

    def _committed(
        self,
        snapshot: Snapshot,
        change: Commit,
        added: Sequence[DataFile],
        now_ms: int,
        rival: RivalCommit,
    ) -> bool:
        """Commit a change as the version after `snapshot`; false if a rival came first."""
        version = snapshot.version + 1
        content = encoded(change.actions(added, snapshot.version, now_ms))
        base = self._base_of(snapshot)
        if late_commits.may_be_late(base.snapshot, base.sure) and not late_commits.are_there(
            self._files, added
        ):
            msg = f"files for version {version} of {self._uri} were removed"
            raise EngineError(msg, Outcome.CONFLICT)
        sent_at, sure = _CLOCK.monotonic(), late_commits.seconds_now()

        sends = itertools.count()

        def send() -> str | None:
            next(sends)
            return self._files.put_if_absent(f"{LOG}/{versions.commit_name(version)}", content)

        try:
            tag = sent_once(
                self._uri,
                version,
                change.operation_id,
                self._files.patience,
                send,
                rival.info,
                lambda _: rival.tag,
            )
        except EngineError as error:
            if error.outcome is not Outcome.CONFLICT or rival.text is None:
                self._stale()
                raise
            return False
        if late_commits.may_be_late(base.snapshot, base.sure) and late_commits.removed_if_late(
            self._files, self._uri, version, base.tag, change.operation_id
        ):
            self.forget()
            msg = f"version {version} of {self._uri} was committed by others long ago"
            if next(sends) > 1:
                # The commit of long ago may be an earlier request of this one.
                raise CommitUnknownError(msg, change.operation_id)
            raise EngineError(msg, Outcome.CONFLICT)
        after = change.after(added, now_ms)
        self._tidying.note_removes(version, after)
        newest = snapshot.after(after)
        self._remember(_Known(newest, tag, sent_at, sure))
        has_made(newest)
        self._tidying.after(newest)
        return True

    def _base_of(self, snapshot: Snapshot) -> _Known:
        """What is known of a version that a change is committed on."""
        base = self._base
        if base is None or base.snapshot is not snapshot:
            # Nobody knows since when it was the newest.
            return _Known(snapshot, None, 0.0, -math.inf)
        return base

    def _stale(self) -> None:
        """Look again before the next commit."""
        with self._lock:
            if self._known is not None:
                known = self._known
                self._known = replace(known, at=-math.inf)

    def _lost_to(self, snapshot: Snapshot, rival: RivalCommit) -> Snapshot:
        """The version of a rival that came first."""
        actions = rival.actions()
        self._tidying.note_removes(rival.version, actions)
        later = snapshot.after(actions)
        base = self._base_of(snapshot)
        # The rival's commit may be old, and the version after it may have been made and removed. So the times of
        # `base` still count, and an operation that began after them looks for itself.
        self._base = _Known(later, rival.tag, base.at, base.sure)
        self._remember(self._base)
        return later

    def _discard(self, files: Sequence[DataFile]) -> None:
        """Remove data files that no commit names, in the background."""
        if files:
            self._background.run(lambda: self._files.delete([file.path for file in files]))
