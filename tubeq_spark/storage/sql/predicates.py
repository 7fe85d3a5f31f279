"""SQL conditions over a tube's rows, rendered from the tables of `lifecycle`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.rules.lease_times import UNNOTICED
from tubeq_spark.rules.lifecycle import TIMERS, Timer
from tubeq_spark.storage.sql.quoting import bigint, integer, moment, string
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tubeq_spark.rules.lease_times import NewLease

__all__ = [
    "due_at",
    "effective_state",
    "has_lapsed",
    "is_buried",
    "is_due",
    "is_over",
    "is_ready",
    "is_takeable",
    "lease_end",
    "of_tube",
    "of_utubes",
    "plus_us",
    "readied_state",
]

_HOLDING = {state: timer for state, timer in TIMERS.items() if timer.event is not None}
#: Stored states that a take moves itself; ended leases, in lease segments, are written down first.
_TAKEABLE = tuple(
    state
    for state, timer in TIMERS.items()
    if timer.becomes is TaskState.READY and state is not TaskState.TAKEN
)


def of_tube(tube_id: int, alias: str = "") -> str:
    """Rows of this tube, not leftovers of a dropped one of the same name."""
    return f"{alias}tube = {bigint(tube_id)}"


def of_utubes(utubes: Collection[str | None]) -> str:
    """Rows of these sub-queues, of which NULL is one."""
    texts = ", ".join(string(utube) for utube in utubes if utube is not None)
    named = [f"utube IN ({texts})"] if texts else []
    return f"({' OR '.join([*named, 'utube IS NULL'] if None in utubes else named)})"


def _due(column: str, now_us: int, alias: str) -> str:
    return f"{alias}{column} <= {moment(now_us)}"


def _alive(now_us: int, alias: str) -> str:
    return f"({alias}expires_at IS NULL OR {alias}expires_at > {moment(now_us)})"


def _one_of(states: Sequence[TaskState], alias: str) -> str:
    return f"{alias}state IN ({', '.join(string(state.value) for state in states)})"


def _waits_no_more(now_us: int, alias: str) -> str:
    """Not in anybody's lease segment, and not delayed."""
    waiting = [s for s in _TAKEABLE if s in _HOLDING]
    free = [s for s in _TAKEABLE if s not in _HOLDING]
    return (
        f"{_one_of(free, alias)} OR "
        f"({_one_of(waiting, alias)} AND {_due('next_event', now_us, alias)})"
    )


def is_takeable(now_us: int, alias: str = "") -> str:
    """Effectively ready, and not in anybody's lease segment."""
    return f"({_waits_no_more(now_us, alias)}) AND {_alive(now_us, alias)}"


def is_ready(now_us: int, max_attempts: int | None, alias: str = "") -> str:
    """Effectively ready: takeable at once, or after the end of a lease is written down."""
    ended = (
        f"{alias}state = {string(TaskState.TAKEN.value)} AND {_due('next_event', now_us, alias)}"
    )
    if max_attempts is not None:
        ended += f" AND {alias}attempts < {integer(max_attempts)}"
    # An engine plans each part of a condition anew, so what both have in common stands there once.
    return f"(({_waits_no_more(now_us, alias)} OR ({ended})) AND {_alive(now_us, alias)})"


def is_buried(now_us: int, alias: str = "") -> str:
    """Buried, and its life is not over."""
    return f"{_one_of([TaskState.BURIED], alias)} AND {_alive(now_us, alias)}"


def is_over(now_us: int, alias: str = "") -> str:
    """Its life has ended (a lease or delay that still holds it apart)."""
    return f"NOT {_alive(now_us, alias)}"


def is_due(now_us: int, alias: str = "") -> str:
    """Time has changed it, but nobody has written that down."""
    free = [s for s in TIMERS if s not in _HOLDING]
    return (
        f"(({_one_of(list(_HOLDING), alias)} AND {_due('next_event', now_us, alias)}) OR "
        f"({_one_of(free, alias)} AND {_due('expires_at', now_us, alias)}))"
    )


def due_at(alias: str = "") -> str:
    """The moment that the next change by time comes, or came; NULL is never."""
    holding = _one_of(list(_HOLDING), alias)
    return f"CASE WHEN {holding} THEN {alias}next_event ELSE {alias}expires_at END"


def readied_state(max_attempts: int | None, alias: str = "") -> str:
    """Where a task goes that is given back: ready, or buried when worn out."""
    ready, buried = string(TaskState.READY.value), string(TaskState.BURIED.value)
    if max_attempts is None:
        return ready
    return f"CASE WHEN {alias}attempts >= {integer(max_attempts)} THEN {buried} ELSE {ready} END"


def effective_state(
    now_us: int, max_attempts: int | None, alias: str = "", over: Collection[str] = ()
) -> str:
    """The effective state as an expression; NULL when the task's life is over.

    Leases of owners whose sessions are over have ended.
    """
    lost = f" AND {alias}owner NOT IN ({', '.join(map(string, over))})" if over else ""
    branches = [
        f"WHEN {alias}state = {string(state.value)} AND "
        f"({alias}next_event IS NULL OR {alias}next_event > {moment(now_us)})"
        f"{lost if state is TaskState.TAKEN else ''} "
        f"THEN {string(state.value)}"
        for state in _HOLDING
    ]
    branches.append(f"WHEN NOT {_alive(now_us, alias)} THEN NULL")
    branches += [
        f"WHEN {alias}state = {string(state.value)} THEN {_becomes(timer, max_attempts, alias)}"
        for state, timer in TIMERS.items()
    ]
    return f"CASE {' '.join(branches)} END"


def _becomes(timer: Timer, max_attempts: int | None, alias: str) -> str:
    if timer.event == "ttr":
        return readied_state(max_attempts, alias)
    return string(timer.becomes.value)


def lease_end(lease: NewLease, column: str) -> str:
    """When a lease ends that begins now, its ttr in `column`; never when that is NULL."""
    length = column
    if lease.headroom_us:
        # Of NULLs `greatest` is NULL, too.
        headroom = bigint(lease.headroom_us)
        length = f"greatest({column}, {column} - {column} DIV {UNNOTICED}L + {headroom})"
    return f"timestamp_micros({bigint(lease.at_us)} + {length})"


def has_lapsed(now_us: int, alias: str = "") -> str:
    """Its life has ended, and its lease or delay, too."""
    return f"({_due('next_event', now_us, alias)} AND {_due('expires_at', now_us, alias)})"


def plus_us(column: str, amount_us: int, last_us: int) -> str:
    """A TIMESTAMP column moved by microseconds; past the last moment that counts it is never."""
    moved = f"unix_micros({column}) + {bigint(amount_us)}"
    return f"CASE WHEN {moved} <= {bigint(last_us)} THEN timestamp_micros({moved}) END"
