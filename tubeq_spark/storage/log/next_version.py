"""Creates the next version of a log once, whatever answers get lost, or reads the commit of a rival that came first.

A `Change` is what the version changes.
"""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import CommitUnknownError, StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.log.actions import OURS, Actions, DataFile, info_in, known
from tubeq_spark.storage.log.log_files import LOG, LogFiles, commit_name, versions_of
from tubeq_spark.storage.statement import FOR_EVER_MS, Note, is_of
from tubeq_spark.storage.store.store import (
    ExistsError,
    RequestError,
    finding_out,
    passes,
    sleep,
    waits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from tubeq_spark.storage.log.snapshot import Shape, Snapshot
    from tubeq_spark.storage.store.store import Patience, Store

#: Seconds to wait for the answer of `ask_ahead` after the answer to the commit.
_AHEAD_SECONDS = 1.0


class NextVersion:
    """A version that does not exist as far as this process knows.

    Attributes:
        version: Its number.
        text: The commit of a rival that has become this version; `None` if there is none.
        tag: The tag of the version, once it exists.
        sends: How often our commit was sent.
    """

    def __init__(self, store: Store, version: int) -> None:
        """Ask for nothing yet."""
        self._store, self.version = store, version
        self._name = f"{LOG}/{commit_name(version)}"
        self.text: bytes | None = None
        self.tag: str | None = None
        self.sends = 0
        self._ahead: Future[tuple[bytes, str | None]] | None = None

    def ask_ahead(self) -> None:
        """Ask for it while something else is sent. If it does not exist now, it may exist later.

        A process that asked only after a failed PUT would need two round trips for each version, and would never
        catch up with others that need one.
        """
        self._ahead = self._store.beside(lambda: self._store.get(self._name))

    def is_rivals(self, seconds: float = 0.0) -> bool:
        """Whether it existed when `ask_ahead` asked for it. Waits this many seconds for the answer."""
        ahead, self._ahead = self._ahead, None
        # A request that still waits behind others is cancelled.
        if ahead is not None and not ahead.cancel():
            # After any error the commit is asked for again where it matters.
            with suppress(OSError, CancelledError, TimeoutError):
                self.text, self.tag = ahead.result(seconds)
        return self.text is not None

    def actions(self) -> Actions:
        """The actions of the rival's commit. Raises as `known`."""
        return known(self.text or b"", f"{self._store}/{self._name}")

    def create(
        self, content: bytes, needs: Sequence[str], operation_id: int, patience: Patience
    ) -> bool:
        """Create the version; false if a rival's commit is it.

        A store creates a file once, so at most one of several requests for the same version lands, however late it
        arrives.

        Args:
            content: The text of the commit.
            needs: The data files that it names.
            operation_id: The id by which the commit is recognised.
            patience: For how long requests are repeated after errors that may pass.

        Raises:
            EngineError: The store refuses it, or its outcome is unknown (`Outcome.LOST`).
            CommitUnknownError: It was sent, and its outcome cannot be found out.
            StoreError: It was not sent.
        """
        is_out = False
        for wait in waits(patience, of_commit=True):
            self.sends += 1
            try:
                self.tag = self._store.put_if_absent(self._name, content, needs)
            except (ExistsError, OSError) as error:
                was_sent = isinstance(error, RequestError) and error.was_sent
                is_out = is_out or was_sent
                # A file system may report a failure although it made the link: NFS may send a request twice.
                may_be_out = is_out or not isinstance(error, (ExistsError, RequestError))
                info = self._info(operation_id, error, is_out=may_be_out)
                if info is not None:
                    return is_of(info, operation_id)
                self._require_another_try(error, is_last=wait is None, is_out=is_out)
            else:
                return True
            sleep(wait or 0.0)
        raise AssertionError  # never: the last wait is `None`

    @staticmethod
    def _require_another_try(error: Exception, *, is_last: bool, is_out: bool) -> None:
        """Raise if a commit that failed, and is not there, must not be sent again."""
        is_refused = isinstance(error, ExistsError)
        may_pass = passes(error)
        if is_last and may_pass and not is_out:
            raise StoreError(f"nothing was written: {reason_of(error)}", passes=True) from error
        if is_last or not (is_refused or may_pass):
            known = Outcome.CONFLICT if is_refused else Outcome.FAILED
            raise EngineError(reason_of(error), Outcome.LOST if is_out else known) from error

    def _info(
        self, operation_id: int, error: Exception, *, is_out: bool
    ) -> Mapping[str, Any] | None:
        """The commit info of the version; `None` if it does not exist yet.

        Args:
            operation_id: The operation id of our commit.
            error: The error with which our commit failed.
            is_out: Whether our commit may have been sent.
        """
        try:
            with finding_out():
                is_short = not self.is_rivals(_AHEAD_SECONDS) and self._is_before_log()
        except OSError as unseen:
            if not is_out:
                msg = f"storage could not be written: {reason_of(error)}"
                raise StoreError(msg, passes=passes(error)) from error
            msg = f"the answer to a commit was lost, and so was the log: {reason_of(unseen)}"
            raise CommitUnknownError(msg, operation_id, passes=passes(unseen)) from error
        if is_short:
            msg = f"the log of {self._store} begins after version {self.version}"
            if not is_out:
                raise EngineError(msg, Outcome.CONFLICT) from error
            raise CommitUnknownError(msg, operation_id) from error
        try:
            return None if self.text is None else info_in(self.text)
        except ValueError:
            # A commit that cannot be parsed is not ours.
            return {}

    def _is_before_log(self) -> bool:
        """Read the version; if it does not exist, whether the log begins after it, so that it may have existed."""
        with suppress(FileNotFoundError):
            self.text, self.tag = self._store.get(self._name)
            return False
        after = "" if self.version < 2 else commit_name(self.version - 2)
        listed = versions_of(LogFiles(self._store).list_from(after))
        is_first = self.version == 0 and not listed
        return not is_first and (self.version - 1 not in listed or listed[-1] > self.version)


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one commit.

    Attributes:
        note: Its note, with an operation id that no other commit has.
        rows: New rows; `None` if there are none.
        gone: Removed files.
        once: An application id, and the version that is written under it, if any.
        total: The same for a total of ended tasks, which never expires.
        on: Makes the same change for a later version than it was decided on, with the same rows and files;
            `None` if it must be decided anew.
        written: Added files that were written before.
        earlier: The same, but they are removed if the commit fails.
        order: The order in which the rows that stay in their partitions are read next; empty if there is none.
        shape: The new columns and properties of the table; `None` if they stay.
        operation: Its name in the history; `None` is that of a write or a removal.
        feed: The changed rows for the change feed; `None` if the added and the removed files tell all changes.
    """

    note: Note
    rows: pa.Table | None = None
    gone: Sequence[DataFile] = ()
    once: tuple[str, int] | None = None
    total: tuple[str, int] | None = None
    on: Callable[[Snapshot], Change | None] = lambda _: None
    written: Sequence[DataFile] = ()
    earlier: Sequence[DataFile] = ()
    order: Sequence[str] = ()
    shape: Shape | None = None
    operation: str | None = None
    feed: pa.Table | None = None

    def transactions(self, now_ms: int) -> dict[str, tuple[int, int | None]]:
        """The transaction versions of application ids, with their times for Spark's expiry."""
        found: dict[str, tuple[int, int | None]] = {}
        if self.once is not None:
            found[self.once[0]] = (self.once[1], now_ms)
        if self.total is not None:
            found[self.total[0]] = (self.total[1], FOR_EVER_MS)
        return found

    def actions(
        self, added: Sequence[DataFile], before: int, now_ms: int
    ) -> list[Mapping[str, Any]]:
        """The lines of its log, with the commit info in the words of the library.

        Args:
            added: The files of its rows, and `written`.
            before: The version on which it is committed.
            now_ms: The moment, in milliseconds since 1970.
        """
        count = sum(file.rows or 0 for file in added if not file.is_feed)
        info: dict[str, Any] = {
            "timestamp": now_ms,
            "operation": self.operation or ("WRITE" if added else "DELETE"),
            "operationParameters": {"mode": "Overwrite" if self.gone else "Append"}
            if added
            else {},
            "operationMetrics": {
                "num_added_files": len(added),
                "num_removed_files": len(self.gone),
                "num_added_rows": count,
            },
            "engineInfo": OURS,
            "userMetadata": str(self.note),
        }
        if before >= 0:
            info["readVersion"] = before
        found: list[Mapping[str, Any]] = [{"commitInfo": info}]
        if self.shape is not None and before < 0:
            found.append({"protocol": self.shape.protocol})
        if self.shape is not None:
            found.append({"metaData": self.shape.metadata})
        found += [
            {"txn": {"appId": app, "version": version, "lastUpdated": at_ms}}
            for app, (version, at_ms) in self.transactions(now_ms).items()
        ]
        found += [file.removed(now_ms) for file in self.gone]
        found += [file.added() for file in added]
        return found

    def after(self, added: Sequence[DataFile], now_ms: int) -> Actions:
        """What its readers find in the log. Arguments as for `actions`."""
        removes = {file.path: file.removed(now_ms)["remove"] for file in self.gone}
        metadata = None if self.shape is None else self.shape.metadata
        adds = {file.path: file for file in added if not file.is_feed}
        return Actions(adds, removes, self.transactions(now_ms), metadata)
