"""The changes of stored rows by a statement, as data: which rows, and their new values.

A verb describes its change once, by these classes. Storage renders them for its engine. `of`
applies a change to a row in Python, for the tasks that a verb returns and for the queue in memory.
A test compares both for a grid of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from tubeq_spark.rules.lifecycle import after_giving_back, due, expired
from tubeq_spark.rules.microseconds import FOREVER_S, plus
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.rules.order import OrderPosition
    from tubeq_spark.rules.stored_task import StoredTask

__all__ = [
    "FOREVER_US",
    "Become",
    "Buried",
    "Change",
    "Delay",
    "Due",
    "Event",
    "Every",
    "GiveBack",
    "InSegments",
    "Lapsed",
    "Move",
    "Named",
    "Older",
    "Remove",
    "Renew",
    "Take",
    "Takeable",
    "Touch",
    "Which",
    "released",
    "segments_of",
    "taken",
]

FOREVER_US = int(FOREVER_S * 1_000_000)


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

    With `over` only those whose life has ended. Tasks that were kept when they were done are apart from all
    others: they have come to their end before.
    """

    now_us: int
    over: bool = False
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Lapsed:
    """Rows that have neither a lease nor a life left at a moment."""

    now_us: int


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
    """Rows up to a task id; with `taken` only those that somebody holds."""

    last_id: int
    taken: bool = False


Which: TypeAlias = Every | Named | InSegments | Due | Lapsed | Takeable | Buried | Older


# -- what becomes of them ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remove:
    """A row goes: by an ack, or, with a segment for gone rows, by something else.

    Attributes:
        gone: A fresh segment for rows that the feed of changes must not take for acked.
        event: What the feed notes of them; `None`: nothing.
    """

    gone: int | None = None
    event: Event | None = None

    def of(self, _row: StoredTask) -> None:
        """Nothing is left of it."""


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
            given, nothing.
    """

    dest: int
    state: TaskState | None = None
    max_attempts: int | None = None
    attempts: int | None = None
    untaken: bool = False
    event: Event | None = None

    def of(self, row: StoredTask) -> StoredTask:
        """The row after it."""
        state = self.state
        if state is None:
            held = row.state is TaskState.TAKEN
            state = after_giving_back(row.attempts, self.max_attempts if held else None)
        attempts = row.attempts - self.untaken if self.attempts is None else self.attempts
        return replace(row.given_back(state), segment=self.dest, attempts=attempts)


@dataclass(frozen=True, slots=True)
class Delay:
    """A held row is released for later, or buried when it has used up its attempts.

    Its life grows by the delay.

    Attributes:
        dest: The segment.
        delay_us: How much later; `None` is never.
        now_us: From when on.
        max_attempts: Of the tube.
    """

    dest: int
    delay_us: int | None
    now_us: int
    max_attempts: int | None

    def of(self, row: StoredTask) -> StoredTask:
        """The row after it."""
        row = replace(row, segment=self.dest)
        if after_giving_back(row.attempts, self.max_attempts) is TaskState.BURIED:
            return row.given_back(TaskState.BURIED)
        ttl = _longer(row.ttl, self.delay_us)
        return replace(
            row.given_back(TaskState.DELAYED),
            next_event=plus(self.now_us, self.delay_us),
            ttl=ttl,
            expires_at=None if ttl is None else plus(row.expires_at, self.delay_us),
        )


@dataclass(frozen=True, slots=True)
class Touch:
    """A held row has more time: its lease, its life, and the ttr of later takes.

    Attributes:
        moves: The fresh segment for each lease segment.
        increment_us: How much.
    """

    moves: Mapping[int, int]
    increment_us: int

    def of(self, row: StoredTask) -> StoredTask:
        """The row after it."""
        ttl = _longer(row.ttl, self.increment_us)
        return replace(
            row,
            segment=self.moves[row.segment],
            next_event=plus(row.next_event, self.increment_us),
            ttl=ttl,
            ttr=_longer(row.ttr, self.increment_us),
            expires_at=None if ttl is None else plus(row.expires_at, self.increment_us),
        )


@dataclass(frozen=True, slots=True)
class Renew:
    """A held row has a new lease; what has neither lease nor life left is not asked.

    Attributes:
        moves: The fresh segment for each lease segment.
        lease: The leases.
    """

    moves: Mapping[int, int]
    lease: NewLease

    def of(self, row: StoredTask) -> StoredTask | None:
        """The row after it; `None`: it had neither a lease nor a life left."""
        if due(row.next_event, self.lease.at_us) and expired(row.expires_at, self.lease.at_us):
            return None
        segment = self.moves.get(row.segment, row.segment)
        return replace(row, segment=segment, next_event=self.lease.end(row.ttr))


@dataclass(frozen=True, slots=True)
class Move:
    """A row moves to another segment, and nothing else: one for all, or one for each segment."""

    to: int | Mapping[int, int]

    def of(self, row: StoredTask) -> StoredTask:
        """The row after it."""
        to = self.to if isinstance(self.to, int) else self.to[row.segment]
        return replace(row, segment=to)


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

    def of(self, row: StoredTask) -> StoredTask:
        """The row after it."""
        data = self.after.data if self.data else row.data
        return replace(
            self.after, segment=self.dest, data=data, owner=None, take_id=None, ttr=row.ttr
        )


@dataclass(frozen=True, slots=True)
class Take:
    """A row is taken: it moves to a lease segment, and its lease begins.

    Attributes:
        lease_segments: A lease segment for each consumer, with the last position in the order that
            goes there.
        lease: Who takes, and from when on.
    """

    lease_segments: Sequence[tuple[OrderPosition, int]]
    lease: NewLease

    def of(self, row: StoredTask, take_id: int | None = None) -> StoredTask:
        """The row after it; the number of its lease segment is its take id, unless it has another."""
        position = (row.pri, row.task_id)
        segment = next(
            (s for last, s in self.lease_segments if position <= (last.pri, last.task_id)),
            self.lease_segments[-1][1],
        )
        return taken(row, segment, self.lease, take_id)


Change: TypeAlias = Remove | GiveBack | Delay | Touch | Renew | Move | Become | Take


def taken(
    row: StoredTask, lease_segment: int, lease: NewLease, take_id: int | None = None
) -> StoredTask:
    """A row as a take has left it."""
    return replace(
        row,
        segment=lease_segment,
        take_id=lease_segment if take_id is None else take_id,
        owner=lease.owner,
        state=TaskState.TAKEN,
        attempts=row.attempts + 1,
        next_event=lease.end(row.ttr),
    )


def released(
    dest: int, delay_us: int | None, now_us: int, max_attempts: int | None
) -> GiveBack | Delay:
    """What a release makes of a held row: ready, delayed, or buried when its attempts are used up.

    Args:
        dest: A fresh segment.
        delay_us: Until it is ready, in microseconds; 0 is at once, `None` never.
        now_us: The moment.
        max_attempts: Of the tube.
    """
    if delay_us == 0:
        return GiveBack(dest, max_attempts=max_attempts)
    return Delay(dest, delay_us, now_us, max_attempts)


def segments_of(change: Change) -> list[int]:
    """The fresh segments that rows move to."""
    match change:
        case Remove(gone, _):
            return [] if gone is None else [gone]
        case GiveBack() | Delay() | Become():
            return [change.dest]
        case Touch(moves) | Renew(moves):
            return list(moves.values())
        case Move(to):
            return [to] if isinstance(to, int) else list(to.values())
        case Take(lease_segments):
            return [segment for _, segment in lease_segments]


def _longer(duration_us: int | None, amount_us: int | None) -> int | None:
    """A duration made longer; a hundred years or more is never."""
    total = plus(duration_us, amount_us)
    return None if total is None or total >= FOREVER_US else total
