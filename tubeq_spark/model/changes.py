"""The changes of stored rows by a statement, as data: which rows, and their new values.

A verb names them by these classes. `storage/tables/row_clauses.py` says by expressions which rows each
`Which` selects and what each `Change` sets; engines render these, and `storage/rows_after.py` evaluates
them for rows that Python holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.model.failures import Backoff, ErrorTexts
    from tubeq_spark.model.lease_times import NewLease
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.tube_types import OrderPosition
    from tubeq_spark.task import TaskState


@dataclass(frozen=True, slots=True)
class Event:
    """What the feed of changes notes of a change.

    Attributes:
        name: The event; "": only what time has brought by then.
        time_us: The moment up to which it notes first what time had brought; `None`: nothing.
        max_attempts: Of the tube, where that decides what time has brought.
    """

    name: str = ""
    time_us: int | None = None
    max_attempts: int | None = None


# -- which rows --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Every:
    """Every row that the statement is about."""


@dataclass(frozen=True, slots=True)
class Named:
    """The rows that the statement names to be changed; others only move along."""


@dataclass(frozen=True, slots=True)
class InSegments:
    """The rows of some segments."""

    segments: Sequence[int]


@dataclass(frozen=True, slots=True)
class Due:
    """Rows that time has changed by a moment, and nobody has written down.

    With `over` only those whose life has ended, by the tube's `max_attempts`. Tasks that were kept when
    they were done are apart from all others: they have come to their end before.
    """

    now_us: int
    over: bool = False
    kept: bool = False
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class Takeable:
    """Rows that a take may take at a moment, up to a position in the order."""

    last: OrderPosition
    now_us: int


@dataclass(frozen=True, slots=True)
class Buried:
    """Buried rows that live at a moment, up to a position in the order."""

    last: OrderPosition
    now_us: int


@dataclass(frozen=True, slots=True)
class Older:
    """Rows up to the newest task ids by the slots of these; with `taken` only those that somebody holds."""

    newest: Mapping[int, int]
    taken: bool = False


Which: TypeAlias = Every | Named | InSegments | Due | Takeable | Buried | Older


# -- what becomes of them ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptKey:
    """How long the key of a task that ends stays in use.

    Attributes:
        for_us: How long after the end.
        now_us: The moment of the end or, by time, the moment up to which time is written down.
        max_attempts: Of the tube.
        by_time: Whether time has ended the task, and so perhaps earlier.
    """

    for_us: int
    now_us: int
    max_attempts: int | None
    by_time: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    """A row goes: by an ack, or, with a segment for gone rows, by something else.

    Attributes:
        gone: A fresh segment for rows that the feed of changes must not take for acked, or whose keys
            stay in use.
        event: What the feed notes of them; `None`: nothing.
        key: How long their keys stay in use; `None`: they are free at once.
    """

    gone: int | None = None
    event: Event | None = None
    key: KeptKey | None = None


@dataclass(frozen=True, slots=True)
class GiveBack:
    """A row that nobody holds any more, in a fresh segment.

    Attributes:
        dest: The segment.
        state: Its state; `None`: ready, but buried when a held task has used up its attempts.
        max_attempts: Of the tube, where no state is given.
        attempts: How often it has been taken by then; `None`: as often as before.
        untaken: Whether its last take is forgotten.
        event: What the feed of changes notes; `None`: that it was released or, where a state is
            given, nothing. In a tube with a backoff, an event with a moment also makes of a lease
            that had ended by then what time has made of it.
        error: Why it has failed; `None`: its last error stays.
    """

    dest: int
    state: TaskState | None = None
    max_attempts: int | None = None
    attempts: int | None = None
    untaken: bool = False
    event: Event | None = None
    error: ErrorTexts | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """A held row is released for later, or buried when it has used up its attempts.

    Its life grows by the delay.

    Attributes:
        dest: The segment.
        delay_us: How much later; `None` is never; a backoff is by its attempts.
        now_us: From when on.
        max_attempts: Of the tube.
        error: Why it has failed; `None`: its last error stays.
    """

    dest: int
    delay_us: int | Backoff | None
    now_us: int
    max_attempts: int | None
    error: ErrorTexts | None = None


@dataclass(frozen=True, slots=True)
class Touch:
    """A held row has more time: its lease, its life, and the ttr of later takes.

    Attributes:
        moves: The fresh segment for each lease segment.
        increment_us: How much.
    """

    moves: Mapping[int, int]
    increment_us: int


@dataclass(frozen=True, slots=True)
class Renew:
    """A held row has a new lease; what has neither lease nor life left is not asked.

    Attributes:
        moves: The fresh segment for each lease segment.
        lease: The leases.
    """

    moves: Mapping[int, int]
    lease: NewLease


@dataclass(frozen=True, slots=True)
class Move:
    """A row moves to another segment, and nothing else: one for all, or one for each segment."""

    to: int | Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Become:
    """One row, given back as a verb has decided.

    Attributes:
        dest: The segment.
        after: What it becomes.
        data: Whether its payload (JSON text) changes, too.
        event: What the feed of changes notes; `None`: that it was released.
        max_attempts: Of the tube, for a release.
    """

    dest: int
    after: StoredTask
    data: bool = False
    event: Event | None = None
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What one call of a take gets: the rows after those of the call before it.

    Attributes:
        last: The last position in the order that goes there.
        segment: The lease segment, which small takes of one commit share.
        take_id: The take id, which no other call has.
    """

    last: OrderPosition
    segment: int
    take_id: int


@dataclass(frozen=True, slots=True)
class Take:
    """A row is taken: it moves to a lease segment, and its lease begins.

    Attributes:
        shares: What each call gets, in the order of the rows.
        lease: Who takes, and from when on.
    """

    shares: Sequence[Share]
    lease: NewLease


Change: TypeAlias = Remove | GiveBack | Delay | Touch | Renew | Move | Become | Take


@dataclass(frozen=True, slots=True)
class Release:
    """How a program releases tasks.

    Attributes:
        delay_us: Until they are ready, in microseconds; 0 is at once, `None` never, a backoff by its attempts.
        error: Why they have failed; `None`: nobody says.
        by_backoff: Whether the backoff of the tube decides about the delay, where it has one and there is an error.
    """

    delay_us: int | Backoff | None = 0
    error: ErrorTexts | None = None
    by_backoff: bool = False

    def delay(self, backoff: Backoff | None) -> int | Backoff | None:
        """The delay in a tube with this backoff."""
        if not self.by_backoff or self.error is None or backoff is None:
            return self.delay_us
        return backoff if backoff.delays else 0


def released(
    dest: int,
    delay_us: int | Backoff | None,
    now_us: int,
    max_attempts: int | None,
    error: ErrorTexts | None = None,
) -> GiveBack | Delay:
    """What a release makes of a held row: ready, delayed, or buried when its attempts are used up.

    Args:
        dest: A fresh segment.
        delay_us: Until it is ready, in microseconds; 0 is at once, `None` never, a backoff by its attempts.
        now_us: The moment.
        max_attempts: Of the tube.
        error: Why it has failed; `None`: its last error stays.
    """
    if delay_us == 0:
        return GiveBack(dest, max_attempts=max_attempts, error=error)
    return Delay(dest, delay_us, now_us, max_attempts, error)


def errors_of(change: Change) -> Mapping[int, str] | None:
    """The errors that a change sets for each task by its id; `None`: none, or one for all."""
    if isinstance(change, GiveBack | Delay) and isinstance(change.error, Mapping):
        return change.error
    return None


def segments_of(change: Change) -> list[int]:
    """The fresh segments that rows move to."""
    match change:
        case Remove(gone):
            return [] if gone is None else [gone]
        case GiveBack() | Delay() | Become():
            return [change.dest]
        case Touch(moves) | Renew(moves):
            return list(moves.values())
        case Move(to):
            return [to] if isinstance(to, int) else list(to.values())
        case Take(shares):
            return list(dict.fromkeys(share.segment for share in shares))
