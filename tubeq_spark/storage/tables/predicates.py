"""Conditions over a tube's rows, made from the tables of `model.stored_task`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.clock import FOREVER_US, LAST_US
from tubeq_spark.model.failures import PRIME, SPREAD
from tubeq_spark.model.ids import POSITION_BITS, SLOT_BITS, SLOTS
from tubeq_spark.model.stored_task import TIMERS, Timer
from tubeq_spark.model.takes import UNNOTICED
from tubeq_spark.storage.expression import (
    FALSE,
    Case,
    Column,
    Greatest,
    Mapped,
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
    small,
)
from tubeq_spark.storage.query import Among
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tubeq_spark.model.failures import Backoff
    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.storage.expression import Expression, Row

_HOLDING = {state: timer for state, timer in TIMERS.items() if timer.event is not None}
_ROW = row()


def one_of(column: Column, values: Collection[int] | Collection[str], kind: Type) -> Expression:
    """Rows with one of some values of a column, at least one."""
    if len(values) <= MOST_NAMED:
        return column.is_in(values)
    # With a range, file statistics skip files that a join alone would read.
    return all_of(column >= min(values), column <= max(values), Among(column, values, kind))


def of_utubes(utubes: Collection[str | None]) -> Expression:
    """Rows of these sub-queues; NULL may be one of them."""
    if len(utubes) > MOST_NAMED:
        return Among(_ROW.utube, utubes, Type.STRING)
    texts = [utube for utube in utubes if utube is not None]
    named: list[Expression] = [_ROW.utube.is_in(texts)] if texts else []
    return any_of(*named, _ROW.utube.is_null()) if None in utubes else any_of(*named)


def _due(moment: Column, now_us: int) -> Expression:
    return moment <= at(now_us)


def is_alive(now_us: int, of: Row = _ROW) -> Expression:
    """Its ttl has not ended."""
    return of.expires_at.is_null() | (of.expires_at > at(now_us))


def _one_of(states: Sequence[TaskState], of: Row) -> Expression:
    return of.state.is_in(state.value for state in states)


def _waits_no_more(now_us: int, of: Row) -> Expression:
    """Not in a lease segment, and not delayed."""
    delayed = _one_of([TaskState.DELAYED], of) & _due(of.next_event, now_us)
    return _one_of([TaskState.READY], of) | delayed


def is_ready(now_us: int, max_attempts: int | None, of: Row = _ROW) -> Expression:
    """Effectively ready: takeable now, or after its ended lease is written."""
    ended = (of.state == TaskState.TAKEN.value) & _due(of.next_event, now_us)
    if max_attempts is not None:
        ended &= of.attempts < integer(max_attempts)
    # An engine plans each part of a condition separately, so common parts are factored out.
    return (_waits_no_more(now_us, of) | ended) & is_alive(now_us, of)


def is_buried(now_us: int, of: Row = _ROW) -> Expression:
    """Buried, and its ttl has not ended."""
    return _one_of([TaskState.BURIED], of) & is_alive(now_us, of)


def is_free_key(now_us: int, until_us: int | None = None, of: Row = _ROW) -> Expression:
    """A row for a key that is free at a moment; with `until_us` a row of a put up to another moment."""
    return ~is_alive(now_us, of) if until_us is None else of.created <= at(until_us)


def backoff_us(backoff: Backoff, of: Row = _ROW) -> Expression:
    """The delay of a failed task in microseconds, by its attempts and its id; as `Backoff.delay_us`."""
    steps = backoff.steps()
    delay, jitter = (_by_attempts([step[part] for step in steps], of) for part in (0, 1))
    if not any(longer for _, longer in steps):
        return delay
    place = _remainder(_remainder(of.task_id) * SPREAD)
    return delay + Quotient(jitter * (place + place - (PRIME - 1)), PRIME - 1)


def _by_attempts(values: Sequence[int], of: Row) -> Expression:
    """The value for the number of attempts. The last value is for all higher numbers, too."""
    branches = [(of.attempts <= small(n), value) for n, value in enumerate(values[:-1], 1)]
    return case(*branches, other=values[-1])


def _remainder(part: Expression) -> Expression:
    return part - Quotient(part, PRIME) * PRIME


def is_due(now_us: int, of: Row = _ROW) -> Expression:
    """Its state has changed by time, but is not written yet."""
    free = [s for s in TIMERS if s not in _HOLDING]
    return (_one_of(list(_HOLDING), of) & _due(of.next_event, now_us)) | (
        _one_of(free, of) & _due(of.expires_at, now_us)
    )


def due_at() -> Expression:
    """The moment of the next change by time; NULL is never."""
    return case((_one_of(list(_HOLDING), _ROW), _ROW.next_event), other=_ROW.expires_at)


def is_worn(max_attempts: int | None, of: Row = _ROW) -> Expression:
    """Taken `max_attempts` times."""
    return FALSE if max_attempts is None else of.attempts >= integer(max_attempts)


def readied_state(max_attempts: int | None, of: Row = _ROW) -> Expression:
    """The state after a release: ready, or buried by `max_attempts`."""
    ready, buried = TaskState.READY.value, TaskState.BURIED.value
    if max_attempts is None:
        return literal(ready)
    return case((is_worn(max_attempts, of), buried), other=ready)


def effective_state(
    now_us: int, max_attempts: int | None, of: Row = _ROW, over: Collection[str] = ()
) -> Expression:
    """The effective state; NULL if the task's ttl has ended.

    Leases of owners whose sessions are over have ended. A backoff delays a task when the end of its lease is written.
    """
    branches: list[tuple[Expression, Expression]] = []
    for state in _HOLDING:
        holds = all_of(
            of.state == state.value, of.next_event.is_null() | (of.next_event > at(now_us))
        )
        if over and state is TaskState.TAKEN:
            holds &= of.owner.not_in(over)
        branches.append((holds, literal(state.value)))
    branches.append((~is_alive(now_us, of), null(Type.STRING)))
    branches += [
        (of.state == state.value, _becomes(timer, max_attempts, of))
        for state, timer in TIMERS.items()
    ]
    return Case(tuple(branches))


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


def slot(of: Row = _ROW) -> Expression:
    """The slot of a task id, as `ids.slot_of` computes it."""
    return Quotient(of.task_id, 1 << POSITION_BITS) - (
        Quotient(of.task_id, 1 << (POSITION_BITS + SLOT_BITS)) * SLOTS
    )


def is_older(newest: Mapping[int, int], of: Row = _ROW) -> Expression:
    """Put no later than the newest id of its slot. The ids of one slot only grow, whatever clocks say."""
    return of.task_id <= Mapped(slot(of), tuple(newest.items()))


def plus_us(column: Column, amount_us: int | Expression, last_us: int) -> Expression:
    """A time plus microseconds; never if the sum is too large."""
    moved = Micros(column) + amount_us
    return case((moved <= last_us, Moment(moved)))


def grown(column: Column, amount_us: int | Expression | None) -> Expression:
    """A duration plus microseconds; a hundred years or more is never."""
    if amount_us is None:
        return null(Type.BIGINT)
    longer = column + amount_us
    return case((longer < FOREVER_US, longer))


def end_of_life(of: Row, amount_us: int | Expression | None) -> Expression:
    """The end of a ttl that grows."""
    if amount_us is None:
        return null(Type.TIMESTAMP)
    longer = of.ttl + amount_us < FOREVER_US
    return case((longer, plus_us(of.expires_at, amount_us, LAST_US)))
