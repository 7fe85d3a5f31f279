"""Turns the changes of `model/changes.py` into clauses of statements on a table `t`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.clock import LAST_US, plus
from tubeq_spark.model.changes import (
    Become,
    Change,
    Due,
    Every,
    GiveBack,
    Move,
    Older,
    Remove,
    Renew,
    Touch,
    Which,
)
from tubeq_spark.model.failures import Backoff
from tubeq_spark.storage.expression import (
    TRUE,
    Literal,
    Moment,
    Type,
    at,
    case,
    integer,
    literal,
    null,
    row,
    small,
)
from tubeq_spark.storage.statement import Clause
from tubeq_spark.storage.tables import predicates
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from tubeq_spark.model.failures import ErrorTexts
    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.tables.tube_table import TubeTable

_TAKEN, _DELAYED = TaskState.TAKEN.value, TaskState.DELAYED.value
_BURIED = TaskState.BURIED.value
#: The state of a gone row in a tube with a change feed, and of a task that was kept as done.
GONE = TaskState.DONE.value
_T, _S = row("t"), row("s")
#: One take.
_COUNT = small(1)
#: The events of a change that buries a task which has used up its attempts.
_BURYING = {"release": "bury release", "ttr": "ttr bury"}
#: The events that happen at the `next_event` of a row.
_BY_TIME = ("ttr", "delay")


def _nobodys() -> dict[str, Expression]:
    """The columns that are NULL in a row that no session holds."""
    return {"owner": null(Type.STRING), "claim": null(Type.BIGINT)}


def clause_of(table: TubeTable, which: Which, change: Change) -> Clause:
    """A change of some rows of a tube, as a clause of a statement."""
    return Clause(_sets(table, change), condition_of(table, which))


def condition_of(table: TubeTable, which: Which) -> Expression:
    """The condition for some rows `t` of a tube."""
    match which:
        case Every():
            return TRUE
        case Due(now_us, over, state):
            due = predicates.is_due(now_us, _T)
            due &= _T.state != GONE if state is None else _T.state == state.value
            return due & ~predicates.is_alive(now_us, _T) if over else due
        case Older(newest, held):
            older = predicates.is_older(newest, _T)
            return older & (_T.state == _TAKEN) if held else older


def _sets(table: TubeTable, change: Change) -> dict[str, Expression] | None:
    """The columns that a change sets; `None` removes the row."""
    sets: dict[str, Expression]
    match change:
        case Remove():
            return _removal(table, change.gone, change.event)
        case GiveBack():
            sets = _given_back(table, change)
        case Touch(_, increment_us):
            sets = {
                "next_event": predicates.plus_us(_T.next_event, increment_us, LAST_US),
                "ttl": predicates.grown(_T.ttl, increment_us),
                "ttr": predicates.grown(_T.ttr, increment_us),
                "expires_at": predicates.end_of_life(_T, increment_us),
            } | _noted(table, literal("touch"))
        case Renew(_, lease):
            ends = {"next_event": predicates.lease_end(lease, _T.ttr)}
            sets = ends | _noted(table, null(Type.STRING))
        case Move():
            sets = _noted(table, null(Type.STRING))
        case Become():
            sets = _become(change) | _event_of(table, change.event)
    return {"segment": literal(change.dest), **sets}


def taking(
    table: TubeTable, lease_segment: Expression, lease: NewLease, take_id: Expression
) -> dict[str, Expression]:
    """The columns that every take sets: a row moves to a lease segment, and its lease begins."""
    # A delayed task is taken only after the end of its delay.
    events = case((_T.state == _DELAYED, "delay take"), other="take")
    return {
        "segment": lease_segment,
        "claim": take_id,
        "state": literal(_TAKEN),
        "owner": literal(lease.owner),
        "attempts": _T.attempts + _COUNT,
        "since": at(lease.at_us),
        "next_event": predicates.lease_end(lease, _T.ttr),
    } | _noted(table, events)


def _given_back(table: TubeTable, change: GiveBack) -> dict[str, Expression]:
    since = _T.next_event if change.event in _BY_TIME else at(change.now_us)
    if change.delay_us != 0:
        sets = _delayed(table, change) | _failed(change.error) | {"since": since}
        return sets | _event_of(table, change.event)
    if change.state is None:
        state = predicates.readied_state(table.max_attempts, _T)
        event = _event_of(table, change.event)
    else:
        state, event = literal(change.state.value), _noted(table, literal(change.event))
    sets = {"state": state, "since": since, "next_event": _T.expires_at}
    sets |= {**_nobodys(), **_failed(change.error)}
    if change.attempts is not None:
        sets["attempts"] = integer(change.attempts)
    elif change.untaken:
        sets["attempts"] = _T.attempts - _COUNT
    return sets | event


def _failed(error: ErrorTexts | None) -> dict[str, Expression]:
    """The column `error` of a failed task. Without an error it stays as it is."""
    if error is None:
        return {}
    return {"error": literal(error) if isinstance(error, str) else _S.error}


def _delayed(table: TubeTable, change: GiveBack) -> dict[str, Expression]:
    worn = predicates.is_worn(table.max_attempts, _T)
    amount: int | Expression | None
    if isinstance(change.delay_us, Backoff):
        amount = predicates.backoff_us(change.delay_us, _T)
        due: Expression = Moment(literal(change.now_us) + amount)
    else:
        amount, due = change.delay_us, at(plus(change.now_us, change.delay_us))
    grown, end = predicates.grown(_T.ttl, amount), predicates.end_of_life(_T, amount)
    return {
        **_nobodys(),
        "state": case((worn, _BURIED), other=_DELAYED),
        "next_event": case((worn, _T.expires_at), other=due),
        "ttl": case((worn, _T.ttl), other=grown),
        "expires_at": case((worn, _T.expires_at), other=end),
    }


def _become(change: Become) -> dict[str, Expression]:
    after = change.after
    sets: dict[str, Expression] = {
        **_nobodys(),
        "state": literal(after.state.value),
        "since": at(after.since),
        "pri": integer(after.pri),
        "ttl": Literal(after.ttl, Type.BIGINT),
        "next_event": at(after.next_event),
        "expires_at": at(after.expires_at),
        "attempts": integer(after.attempts),
    }
    return sets | {"data": Literal(after.data, Type.STRING)} if change.data else sets


def _removal(table: TubeTable, gone: int | None, event: str | None) -> dict[str, Expression] | None:
    """The columns of a removed row; `None` deletes it. With a change feed only acks delete rows, see `change_feed`."""
    if gone is None or not table.change_feed:
        return None
    events: Expression = Literal(event, Type.STRING)
    if event == "ttl":
        events = case(
            (_T.state == _DELAYED, "delay ttl"), (_T.state == _TAKEN, "ttr ttl"), other="ttl"
        )
    return {
        "segment": literal(gone),
        "tube": literal(-table.id),
        "state": literal(GONE),
    } | _noted(table, events)


# -- notes for the change feed ------------------------------------------------------------------------


def _noted(table: TubeTable, events: Expression) -> dict[str, Expression]:
    """The column with the events that have written the row."""
    return {"change": events} if table.change_feed else {}


def _event_of(table: TubeTable, event: str) -> dict[str, Expression]:
    """The events of a change. A release or the end of a lease buries tasks that have used up their attempts."""
    if event not in _BURYING or table.max_attempts is None:
        return _noted(table, literal(event))
    worn = predicates.is_worn(table.max_attempts, _T)
    return _noted(table, case((worn, _BURYING[event]), other=event))
