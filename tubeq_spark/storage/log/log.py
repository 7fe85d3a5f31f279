"""The log of one table over a store: reads, and commits that become the next version.

A commit creates the file of the next version, or fails if it exists. A commit that lost to a rival reads the rival's
commit. If the rival has not changed what the commit rests on, the same data files are committed as the version after
the rival's.

The log knows nothing of the meaning of rows.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.clock import to_us
from tubeq_spark.errors import CommitUnknownError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.engine import EngineError, Outcome, Rivals
from tubeq_spark.storage.log import data_files, log_files
from tubeq_spark.storage.log.actions import DataFile, damaged, encoded
from tubeq_spark.storage.log.log_files import LogFiles, commit_file, commit_name
from tubeq_spark.storage.log.log_reader import Base, LogReader
from tubeq_spark.storage.log.next_version import Change, NextVersion
from tubeq_spark.storage.statement import TAKES, operation_in
from tubeq_spark.storage.store.store import RequestError, has_made

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tubeq_spark.storage.log.snapshot import Snapshot

#: After this many commits of rivals a change is decided again, even if none of them matters to it.
_RIVALS = 50


class Log(LogReader):
    """The log of one table. Thread-safe."""

    def vacuum(self, snapshot: Snapshot, *, purges: bool = False) -> None:
        """Remove the old part of the log, and the files that no kept version needs.

        Args:
            snapshot: The newest version. It gets a checkpoint.
            purges: Whether to remove files that only older versions need.

        Raises:
            OSError: The storage fails.
            UnknownLogError: A commit has something that this package does not know.
            DamagedFileError: A commit since the last checkpoint is damaged.
        """
        dead = self.tidying.dead_files(snapshot, purges=purges)
        if dead:
            # A process that was paused since it has read `snapshot` would remove the files of later versions.
            named = self._look().snapshot.files
            self.tidying.delete([name for name in dead if name not in named])

    @contextmanager
    def writing(self, *, as_known: bool = False) -> Iterator[Base]:
        """A version that was the newest in this operation, while no other thread of this process commits.

        If it is no longer the newest, the commit fails, or is made behind the commits of rivals.

        Args:
            as_known: Whether the newest version of a moment ago is enough, where a look costs a request.

        Raises as `newest`.
        """
        with self._writing:
            yield (self._lately() if as_known else None) or self._fresh()

    def create(self, before: Snapshot, change: Change) -> None:
        """Commit the first version of a table that did not exist at the last read. Raises as `commit`."""
        with self._writing:
            self.commit(Base(before, None, -math.inf, self._seconds_now()), change)

    def commit(self, base: Base, change: Change) -> Sequence[tuple[DataFile, pa.Table]]:
        """Commit a change of a version, also behind commits of rivals that do not affect it.

        Returns:
            The new files, each with its rows.

        Raises:
            EngineError: Another commit came first, or the storage refuses this one: nothing was changed.
            CommitUnknownError: It was sent, and its outcome cannot be found out.
            StoreError: It was not sent, or the log is damaged.
        """
        now_ms = to_us(self._clock.now()) // 1_000
        following = self._after(base) if change.rows is not None else None
        try:
            written = self.write(base.snapshot, change)
        except BaseException:
            self.discard(change.earlier)
            raise
        added = [*change.earlier, *(file for file, _ in written)]
        try:
            self._commit(base, change, added, now_ms, following)
        except CommitUnknownError:
            # The log may begin after the known version.
            self.forget()
            raise
        except EngineError as error:
            if error.outcome is not Outcome.LOST:
                self.discard(added)
            raise
        except TubeqError:
            self.discard(added)
            raise
        return [(file, rows) for file, rows in written if not file.is_feed]

    def _commit(
        self,
        base: Base,
        change: Change,
        added: Sequence[DataFile],
        now_ms: int,
        following: NextVersion | None,
    ) -> None:
        """Commit a change whose data files are written."""
        met = takes = 0
        try:
            for met in range(_RIVALS):
                # If a rival has committed while data files were sent, no PUT is needed to find that out.
                if met or following is None or not following.is_rivals():
                    following = self._after(base, met)
                    if self._is_created(base, change, added, now_ms, following):
                        return
                # The rival may have been late itself: then its commit is none of the log's, and only a new look tells.
                if self._may_be_late(base.snapshot, base.sure):
                    break
                takes += operation_in(following.text or b"") in TAKES
                base = self._behind(base, following)
                found = change.on(base.snapshot)
                if found is None:
                    break
                change = found
            met += 1
        finally:
            self._met.append(Rivals(met, takes))
        raise self._conflict(base.snapshot.version + 1, "was committed by somebody else")

    def write(self, snapshot: Snapshot, change: Change) -> Sequence[tuple[DataFile, pa.Table]]:
        """Write the new rows of a change to data files, and those of its feed, before its commit.

        Returns:
            The files, each with its rows.

        Raises:
            EngineError: The storage refuses them.
            RequestError: An object store fails.
        """
        begun: list[DataFile] = []

        def put(part: tuple[DataFile, pa.Table, bytes]) -> tuple[DataFile, pa.Table]:
            file, rows, content = part
            begun.append(file)
            self.store.put(file.path, content)
            return file, rows

        now_ms = to_us(self._clock.now()) // 1_000
        # Pieces save a rewrite of many rows, and cost a request each.
        order = () if self.is_far else change.order
        shape = change.shape or snapshot.shape
        parts: list[Iterator[tuple[DataFile, pa.Table, bytes]]] = []
        if change.rows is not None and change.rows.num_rows:
            parts.append(data_files.encoded(shape, change.rows, now_ms, change.gone, order))
        if change.feed is not None:
            parts.append(data_files.encoded_feed(shape, change.feed, now_ms))
        try:
            return self.store.together(put, chain.from_iterable(parts)) if parts else []
        except BaseException as error:
            # These files may be what fills the disk.
            self.discard(begun)
            is_refused = isinstance(error, (OSError, pa.ArrowException, ValueError))
            if is_refused and not isinstance(error, RequestError):
                raise EngineError(reason_of(error), Outcome.FAILED) from error
            raise

    def _after(self, base: Base, met: int = 0) -> NextVersion:
        """The version after another one. If others commit, it is asked for at once."""
        following = NextVersion(self.store, base.snapshot.version + 1)
        if met or self.rivals.commits:
            following.ask_ahead()
        return following

    def _is_created(
        self,
        base: Base,
        change: Change,
        added: Sequence[DataFile],
        now_ms: int,
        following: NextVersion,
    ) -> bool:
        """Commit a change as the version after `base`; false if a rival came first."""
        files = [*added, *change.written]
        content = encoded(change.actions(files, base.snapshot.version, now_ms))
        version = following.version
        if not self.is_far:
            self._require_no_hole(version)
        if self._may_be_late(base.snapshot, base.sure) and not log_files.are_there(
            self.store, files
        ):
            raise self._conflict(version, "names files that were removed")
        sent_at, sure = self._clock.monotonic(), self._seconds_now()
        needs = [file.path for file in files]
        try:
            is_created = following.create(content, needs, change.note.operation_id, self._patience)
        except EngineError:
            self._look_again()
            raise
        if not is_created:
            return False
        if self._may_be_late(base.snapshot, base.sure) and log_files.removed_if_late(
            self.store, version, change.note.operation_id
        ):
            self.forget()
            found = self._conflict(version, "was committed by others long ago")
            if following.sends > 1:
                # The commit of long ago may be an earlier request of this one.
                raise CommitUnknownError(str(found), change.note.operation_id)
            raise found
        after = change.after(files, now_ms)
        self.tidying.note_removes(version, after)
        newest = base.snapshot.after(after)
        self._remember(Base(newest, following.tag, sent_at, sure))
        has_made(newest)
        self.tidying.after(newest)
        return True

    def _require_no_hole(self, version: int) -> None:
        """Refuse to commit a version if the log has the next one: the commit would fill a hole.

        Raises:
            DamagedFileError: The log has the next version.
        """
        files = LogFiles(self.store)
        # If the version exists, too, others have committed both.
        if files.exists(commit_name(version + 1)) and not files.exists(commit_name(version)):
            fault = "is missing, though later ones are there"
            raise damaged(commit_file(files, version), fault)

    def _conflict(self, version: int, why: str) -> EngineError:
        return EngineError(f"version {version} of {self.store} {why}", Outcome.CONFLICT)

    def _behind(self, base: Base, rival: NextVersion) -> Base:
        """The version of a rival that came first."""
        actions = rival.actions()
        self.tidying.note_removes(rival.version, actions)
        # The rival's commit may be old, and the version after it may have been made and removed. So the times of
        # `base` still count, and an operation that began after them looks for itself.
        later = Base(base.snapshot.after(actions), rival.tag, base.at, base.sure)
        self._remember(later)
        return later

    def discard(self, files: Sequence[DataFile]) -> None:
        """Remove data files that no commit names."""
        if files:
            paths = [file.path for file in files]
            self.tidying.later(lambda: self.store.delete(paths))
