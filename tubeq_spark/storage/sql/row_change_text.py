"""Renders `rules/row_changes.py` as SQL: which rows of a table `t`, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.rules.microseconds import LAST_US, plus
from tubeq_spark.rules.row_changes import (
    FOREVER_US,
    Become,
    Buried,
    Change,
    Delay,
    Due,
    Event,
    Every,
    GiveBack,
    InSegments,
    Lapsed,
    Move,
    Named,
    Older,
    Remove,
    Renew,
    Take,
    Takeable,
    Touch,
    Which,
)
from tubeq_spark.storage.sql import predicates
from tubeq_spark.storage.sql.quoting import bigint, bigints, integer, moment, string
from tubeq_spark.storage.statement import Clause
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.storage.sql.tube_table import TubeTable

__all__ = ["GONE", "clause_of", "condition_of", "taking"]

_TAKEN = string(TaskState.TAKEN.value)
_DELAYED = string(TaskState.DELAYED.value)
_BURIED = string(TaskState.BURIED.value)
_READY = string(TaskState.READY.value)
#: State of a row that has gone, in a tube with a change feed, and of a task that was kept when it was done.
GONE = string(TaskState.DONE.value)
#: What is NULL of a row that nobody holds.
_NOBODYS = {"owner": string(None), "claim": bigint(None)}


def clause_of(table: TubeTable, which: Which, change: Change) -> Clause:
    """What becomes of some rows of a tube, as a clause of a statement."""
    return Clause(_sets(table, change), condition_of(table, which))


def condition_of(table: TubeTable, which: Which) -> str:  # noqa: PLR0911  (one of each)
    """The SQL condition for some rows `t` of a tube."""
    match which:
        case Every():
            return "TRUE"
        case Named():
            return "s.chosen"
        case InSegments(segments):
            return f"t.segment IN ({bigints(segments)})"
        case Due(now_us, over, kept):
            due = f"{predicates.is_due(now_us, 't.')} AND t.state {'=' if kept else '<>'} {GONE}"
            return f"{due} AND {predicates.is_over(now_us, 't.')}" if over else due
        case Lapsed(now_us):
            return predicates.has_lapsed(now_us, "t.")
        case Takeable(last, now_us):
            return f"{table.up_to(last, 't.')} AND {predicates.is_takeable(now_us, 't.')}"
        case Buried(last, now_us):
            return f"{predicates.is_buried(now_us, 't.')} AND {table.up_to(last, 't.')}"
        case Older(last_id, held):
            older = f"t.task_id <= {bigint(last_id)}"
            return f"{older} AND t.state = {_TAKEN}" if held else older


def _sets(table: TubeTable, change: Change) -> dict[str, str] | None:  # noqa: PLR0911  (one of each)
    """The columns that a change sets; `None`: the row is removed."""
    match change:
        case Remove(gone, event):
            return _removal(table, gone, event)
        case GiveBack():
            return _given_back(table, change)
        case Delay():
            return _delayed(change) | _event_of(table, None, change.max_attempts)
        case Touch(moves, increment_us):
            return {
                "segment": _moved(moves),
                "next_event": predicates.plus_us("t.next_event", increment_us, LAST_US),
                "ttl": _grown("ttl", increment_us),
                "ttr": _grown("ttr", increment_us),
                "expires_at": _end("expires_at", increment_us),
            } | _noted(table, "'touch'")
        case Renew(moves, lease):
            return {
                "segment": _moved(moves),
                "next_event": predicates.lease_end(lease, "t.ttr"),
            } | _noted(table, string(None))
        case Move(to):
            segment = bigint(to) if isinstance(to, int) else _moved(to)
            return {"segment": segment} | _noted(table, string(None))
        case Become():
            return _become(change) | _event_of(table, change.event, change.max_attempts)
        case Take(lease_segments, lease):
            branches = "".join(
                f"WHEN {table.up_to(position, 't.')} THEN {bigint(lease_segment)} "
                for position, lease_segment in lease_segments[:-1]
            )
            last = bigint(lease_segments[-1][1])
            return taking(table, f"CASE {branches}ELSE {last} END" if branches else last, lease)


def taking(
    table: TubeTable, lease_segment: str, lease: NewLease, take_id: str | None = None
) -> dict[str, str]:
    """What every take sets: a row moves to a lease segment (in SQL), and its lease begins.

    The number of the lease segment is the take id, too, unless another is given.
    """
    # What is delayed is taken only when that is over.
    events = f"CASE WHEN t.state = {_DELAYED} THEN 'delay take' ELSE 'take' END"
    return {
        "segment": lease_segment,
        "claim": take_id or lease_segment,
        "state": _TAKEN,
        "owner": string(lease.owner),
        "attempts": "t.attempts + 1",
        "taken_at": moment(lease.at_us),
        "next_event": predicates.lease_end(lease, "t.ttr"),
    } | _noted(table, events)


def _given_back(table: TubeTable, change: GiveBack) -> dict[str, str]:
    state = predicates.readied_state(change.max_attempts, "t.")
    if change.state is not None:
        state = string(change.state.value)
    elif change.max_attempts is not None:
        state = f"CASE WHEN t.state = {_TAKEN} THEN {state} ELSE {_READY} END"
    sets = {
        "segment": bigint(change.dest),
        "state": state,
        "next_event": "t.expires_at",
        **_NOBODYS,
    }
    if change.attempts is not None:
        sets["attempts"] = integer(change.attempts)
    elif change.untaken:
        sets["attempts"] = "t.attempts - 1"
    return sets | _event_of(table, change.event, change.max_attempts)


def _delayed(change: Delay) -> dict[str, str]:
    worn = _is_worn(change.max_attempts)
    due = plus(change.now_us, change.delay_us)
    grown, end = _grown("ttl", change.delay_us), _end("expires_at", change.delay_us)
    return {
        "segment": bigint(change.dest),
        **_NOBODYS,
        "state": f"CASE WHEN {worn} THEN {_BURIED} ELSE {_DELAYED} END",
        "next_event": f"CASE WHEN {worn} THEN t.expires_at ELSE {moment(due)} END",
        "ttl": f"CASE WHEN {worn} THEN t.ttl ELSE {grown} END",
        "expires_at": f"CASE WHEN {worn} THEN t.expires_at ELSE {end} END",
    }


def _become(change: Become) -> dict[str, str]:
    after = change.after
    sets = {
        "segment": bigint(change.dest),
        **_NOBODYS,
        "state": string(after.state.value),
        "pri": integer(after.pri),
        "ttl": bigint(after.ttl),
        "next_event": moment(after.next_event),
        "expires_at": moment(after.expires_at),
        "attempts": integer(after.attempts),
    }
    return sets | {"data": string(after.data)} if change.data else sets


def _removal(table: TubeTable, gone: int | None, event: Event | None) -> dict[str, str] | None:
    """A row goes: with a change feed only an ack deletes it, see `change_feed`."""
    if gone is None or not table.change_feed:
        return None
    events = string(None) if event is None else _events(event)
    return {
        "segment": bigint(gone),
        "tube": bigint(-table.id),
        "state": GONE,
    } | _noted(table, events)


# -- what the change feed notes -----------------------------------------------------------------------


def _noted(table: TubeTable, events: str) -> dict[str, str]:
    """The column that tells which events the row was written by (an SQL expression)."""
    return {"change": events} if table.change_feed else {}


def _event_of(table: TubeTable, event: Event | None, max_attempts: int | None) -> dict[str, str]:
    """The events of a change; `None` is a release, which buries what has used up its attempts."""
    if event is not None:
        return _noted(table, _events(event))
    worn = _is_worn(max_attempts)
    return _noted(table, f"CASE WHEN {worn} THEN 'bury release' ELSE 'release' END")


def _events(event: Event) -> str:
    """An event, after those that time had brought and nobody had written down."""
    if event.time_us is None:
        return string(event.name)
    due = f"t.next_event <= {moment(event.time_us)}"
    worn = _is_worn(event.max_attempts)
    return (
        f"concat(CASE WHEN t.state = {_DELAYED} AND {due} THEN 'delay ' "
        f"WHEN t.state = {_TAKEN} AND {due} THEN CASE WHEN {worn} THEN 'ttr bury ' ELSE 'ttr ' END "
        f"ELSE '' END, {string(event.name)})"
    )


def _is_worn(max_attempts: int | None) -> str:
    return f"({predicates.readied_state(max_attempts, 't.')}) = {_BURIED}"


# -- columns -----------------------------------------------------------------------------------------


def _moved(moves: Mapping[int, int]) -> str:
    """The fresh segment of a row, by the one it is in."""
    cases = " ".join(f"WHEN {bigint(a)} THEN {bigint(b)}" for a, b in moves.items())
    return f"CASE t.segment {cases} END"


def _grown(column: str, amount_us: int | None) -> str:
    """A duration made longer; a hundred years or more is never."""
    if amount_us is None:
        return "CAST(NULL AS BIGINT)"
    longer = f"t.{column} + {bigint(amount_us)}"
    return f"CASE WHEN {longer} < {bigint(FOREVER_US)} THEN {longer} END"


def _end(column: str, amount_us: int | None) -> str:
    """The end of a life whose ttl grows."""
    if amount_us is None:
        return "CAST(NULL AS TIMESTAMP)"
    longer = f"t.ttl + {bigint(amount_us)} < {bigint(FOREVER_US)}"
    return f"CASE WHEN {longer} THEN {predicates.plus_us('t.' + column, amount_us, LAST_US)} END"
