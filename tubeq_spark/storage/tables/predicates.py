"""Conditions over a tube's rows, made from the tables of `model.states`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.model.lease_times import UNNOTICED
from tubeq_spark.model.states import TIMERS, Timer
from tubeq_spark.storage.expression import (
    Case,
    Column,
    Greatest,
    Micros,
    Moment,
    Quotient,
    Type,
    all_of,
    any_of,
    at,
    case,
    integer,
    literal,
    null,
    row,
)
from tubeq_spark.storage.query import Among
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tubeq_spark.model.lease_times import NewLease
    from tubeq_spark.storage.expression import Expression, Row

_HOLDING = {state: timer for state, timer in TIMERS.items() if timer.event is not None}
#: Stored states that a take moves itself; ended leases, in lease segments, are written down first.
_TAKEABLE = tuple(
    state
    for state, timer in TIMERS.items()
    if timer.becomes is TaskState.READY and state is not TaskState.TAKEN
)
_ROW = row()


def of_utubes(utubes: Collection[str | None]) -> Expression:
    """Rows of these sub-queues; NULL may be one of them."""
    if len(utubes) > MOST_NAMED:
        return Among(_ROW.utube, utubes, Type.STRING)
    texts = [utube for utube in utubes if utube is not None]
    named: list[Expression] = [_ROW.utube.is_in(texts)] if texts else []
    return any_of(*named, _ROW.utube.is_null()) if None in utubes else any_of(*named)


def _due(moment: Column, now_us: int) -> Expression:
    return moment <= at(now_us)


def _alive(now_us: int, of: Row) -> Expression:
    return of.expires_at.is_null() | (of.expires_at > at(now_us))


def _one_of(states: Sequence[TaskState], of: Row) -> Expression:
    return of.state.is_in(state.value for state in states)


def _waits_no_more(now_us: int, of: Row) -> Expression:
    """Not in a lease segment, and not delayed."""
    waiting = [s for s in _TAKEABLE if s in _HOLDING]
    free = [s for s in _TAKEABLE if s not in _HOLDING]
    return _one_of(free, of) | (_one_of(waiting, of) & _due(of.next_event, now_us))


def is_takeable(now_us: int, of: Row = _ROW) -> Expression:
    """Effectively ready, and not in a lease segment."""
    return _waits_no_more(now_us, of) & _alive(now_us, of)


def is_ready(now_us: int, max_attempts: int | None, of: Row = _ROW) -> Expression:
    """Effectively ready: takeable now, or after its ended lease is written."""
    ended = (of.state == TaskState.TAKEN.value) & _due(of.next_event, now_us)
    if max_attempts is not None:
        ended &= of.attempts < integer(max_attempts)
    # An engine plans each part of a condition separately, so common parts are factored out.
    return (_waits_no_more(now_us, of) | ended) & _alive(now_us, of)


def is_buried(now_us: int, of: Row = _ROW) -> Expression:
    """Buried, and its ttl has not ended."""
    return _one_of([TaskState.BURIED], of) & _alive(now_us, of)


def is_over(now_us: int, of: Row = _ROW) -> Expression:
    """Its ttl has ended (perhaps its lease or delay has not)."""
    return ~_alive(now_us, of)


def is_due(now_us: int, of: Row = _ROW) -> Expression:
    """Its state has changed by time, but is not written yet."""
    free = [s for s in TIMERS if s not in _HOLDING]
    return (_one_of(list(_HOLDING), of) & _due(of.next_event, now_us)) | (
        _one_of(free, of) & _due(of.expires_at, now_us)
    )


def due_at(of: Row = _ROW) -> Expression:
    """The time of the next change by time; NULL is never."""
    return case((_one_of(list(_HOLDING), of), of.next_event), other=of.expires_at)


def readied_state(max_attempts: int | None, of: Row = _ROW) -> Expression:
    """The state after a release: ready, or buried by `max_attempts`."""
    ready, buried = TaskState.READY.value, TaskState.BURIED.value
    if max_attempts is None:
        return literal(ready)
    return case((of.attempts >= integer(max_attempts), buried), other=ready)


def effective_state(
    now_us: int, max_attempts: int | None, of: Row = _ROW, over: Collection[str] = ()
) -> Expression:
    """The effective state; NULL if the task's ttl has ended.

    Leases of owners whose sessions are over have ended.
    """
    branches: list[tuple[Expression, Expression]] = []
    for state in _HOLDING:
        holds = all_of(
            of.state == state.value, of.next_event.is_null() | (of.next_event > at(now_us))
        )
        if over and state is TaskState.TAKEN:
            holds &= of.owner.not_in(over)
        branches.append((holds, literal(state.value)))
    branches.append((is_over(now_us, of), null(Type.STRING)))
    branches += [
        (of.state == state.value, _becomes(timer, max_attempts, of))
        for state, timer in TIMERS.items()
    ]
    return Case(tuple(branches))


def is_effectively(
    state: TaskState, now_us: int, max_attempts: int | None, over: Collection[str] = ()
) -> Expression:
    """Whether a task is in an effective state; arguments as of `effective_state`."""
    return effective_state(now_us, max_attempts, over=over) == state.value


def _becomes(timer: Timer, max_attempts: int | None, of: Row) -> Expression:
    if timer.event == "ttr":
        return readied_state(max_attempts, of)
    return literal(timer.becomes.value)


def lease_end(lease: NewLease, ttr: Expression) -> Expression:
    """The end of a lease that begins now; never if its ttr is NULL."""
    length = ttr
    if lease.headroom_us:
        length = Greatest((ttr, ttr - Quotient(ttr, UNNOTICED) + lease.headroom_us))
    return Moment(literal(lease.at_us) + length)


def has_lapsed(now_us: int, of: Row = _ROW) -> Expression:
    """Its ttl has ended, and its lease or delay, too."""
    return _due(of.next_event, now_us) & _due(of.expires_at, now_us)


def plus_us(column: Column, amount_us: int, last_us: int) -> Expression:
    """A time plus microseconds; never if the sum is too large."""
    moved = Micros(column) + amount_us
    return case((moved <= last_us, Moment(moved)))
