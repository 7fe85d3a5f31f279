"""The changes of stored rows by a statement, as data: which rows, and their new values.

A verb names them by these classes. `storage/tables/row_clauses.py` has the expressions for the rows that each
`Which` selects, and for the columns that each `Change` sets. Engines render these, and `storage/rows_after.py`
evaluates them for the rows that a verb returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tubeq_spark.model.failures import LEASE_ENDED, Backoff, ErrorTexts

if TYPE_CHECKING:
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.task import TaskState


# -- which rows --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Every:
    """Every row of the statement."""


@dataclass(frozen=True, slots=True)
class Due:
    """Rows whose state has changed by time, up to a moment, and is not written yet.

    Attributes:
        now_us: The moment.
        over: Whether only rows whose ttl has ended.
        state: Their stored state; `None` is all but done tasks, which have ended before.
    """

    now_us: int
    over: bool = False
    state: TaskState | None = None


Which: TypeAlias = Every | Due


# -- their new values --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remove:
    """A row is removed.

    Attributes:
        dest: A fresh segment for rows that the change feed must not show as acked; `None` for an ack.
        event: The event for the change feed; `None` writes none. "ttl" follows the end of a lease or delay.
    """

    dest: int | None = None
    event: str | None = None


@dataclass(frozen=True, slots=True)
class GiveBack:
    """A row moves to a fresh segment, and no session holds it any more.

    With a delay it is a held row, which becomes delayed, or is buried if it has used up its attempts. Its ttl grows by
    the delay.

    Attributes:
        dest: The segment.
        state: Its new state; `None` is ready, or buried for a held task that has used up its attempts.
        attempts: Its new number of attempts; `None` keeps the number.
        untaken: Whether its last take does not count as an attempt.
        event: The event for the change feed.
        error: Its error; `None` keeps the last error.
        delay_us: The delay; 0 is none, `None`: never, a backoff computes it from the attempts.
        now_us: The moment. The end of a lease or delay was before it.
    """

    dest: int
    state: TaskState | None = None
    attempts: int | None = None
    untaken: bool = False
    event: str = "release"
    error: ErrorTexts | None = None
    delay_us: int | Backoff | None = 0
    now_us: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Touch:
    """A held row moves to a fresh segment, and gets more time: its lease, its ttl, and the ttr of later takes grow.

    Attributes:
        dest: The segment.
        increment_us: The added time.
    """

    dest: int
    increment_us: int


@dataclass(frozen=True, slots=True)
class Renew:
    """A held row moves to a fresh segment, and gets a new lease. Rows whose lease and ttl have ended must be excluded before.

    Attributes:
        dest: The segment.
        lease: The leases.
    """

    dest: int
    lease: NewLease


@dataclass(frozen=True, slots=True)
class Move:
    """A row only moves to another segment."""

    dest: int


@dataclass(frozen=True, slots=True)
class Become:
    """One row is given back with values that a verb has computed.

    Attributes:
        dest: The segment.
        after: The new row.
        data: Whether its payload (JSON text) changes, too.
        event: The event for the change feed.
    """

    dest: int
    after: StoredTask
    data: bool = False
    event: str = "release"


Change: TypeAlias = Remove | GiveBack | Touch | Renew | Move | Become


@dataclass(frozen=True, slots=True)
class Release:
    """How a program releases tasks.

    Attributes:
        delay_us: The delay in microseconds; 0 is none, `None`: never, a backoff computes it from the attempts.
        error: Their error; `None` if there is none.
        by_backoff: Whether the tube's backoff sets the delay, if it has one and there is an error.
    """

    delay_us: int | Backoff | None = 0
    error: ErrorTexts | None = None
    by_backoff: bool = False

    def give_back(self, dest: int, now_us: int, backoff: Backoff | None) -> GiveBack:
        """The change of released rows, which move to a fresh segment, in a tube with this backoff."""
        by_backoff = self.by_backoff and self.error is not None and backoff is not None
        delay_us = _delay(backoff) if by_backoff else self.delay_us
        return GiveBack(dest, error=self.error, delay_us=delay_us, now_us=now_us)


def _delay(backoff: Backoff | None) -> Backoff | int:
    """The delay of a failed task; 0, which is none, for a backoff whose delays are all 0."""
    return backoff if backoff is not None and backoff.first else 0


def lease_ended(dest: int, now_us: int, backoff: Backoff | None) -> GiveBack:
    """The change of a row whose lease has ended. That is the error of its task, and the delay of the next attempt.

    Args:
        dest: A fresh segment.
        now_us: The moment at which the end is written.
        backoff: The backoff of the tube.
    """
    return GiveBack(dest, event="ttr", error=LEASE_ENDED, delay_us=_delay(backoff), now_us=now_us)


def errors_of(change: Change) -> Mapping[int, str] | None:
    """The errors that a change sets, by task id; `None` if it sets none, or the same for all tasks."""
    if isinstance(change, GiveBack) and isinstance(change.error, Mapping):
        return change.error
    return None
