"""A plain table on an object store: its log is read and written here, with as few requests as possible.

A look for news asks for the commit after the newest one that is known. What was read or written stays known:
no commit and no data file is read twice. Nobody holds a lock: a commit is a conditional put of the next version.
One that lost to a rival reads the rival's commit. If that has not changed what was read, the same data file is
committed as the version after it.

Old commits are removed once they are older than the log is kept, by the store's clock. So a process that was paused
for long may put a version that others have removed long ago. `_LATE` has how that is found out.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections import deque
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import CommitUnknownError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.durability.commit_file import DamagedFileError
from tubeq_spark.storage.durability.log_names import (
    LAST_CHECKPOINT,
    version_of,
    versions_of,
)
from tubeq_spark.storage.native.delta_log import checkpoints, data_files, reading, versions
from tubeq_spark.storage.native.delta_log.actions import Actions, UnknownLogError, encoded, hours_of
from tubeq_spark.storage.native.delta_log.bad_files import BadFiles
from tubeq_spark.storage.native.delta_log.log_files import EVERY, is_checkpoint_due
from tubeq_spark.storage.native.object_store import LARGE, StoreFile, StoreFiles
from tubeq_spark.storage.native.sending import ShortLogError, sent_once
from tubeq_spark.storage.native.store_client import has_made, is_fresh
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.tables.schema import LOG_RETENTION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from tubeq_spark.storage.native.background import Background
    from tubeq_spark.storage.native.delta_log.actions import DataFile
    from tubeq_spark.storage.native.delta_log.plain_table import Commit
    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot
    from tubeq_spark.storage.native.object_store import Listed

log = logging.getLogger(__name__)

_LOG = "_delta_log"
#: After so many seconds a look also makes sure that the known version is still there: the table may be another one.
_SURE = 60.0
#: Commits are kept for so many hours at least. One that is answered later than this part of that after the look that
#: it was decided by counts only if the version before it is still there.
_HOURS, _LATE = 2, 4
#: The clocks of the hosts of a store are no further apart.
_SKEW = timedelta(seconds=2)
#: How many commits that follow a known one are asked for at the same time, at most.
_AHEAD = 16
#: How often a change is committed after the commit of a rival without being decided anew.
_RIVALS = 50
#: How often a log is read anew that was shortened meanwhile.
_TRIES = 20
#: By so many commits it is judged whether others commit.
_LAST = 4
#: Seconds for an answer that was asked for with a commit, after that of the commit.
_AHEAD_SECONDS = 1.0
#: How many files are listed, and removed, by one request.
_PAGE = 1_000
#: Removed files of so many commits are kept for the next checkpoint.
_REMOVES = 1_000


_CLOCK = SystemClock()
_OFFSET = _CLOCK.now().timestamp() - _CLOCK.monotonic()


def _now() -> float:
    """Seconds, also of those in which the machine was asleep."""
    return max(_CLOCK.monotonic(), _CLOCK.now().timestamp() - _OFFSET)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the newest version.

    Attributes:
        snapshot: The version.
        tag: Of its commit; `None`: that was not read.
        at: When the request was sent that has shown it as the newest.
        sure: When it was last known to be in the log, by `_now`.
    """

    snapshot: Snapshot
    tag: str | None
    at: float
    sure: float


class StoreLog:
    """The log of a table as one look reads it: what was read or listed stays so."""

    def __init__(self, files: StoreFiles, uri: str, ahead: int = 0) -> None:
        """Read nothing yet; as news so many commits are asked for at the same time at first."""
        self._files, self._uri = files, uri
        self._held: dict[str, bytes | None] = {}
        self.tags: dict[str, str | None] = {}
        self._listed: dict[str, Listed] = {}
        #: The last version of a commit in a listing; `None`: nothing was listed.
        self._end: int | None = None
        #: How many commits the next request but one asks for.
        self._asked = 0
        self._ahead = min(ahead, _AHEAD)

    def __str__(self) -> str:
        return f"{self._uri}/{_LOG}"

    def read(self, name: str) -> bytes:
        """The contents of a file."""
        if name not in self._held:
            self._fetch(name)
        content = self._held[name]
        if content is None:
            raise FileNotFoundError(f"{self}/{name}")
        return content

    def _fetch(self, name: str) -> None:
        names = [name]
        if name.endswith(".json"):
            first, count = int(name[:20]), max(self._asked, self._ahead, 1)
            self._ahead = 0
            if self._end is not None:
                count = min(self._end - first + 1, _AHEAD)
            # One is asked for alone, and the next one: mostly that is all.
            self._asked = min(max(2 * self._asked, 1), _AHEAD)
            # What is not in a listing was not there.
            names = [versions.commit_name(first + n) for n in range(count)]
            self._held[name] = None
        self._fetch_all(names)

    def fetch(self, some: Iterable[int]) -> None:
        """Read the commits of some versions at the same time."""
        self._fetch_all([versions.commit_name(version) for version in some])

    def _fetch_all(self, names: Sequence[str]) -> None:
        for each, content in zip(names, self._files.bucket.together(self._get, names), strict=True):
            self._held[each] = content

    def _get(self, name: str) -> bytes | None:
        listed = self._listed.get(name)
        try:
            content, self.tags[name] = self._files.get(
                f"{_LOG}/{name}", 0 if listed is None else listed.size
            )
        except FileNotFoundError:
            return None
        return content

    def goes_on_after(self, version: int) -> bool:
        """Whether a listing has shown commits after a version, which others have removed before they were read."""
        return self._end is not None and self._end > version

    def is_in_order(self) -> bool:
        """Whether the commits that were listed were written one after the other: none of them came too late."""
        times = [self._listed[versions.commit_name(v)].at for v in versions_of(self._listed)]
        return all(first <= then + _SKEW for first, then in itertools.pairwise(times))

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        if name in self._listed:
            return True
        with suppress(FileNotFoundError):
            self.read(name)
            return True
        return False

    def list_from(self, after: str | None) -> dict[str, Listed]:
        """List the files whose names come after a name."""
        self._listed = {file.name: file for file in self._files.list_from(_LOG, after)}
        self._end = max(versions_of(self._listed), default=-1)
        self.tags.update((name, file.tag) for name, file in self._listed.items())
        return self._listed

    def names(self, *, whole: bool) -> tuple[Sequence[str], bool]:
        """The names of its files, and whether these are all; none if there is no log."""
        if whole:
            # Anew: others write and remove.
            self._held.clear()
        last = None if whole else versions.pointer(self)
        # Of its checkpoint, and after it.
        after = None if last is None else f"{last['version']:020}"
        return list(self.list_from(after)), after is None

    def parquet(self, name: str) -> pa.NativeFile:
        """A Parquet file, opened to read."""
        return pa.BufferReader(self.read(name))

    @contextmanager
    def replacing(self, name: str) -> Iterator[pa.NativeFile]:
        """Write a file in a block, which is there after the block as a whole."""
        sink = pa.BufferOutputStream()
        yield sink
        self._files.put(f"{_LOG}/{name}", sink.getvalue().to_pybytes())


class _NoBadFiles(BadFiles):
    """None: a file of an object store that cannot be read fails whoever reads it."""

    def look(self, files: Iterable[DataFile], *, at_content: bool = True) -> None:
        """Look at none."""


class StoreTable:
    """A table on an object store whose log this process reads and writes. Thread-safe."""

    def __init__(self, uri: str, files: StoreFiles, background: Background) -> None:
        """Use the table at a URI, which may not exist."""
        self._uri, self._files = uri, files
        self._background = background
        self.bad_files: BadFiles = _NoBadFiles(Path(uri))
        self._known: _Known | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        #: What the statement of the thread that commits is decided on.
        self._base: _Known | None = None
        #: What commits since the last checkpoint have removed, by version.
        self._removes: dict[int, Sequence[Mapping[str, Any]]] = {}
        #: How many commits of others each of the last commits had to give way to.
        self._met: deque[int] = deque(maxlen=_LAST)

    # -- reading -------------------------------------------------------------------------------

    @property
    def known(self) -> Snapshot | None:
        """The version that was last read or written; `None` if there is none yet."""
        known = self._known
        return None if known is None else known.snapshot

    def recent(self, seconds: float) -> Snapshot | None:
        """The known version if it was the newest so many seconds ago."""
        known = self._known
        is_recent = known is not None and _CLOCK.monotonic() - known.at <= seconds
        return known.snapshot if known is not None and is_recent else None

    def newest(self) -> Snapshot:
        """The newest version: one request if there is no newer one than is known, and this operation has not looked."""
        return self._fresh().snapshot

    def _fresh(self) -> _Known:
        known = self._known
        is_new = known is None or not is_fresh(known.snapshot, known.at)
        return self._look() if known is None or is_new else known

    def _look(self) -> _Known:
        files = StoreLog(self._files, self._uri, ahead=max(self._met, default=0) + 1)
        at, now = _CLOCK.monotonic(), _now()
        known = self._known
        is_sure = known is not None and now - known.sure <= _SURE
        if known is None or not (is_sure or self._is_there(known, files)):
            return self._look_anew(at, now)
        found = reading.moved_on(files, known.snapshot, None, self._note_removes)
        if files.goes_on_after(found.version) or not files.is_in_order():
            return self._look_anew(at, now)
        if found is known.snapshot:
            return self._remember(_Known(found, known.tag, at, known.sure if is_sure else now))
        return self._remember(_Known(found, self._tag(files, found), at, now))

    def _look_anew(self, at: float, now: float) -> _Known:
        with self._lock:
            # It may be another table.
            self._removes.clear()
        for _ in range(_TRIES):
            files = StoreLog(self._files, self._uri)
            found = reading.newest(files, None, None, self._note_removes)
            if not files.goes_on_after(found.version):
                return self._remember(_Known(found, self._tag(files, found), at, now), anew=True)
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

    def _remember(self, found: _Known, *, anew: bool = False) -> _Known:
        with self._lock:
            known = self._known
            if known is None or anew or found.snapshot.version > known.snapshot.version:
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
        return to_us(files.list_from(versions.commit_name(snapshot.version - 1))[name].at)

    def history(self, limit: int) -> Iterator[Mapping[str, Any]]:
        """Look for news, and yield the commit infos of the newest versions, the newest first, with their versions."""
        newest = self._look().snapshot.version
        for last in range(newest, max(newest - limit, -1), -_AHEAD):
            files, first = (
                StoreLog(self._files, self._uri),
                max(last - _AHEAD, newest - limit, -1) + 1,
            )
            files.fetch(range(first, last + 1))
            found = list(versions.history(files, last, last + 1 - first))
            yield from found
            if len(found) <= last - first:
                return

    def last_checkpoint(self) -> int:
        """The version of the last checkpoint; -1: there is none."""
        pointer = versions.pointer(StoreLog(self._files, self._uri))
        return -1 if pointer is None else int(pointer["version"])

    def key(self, file: DataFile) -> str:
        """The name of a data file that no file of another table has."""
        return self._files.key(file.path)

    def opened(self, file: DataFile) -> pa.NativeFile:
        """A data file to read: a small one as a whole, of a large one the parts that are needed."""
        if file.size > LARGE:
            return pa.PythonFile(StoreFile(self._files, file.path, file.size), "r")
        return pa.BufferReader(self._content(file))

    def _content(self, file: DataFile) -> bytes:
        bucket, key = self._files.bucket, self.key(file)
        content = bucket.kept(key)
        if content is None:
            content, _ = self._files.get(file.path, file.size)
            bucket.keep(key, content)
        return content

    def has(self, files: Sequence[DataFile]) -> bool:
        """Whether files of one directory are there as they were written, by one listing."""
        if not files:
            return True
        directory = files[0].path.split("/")[0]
        there = {f"{directory}/{f.name}": f.size for f in self._files.list_from(directory)}
        return all(there.get(file.path) == file.size for file in files)

    def read(self, path: str) -> bytes:
        """The contents of a file below the table's directory."""
        return self._files.get(path)[0]

    def remove(self, directory: str) -> None:
        """Remove a directory below the table's with all that is in it."""
        listed = self._files.list_from(directory)
        if listed:
            self._files.delete([f"{directory}/{file.name}" for file in listed])

    def fetch(self, files: Sequence[DataFile]) -> None:
        """Read data files that are read next, several at the same time."""
        bucket = self._files.bucket
        missing = [f for f in files if f.size <= LARGE and bucket.kept(self.key(f)) is None]
        if len(missing) > 1:
            with suppress(FileNotFoundError):
                # Whoever needs a missing one says so.
                bucket.together(self._content, missing)

    # -- writing -------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[Snapshot]:
        """A version that was the newest in this operation, while no other thread of this process commits.

        If it is not any more, the commit fails. Raises as `newest`.
        """
        with self._writing:
            self._base = self._fresh()
            yield self._base.snapshot

    def mended(self, snapshot: Snapshot) -> Snapshot:
        """The newest version, with a checkpoint for other readers."""
        log.info("%s gets a checkpoint, as others misread its log", self._uri)
        self._checkpoint(snapshot)
        self.forget()
        return self.newest()

    def commit(self, snapshot: Snapshot, change: Commit) -> Sequence[tuple[DataFile, pa.Table]]:
        """Commit a change of a version, also after commits of rivals that have nothing to do with it.

        Returns:
            The new files, each with its rows.

        Raises:
            EngineError: Another commit came first, or the store refuses this one: nothing was changed.
            CommitUnknownError: It was sent, and nobody can tell what became of it.
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
                # One that came while data files were sent need not be met by a PUT.
                if met or rival is None or not rival.is_there():
                    rival = self._rival_of(snapshot)
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
            # Its log may begin later than is known.
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
        parts = list(data_files.encoded(snapshot.shape, change.rows, now_ms))

        def put(part: tuple[DataFile, pa.Table, bytes]) -> None:
            self._files.put(part[0].path, part[2])

        self._files.bucket.together(put, parts)
        for file, _, content in parts:
            if file.size <= LARGE:
                self._files.bucket.keep(self.key(file), content)
        return [(file, rows) for file, rows, _ in parts]

    @property
    def rivals(self) -> int:
        """How many commits of others the last commits had to give way to."""
        return sum(self._met)

    def _rival_of(self, snapshot: Snapshot) -> _Rival:
        """The commit after a version that others may make; where others commit it is asked for at once."""
        rival = _Rival(self._files, self._uri, snapshot.version + 1)
        if self.rivals:
            rival.ask_ahead()
        return rival

    def _committed(
        self,
        snapshot: Snapshot,
        change: Commit,
        added: Sequence[DataFile],
        now_ms: int,
        rival: _Rival,
    ) -> bool:
        """Commit a change as the version after another; false if a rival did so before."""
        version = snapshot.version + 1
        content = encoded(change.actions(added, snapshot.version, now_ms))
        base = self._base_of(snapshot)
        self._require_files(base, added)
        sent_at, sure = _CLOCK.monotonic(), _now()

        def send() -> str | None:
            return self._files.put_if_absent(f"{_LOG}/{versions.commit_name(version)}", content)

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
        self._require_in_time(base, change)
        after = Actions(list(added), [file.removed(now_ms)["remove"] for file in change.gone])
        after.transactions.update(change.transactions(now_ms))
        self._note_removes(version, after)
        newest = snapshot.after(after)
        self._remember(_Known(newest, tag, sent_at, sure))
        has_made(newest)
        if version % EVERY == 0:
            self._background.run(lambda: self._tidy(newest))
        return True

    def _require_files(self, base: _Known, files: Sequence[DataFile]) -> None:
        """Refuse a commit whose files were written so long ago that others have removed them: no version names them yet.

        Raises:
            EngineError: They have.
        """
        if _now() - base.sure <= _late_seconds(base.snapshot):
            return

        def is_there(file: DataFile) -> bool:
            try:
                self._files.get_range(file.path, 0, 1)
            except FileNotFoundError:
                return False
            return True

        if not all(self._files.bucket.together(is_there, files)):
            msg = f"files for version {base.snapshot.version + 1} of {self._uri} were removed"
            raise EngineError(msg, Outcome.CONFLICT)

    def _base_of(self, snapshot: Snapshot) -> _Known:
        """What is known of a version that a change is committed on."""
        base = self._base
        if base is None or base.snapshot is not snapshot:
            # Nobody knows since when.
            return _Known(snapshot, None, 0.0, -math.inf)
        return base

    def _stale(self) -> None:
        """Look again before the next commit."""
        with self._lock:
            if self._known is not None:
                known = self._known
                self._known = replace(known, at=-math.inf)

    def _lost_to(self, snapshot: Snapshot, rival: _Rival) -> Snapshot:
        """The version of a rival that came first."""
        actions = rival.actions()
        self._note_removes(rival.version, actions)
        later = snapshot.after(actions)
        base = self._base_of(snapshot)
        # That the rival's is there does not say that the next one was not removed, if it may be as old.
        self._base = _Known(later, rival.tag, rival.asked, base.sure)
        self._remember(self._base)
        return later

    def _note_removes(self, version: int, actions: Actions) -> None:
        with self._lock:
            self._removes[version] = actions.removes
            while len(self._removes) > _REMOVES:
                del self._removes[min(self._removes)]

    def _require_in_time(self, base: _Known, change: Commit) -> None:
        """Refuse a commit that came so late that its version may have been removed before, by others.

        The store tells when each file was written: what others have committed after a version is no older than it.

        Raises:
            EngineError: So it is; it is gone.
            CommitUnknownError: That cannot be found out.
        """
        snapshot = base.snapshot
        if _now() - base.sure <= _late_seconds(snapshot):
            return
        version = snapshot.version + 1
        name = versions.commit_name(version)
        try:
            after = versions.commit_name(version - 2) if version > 1 else None
            listed = StoreLog(self._files, self._uri).list_from(after)
            is_late = _is_late(version, base.tag, listed)
            if is_late:
                log.warning("%s: version %d came too late, and is removed", self._uri, version)
                self._files.delete([f"{_LOG}/{name}"])
        except OSError as error:
            msg = f"it is not known whether version {version} came too late: {reason_of(error)}"
            raise CommitUnknownError(msg, change.operation_id) from error
        if is_late is None:
            msg = f"it is not known whether version {version} came too late: the log was removed since"
            raise CommitUnknownError(msg, change.operation_id)
        if is_late:
            self.forget()
            msg = f"version {version} of {self._uri} was committed by others long ago"
            raise EngineError(msg, Outcome.CONFLICT)

    def _discard(self, files: Sequence[DataFile]) -> None:
        """Remove data files that no commit names, in the background."""
        if files:
            self._background.run(lambda: self._files.delete([file.path for file in files]))

    # -- after commits -------------------------------------------------------------------------

    def _tidy(self, snapshot: Snapshot) -> None:
        """Write the checkpoint of a version if it is due, and remove what is older than the log is kept."""
        if is_checkpoint_due(StoreLog(self._files, self._uri), snapshot.version):
            self._checkpoint(snapshot)
            self._clean(snapshot)

    def _checkpoint(self, snapshot: Snapshot) -> None:
        files = StoreLog(self._files, self._uri)
        try:
            now_ms = to_us(_CLOCK.now()) // 1_000
            checkpoints.write(files, snapshot, now_ms, dict(self._removes))
        except (OSError, UnknownLogError, DamagedFileError, pa.ArrowException, ValueError):
            # The commit is made, and readers go on from the last one.
            log.warning("%s has no new checkpoint", self._uri, exc_info=True)

    def _clean(self, snapshot: Snapshot) -> None:
        """Remove what is older than the log is kept, and before a checkpoint; the oldest first."""
        hours = hours_of(snapshot.shape.properties, LOG_RETENTION)
        name = versions.checkpoint_name(snapshot.version)
        mine = self._files.list_from(_LOG, f"{snapshot.version:020}", _PAGE)
        # By the store's clock, which has just written it.
        at = next((file.at for file in mine if file.name == name), None)
        if hours is None or at is None:
            return
        before = at - timedelta(hours=max(hours, _HOURS))
        while True:
            listed = self._files.list_from(_LOG, None, _PAGE)
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
                self._files.delete([f"{_LOG}/{file.name}" for file in old])
            if len(old) < _PAGE:
                return


def _late_seconds(snapshot: Snapshot) -> float:
    """After so many seconds a version that was not there may have been committed and removed."""
    hours = hours_of(snapshot.shape.properties, LOG_RETENTION) or _HOURS
    return max(hours, _HOURS) * 3600 / _LATE


def _is_late(version: int, tag: str | None, listed: Mapping[str, Listed]) -> bool | None:
    """Whether a commit was made after others had committed that version, and removed it; `None`: nobody can tell.

    Args:
        version: The version.
        tag: Of the version before it, if that is known.
        listed: The files of the log from that one on.
    """
    before, mine, after = (listed.get(versions.commit_name(version + n)) for n in (-1, 0, 1))
    if mine is None:
        return None
    later = [file.at for file in listed.values() if (version_of(file.name) or 0) > version]
    first = min(later, default=None)
    if first is None:
        return False
    if after is None:
        # Most stores tell seconds only. Where it is not late, a removal of the log was cut short.
        return True if first <= mine.at else None
    is_between = before is not None and tag in (None, before.tag)
    # Only such a removal leaves these two without the one between them.
    return first < (mine.at - _SKEW if is_between else mine.at)


class _Rival:
    """The commit of a version that others may have made first."""

    def __init__(self, files: StoreFiles, uri: str, version: int) -> None:
        self._files, self._uri, self.version = files, uri, version
        self.text: bytes | None = None
        self.tag: str | None = None
        #: When it was asked for, as `_Known.at`.
        self.asked = 0.0
        self._ahead: Future[tuple[bytes, str | None]] | None = None

    @property
    def _path(self) -> str:
        return f"{_LOG}/{versions.commit_name(self.version)}"

    def ask_ahead(self) -> None:
        """Ask for it while something else is sent. An answer that it is not there means nothing later."""
        self.asked = _CLOCK.monotonic()
        self._ahead = self._files.bucket.beside(lambda: self._files.get_once(self._path))

    def is_there(self, seconds: float = 0.0) -> bool:
        """Whether it was there when it was asked for; an answer is waited for so long."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            # Whatever it is, it is asked for again where it matters.
            with suppress(OSError, CancelledError, TimeoutError):
                self.text, self.tag = ahead.result(seconds)
        return self.text is not None

    def info(self) -> Mapping[str, Any] | None:
        """Its commit info; `None` if it does not exist.

        Raises:
            ShortLogError: It may have existed.
        """
        if not self.is_there(_AHEAD_SECONDS):
            self.asked = _CLOCK.monotonic()
            try:
                self.text, self.tag = self._files.get(self._path)
            except FileNotFoundError:
                self._require_log()
                return None
        try:
            return versions.info_in(self.text or b"")
        except ValueError:
            # Not ours, whatever it is.
            return {}

    def _require_log(self) -> None:
        after = None if self.version < 2 else versions.commit_name(self.version - 2)
        listed = versions_of(StoreLog(self._files, self._uri).list_from(after))
        if self.version - 1 not in listed or listed[-1] > self.version:
            msg = f"begins after version {self.version}"
            raise ShortLogError(msg)

    def actions(self) -> Actions:
        """What it says. Raises as `versions.parsed`."""
        name = versions.commit_name(self.version)
        return versions.parsed(self.text or b"", f"{self._uri}/{_LOG}/{name}")
