"""Turns the changes of `model/changes.py` into clauses of statements on a table `t`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.clock import FOREVER_US, LAST_US, plus
from tubeq_spark.model.changes import (
    Become,
    Change,
    Due,
    Every,
    GiveBack,
    Move,
    Remove,
    Renew,
    Touch,
    Which,
)
from tubeq_spark.model.failures import PRIME, SPREAD, Backoff
from tubeq_spark.storage.expression import (
    TRUE,
    Literal,
    Type,
    at,
    case,
    integer,
    literal,
    micros,
    moment,
    null,
    quotient,
    row,
)
from tubeq_spark.storage.statement import Clause
from tubeq_spark.storage.tables.tube_table import GONE, is_alive, lease_end
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.model.failures import ErrorTexts
    from tubeq_spark.storage.expression import Column, Expression
    from tubeq_spark.storage.tables.tube_table import TubeTable

_TAKEN, _DELAYED = TaskState.TAKEN.value, TaskState.DELAYED.value
_BURIED = TaskState.BURIED.value
_T, _S = row("t"), row("s")
#: One take.
_COUNT = integer(1)
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
            due = table.is_due(now_us, _T)
            due &= _T.state != GONE if state is None else _T.state == state.value
            return due & ~is_alive(now_us, _T) if over else due


def _sets(table: TubeTable, change: Change) -> dict[str, Expression] | None:
    """The columns that a change sets; `None` removes the row."""
    sets: dict[str, Expression]
    match change:
        case Remove():
            return _removal(table, change.dest, change.event)
        case GiveBack():
            sets = _given_back(table, change)
        case Touch(_, increment_us):
            sets = {
                "next_event": _plus_us(_T.next_event, increment_us),
                "ttl": _grown(_T.ttl, increment_us),
                "ttr": _grown(_T.ttr, increment_us),
                "expires_at": _end_of_life(increment_us),
            } | table.noted(literal("touch"))
        case Renew(_, lease):
            ends = {"next_event": lease_end(lease, _T.ttr)}
            sets = ends | table.noted(null(Type.STRING))
        case Move():
            sets = table.noted(null(Type.STRING))
        case Become():
            sets = _become(change) | _event_of(table, change.event)
    return {"segment": literal(change.dest), **sets}


def _given_back(table: TubeTable, change: GiveBack) -> dict[str, Expression]:
    since = _T.next_event if change.event in _BY_TIME else at(change.now_us)
    if change.delay_us != 0:
        sets = _delayed(table, change) | _failed(change.error) | {"since": since}
        return sets | _event_of(table, change.event)
    if change.state is None:
        state = table.readied_state(_T)
        event = _event_of(table, change.event)
    else:
        state, event = literal(change.state.value), table.noted(literal(change.event))
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
    worn = table.is_worn(_T)
    amount: int | Expression
    if isinstance(change.delay_us, Backoff):
        amount = backoff_us(change.delay_us)
        due: Expression = moment(literal(change.now_us) + amount)
    else:
        # A delay without an end makes a ttl without one, as a hundred years do.
        amount = FOREVER_US if change.delay_us is None else change.delay_us
        due = at(plus(change.now_us, change.delay_us))
    grown, end = _grown(_T.ttl, amount), _end_of_life(amount)
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
    } | table.noted(events)


# -- moments and durations -----------------------------------------------------------------------


def backoff_us(backoff: Backoff) -> Expression:
    """The delay of a failed task in microseconds, by its attempts and its id; as `Backoff.delay_us`."""
    steps = backoff.steps()
    delay, jitter = (_by_attempts([step[part] for step in steps]) for part in (0, 1))
    if not any(longer for _, longer in steps):
        return delay
    place = _remainder(_remainder(_T.task_id) * SPREAD)
    return delay + quotient(jitter * (place + place - (PRIME - 1)), PRIME - 1)


def _by_attempts(values: Sequence[int]) -> Expression:
    """The value for the number of attempts. The last value is for all higher numbers, too."""
    branches = [(_T.attempts <= integer(n), value) for n, value in enumerate(values[:-1], 1)]
    return case(*branches, other=values[-1])


def _remainder(part: Expression) -> Expression:
    return part - quotient(part, PRIME) * PRIME


def _plus_us(column: Column, amount_us: int | Expression) -> Expression:
    """A time plus microseconds; never if the sum is too large."""
    moved = micros(column) + amount_us
    return case((moved <= LAST_US, moment(moved)))


def _grown(column: Column, amount_us: int | Expression) -> Expression:
    """A duration plus microseconds; a hundred years or more is never."""
    longer = column + amount_us
    return case((longer < FOREVER_US, longer))


def _end_of_life(amount_us: int | Expression) -> Expression:
    """The end of a ttl that grows."""
    longer = _T.ttl + amount_us < FOREVER_US
    return case((longer, _plus_us(_T.expires_at, amount_us)))


# -- notes for the change feed ------------------------------------------------------------------------


def _event_of(table: TubeTable, event: str) -> dict[str, Expression]:
    """The events of a change. A release or the end of a lease buries tasks that have used up their attempts."""
    if event not in _BURYING or table.max_attempts is None:
        return table.noted(literal(event))
    worn = table.is_worn(_T)
    return table.noted(case((worn, _BURYING[event]), other=event))
