"""The commit loop: read, decide, write, and find out whether the commit succeeded.

An attempt has three outcomes. *Committed*: the loop returns the result of the decision.
*Conflicted*, also by a clause of our statement that found a row changed: the loop starts the whole attempt
again on fresh state. *Unknown*: the loop first searches the table's history for the statement's operation id.
"""

from __future__ import annotations

import logging
import os
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

from tubeq_spark.clock import RetryWaits
from tubeq_spark.errors import CommitUnknownError, ConflictError, StoreError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.validation import was_forked
from tubeq_spark.storage.engine import Outcome, is_missing_table, outcome_of
from tubeq_spark.storage.statement import Affected, Note, Statement, new_operation_id, versions_read
from tubeq_spark.storage.store.local_files import SyncError
from tubeq_spark.storage.uninterrupted import gives_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.clock import Clock
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.locks.table_lock import TableLock

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
log = logging.getLogger(__name__)


class Stale(Exception):  # noqa: N818  (a signal inside the loop, which no program gets)
    """The decision no longer holds; decide again."""


@dataclass(frozen=True, slots=True)
class Plan(Generic[T_co]):
    """The decision of one attempt.

    Attributes:
        statement: The statement to commit; `None` if the result needs no commit.
        finish: Makes the result from the numbers of changed rows. If it raises `Stale`, the loop tries again.
        at_us: The moment for which it was decided; `None` if it does not depend on the time.
        asked: What the calls of a take ask for.
        operation_id: The operation id of its commit. Each attempt needs another one, because a search for a lost answer
            must not find an earlier commit.
    """

    statement: Statement | None
    finish: Callable[[Affected], T_co]
    at_us: int | None = None
    asked: str = ""
    operation_id: int = field(default_factory=new_operation_id)


@dataclass(slots=True)
class CallCounts:
    """The counts of one call of a program.

    Attributes:
        commits: The commits that its thread has made, to any table.
        conflicts: The attempts that lost a conflict.
    """

    commits: int = 0
    conflicts: int = 0


#: The running call, if calls are traced.
call_counts: ContextVar[CallCounts | None] = ContextVar("tubeq_call", default=None)


class CommitLoop:
    """Runs operations of one queue object."""

    def __init__(
        self,
        engine: Engine,
        config: QueueConfig,
        wall: Clock,
        uniform: Callable[[], float],
        session: Callable[[], str] = lambda: "",
        count_ended: Callable[[int, int], None] = lambda _tube, _tasks: None,
    ) -> None:
        """Commit through `engine`.

        Args:
            engine: The engine that reads and commits.
            config: The settings for retries, and the observer.
            wall: Real time, because a wait after a conflict is not a wait for tasks.
            uniform: Returns random numbers from 0 to 1, for the jitter of waits.
            session: Returns the session, for the notes in the history.
            count_ended: Counts ended tasks of a tube, if their commit does not.
        """
        self._engine, self._config = engine, config
        self._wall, self._uniform = wall, uniform
        self._observer = config.observer or (lambda step, operation: None)
        self._retry_waits = RetryWaits(
            config.attempts, config.retry_seconds, config.backoff_first, config.backoff_most
        )
        self._session, self._count_ended = session, count_ended
        #: The numbers of lost conflicts.
        self._conflicts: WeakKeyDictionary[TableLock, int] = WeakKeyDictionary()
        self._counting = threading.Lock()
        self._process = os.getpid()
        #: The table of each table lock, once it was opened or committed to.
        self._tables: WeakKeyDictionary[TableLock, str] = WeakKeyDictionary()

    def require_own_process(self) -> None:
        """Raise in a forked process, because it has the same session and ids as its parent.

        Raises:
            StoreError: This process was forked from that of the queue object.
        """
        process = os.getpid()
        if process != self._process:
            raise was_forked(process, self._process, "has this queue open")

    def run(
        self,
        operation: str,
        table_lock: TableLock,
        attempt: Callable[[], Plan[T]],
        *,
        retries: bool = True,
    ) -> T:
        """Repeat `attempt` until it commits, or decides to commit nothing.

        Args:
            operation: Its name, for the observer and for messages.
            table_lock: The lock to hold from the read to the commit.
            attempt: Reads and decides; called again after each conflict.
            retries: Whether it is called again. Otherwise the work can wait.

        Raises:
            ConflictError: The retries are used up; nothing was written.
            CommitUnknownError: The commit may have succeeded.
            StoreError: The engine failed; nothing was written.
        """
        self.require_own_process()
        # The time for retries begins at the first conflict, so that a long write is retried, too.
        began: float | None = None
        waits = self._retry_waits.waits(
            lambda: 0.0 if began is None else self._wall.monotonic() - began,
            self._uniform,
            lambda: self._rivals(table_lock),
        )
        note = Note(operation)
        while True:
            try:
                with (
                    self._engine.operating(operation, self._tables.get(table_lock)),
                    table_lock.writing(
                        self._engine.committing_jvm, lambda: self._prepare(table_lock)
                    ),
                ):
                    return self._once(note, table_lock, attempt)
            except Stale as stale:
                note = replace(note, conflicts=note.conflicts + 1)
                with self._counting:
                    self._conflicts[table_lock] = self._conflicts.get(table_lock, 0) + 1
                if self._config.traces and (counts := call_counts.get()) is not None:
                    counts.conflicts += 1
                self._observer("conflicted", operation)
                began = self._wall.monotonic() if began is None else began
                wait = next(waits, None) if retries and not gives_up() else None
                if wait is None:
                    raise ConflictError(
                        f"{operation}: others committed first, retries used up; nothing was written"
                    ) from stale.__cause__
                self._wall.sleep(wait)

    def conflicts(self, table_lock: TableLock | None = None) -> int:
        """The number of conflicts in a table, or in all tables, that this queue object has lost."""
        with self._counting:
            if table_lock is not None:
                return self._conflicts.get(table_lock, 0)
            return sum(self._conflicts.values())

    def _rivals(self, table_lock: TableLock) -> int:
        table = self._tables.get(table_lock)
        return 0 if table is None else self._engine.tables.rivals(table).commits

    def opened(self, table: str, table_lock: TableLock) -> None:
        """Begin to use a table."""
        self._tables[table_lock] = table

    def _prepare(self, table_lock: TableLock) -> None:
        """Read ahead, to shorten the time under the lock."""
        table = self._tables.get(table_lock)
        if table is not None:
            self._engine.look_ahead(table)

    def _once(self, note: Note, table_lock: TableLock, attempt: Callable[[], Plan[T]]) -> T:
        operation = note.operation
        self._observer("read", operation)
        outer = versions_read.set({})
        try:
            plan = attempt()
            read = versions_read.get()
        finally:
            versions_read.reset(outer)
        if plan.statement is None:
            return plan.finish(Affected())
        self._observer("decided", operation)
        self._tables[table_lock] = plan.statement.table
        note = replace(
            note,
            # The decision may have begun a new session.
            session=self._session(),
            tasks=plan.statement.tasks,
            at_us=plan.at_us,
            base=read.get(plan.statement.table),
            asked=plan.asked,
            operation_id=plan.operation_id,
        )
        with table_lock.committing(self._engine.committing_jvm) as mark_ended:
            affected = self._commit(note, plan.statement, mark_ended)
            if self._config.traces and (counts := call_counts.get()) is not None:
                counts.commits += 1
            self._sync(note, table_lock)
        ended = plan.statement.ended
        if ended is not None and not self._engine.counts_ended:
            self._count_ended(ended.tube, ended.count_of(affected))
        try:
            return plan.finish(affected)
        except Exception as error:
            # A StoreError of a later read or write says that nothing was written, but this statement is committed.
            known = isinstance(error, (Stale, TubeqError)) and not isinstance(error, StoreError)
            if known:
                raise
            msg = f"{operation}: committed, but what it did could not be read: {reason_of(error)}"
            raise CommitUnknownError(msg, note.operation_id) from error

    def _commit(
        self,
        note: Note,
        statement: Statement,
        mark_ended: Callable[[], None],
    ) -> Affected:
        operation = note.operation
        try:
            affected = self._engine.execute(statement, note)
            mark_ended()
            self._observer("committed", operation)
        except Exception as error:
            # The failure came before the statement was sent, or the engine has read the outcome itself.
            if is_missing_table(error) or isinstance(error, (StoreError, CommitUnknownError)):
                raise
            outcome = outcome_of(error)
            if outcome in (Outcome.CONFLICT, Outcome.STALE):
                mark_ended()
                raise Stale from error
            # If the outcome stays unknown, this error is the cause of the raised one.
            log.warning("%s: no plain answer, asking the history: %s", operation, reason_of(error))
            found = self._find_in_history(note, statement, error)
            if found is not None:
                return found
            if outcome is Outcome.LOST:
                msg = f"{operation}: the answer was lost and no commit is seen; it may still land"
                raise CommitUnknownError(msg, note.operation_id) from error
            msg = f"{operation}: storage refused it, nothing was written: {reason_of(error)}"
            raise StoreError(msg) from error
        if affected is None:
            # Only the history has the number of changed rows.
            return self._find_in_history(note, statement, None) or Affected()
        return affected

    @staticmethod
    def _sync(note: Note, table_lock: TableLock) -> None:
        """Sync a commit to the disk, if the durability requires it."""
        try:
            table_lock.sync_commit()
        except Exception as error:
            # Whatever the error is, the statement is committed.
            why = str(error) if isinstance(error, SyncError) else reason_of(error)
            msg = f"{note.operation}: committed, but a power cut may undo it: {why}"
            raise CommitUnknownError(msg, note.operation_id) from error

    def _find_in_history(
        self, note: Note, statement: Statement, error: Exception | None
    ) -> Affected | None:
        """The rows changed by a statement that may be committed; `None` if the history does not have it."""
        try:
            commit = self._engine.commit_of(statement.table, note.operation_id)
        except Exception as unseen:  # noqa: BLE001  (after any error the outcome is unknown)
            msg = f"the answer to a commit was lost, and so was the history: {reason_of(unseen)}"
            raise CommitUnknownError(msg, note.operation_id) from error
        if commit is None:
            return None
        if commit.affected is not None:
            return commit.affected
        if statement.is_append:
            # An append is committed as a whole.
            return Affected(inserted=statement.size)
        msg = (
            f"version {commit.version} of the table is this commit, but the history does not say how many rows it "
            "changed: spark.databricks.delta.history.metricsEnabled must be true"
        )
        raise CommitUnknownError(msg, note.operation_id) from error
