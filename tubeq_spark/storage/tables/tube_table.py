"""A tube's table as its statements use it: name, order, and conditions for its rows.

The conditions for the states of tasks are made from the tables of `model.stored_task`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.model.ids import POSITION_BITS, SLOT_BITS, SLOTS
from tubeq_spark.model.stored_task import TIMERS
from tubeq_spark.model.takes import UNNOTICED, NewLease
from tubeq_spark.model.tube_types import AGED, OrderPosition
from tubeq_spark.storage.expression import (
    FALSE,
    TRUE,
    Case,
    Expression,
    Row,
    Type,
    all_of,
    at,
    case,
    greatest_of,
    integer,
    literal,
    moment,
    null,
    quotient,
    row,
)
from tubeq_spark.storage.query import Parts, Select, Struct, named, of_utubes, one_of
from tubeq_spark.storage.rows import KEPT_KEY
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Unpack


#: The segment of the tombstone of a dropped tube. It never has tasks.
SEGMENT_0 = 0
#: The segments of the gates of takes (`gates`), and those of the taken-utube rows. No lease segment has such a number
#: for decades.
GATES = tuple(range(-(1 << 62), -(1 << 62) + 16))
UTUBE_ROWS = tuple(range(-(1 << 62) + 16, -(1 << 62) + 32))
#: The segment of the gate of puts, and of the identities of the puts that raise it (`gates`).
PUT_GATE = -(1 << 62) + 32
#: All segments without tasks.
OWN_SEGMENTS = (SEGMENT_0, *GATES, *UTUBE_ROWS, PUT_GATE)
#: The state of a gone row in a tube with a change feed, and of a task that was kept as done.
GONE = TaskState.DONE.value
#: A sub-queue that may have tasks in an unreadable file gives no tasks: its first or a taken task may be in the file.
WHOLE_UTUBES = ("utube",)
_ROW, _T = row(), row("t")
#: The states that last until their `next_event`, and the others that time can change.
_HOLDING = [state for state, event in TIMERS.items() if event is not None]
_FREE = [state for state in TIMERS if state not in _HOLDING]


def slot() -> Expression:
    """The slot of a task id, as `ids.slot_of` computes it."""
    high = quotient(_ROW.task_id, 1 << (POSITION_BITS + SLOT_BITS)) * SLOTS
    return quotient(_ROW.task_id, 1 << POSITION_BITS) - high


def is_alive(now_us: int, of: Row = _ROW) -> Expression:
    """Its ttl has not ended."""
    return of.expires_at.is_null() | (of.expires_at > at(now_us))


def _in_one_of(states: Iterable[TaskState], of: Row) -> Expression:
    return of.state.is_in(state.value for state in states)


def lease_end(lease: NewLease, ttr: Expression) -> Expression:
    """The end of a lease that begins now; never if its ttr is NULL."""
    length = ttr
    if lease.headroom_us:
        length = greatest_of(ttr, ttr - quotient(ttr, UNNOTICED) + lease.headroom_us)
    return moment(literal(lease.at_us) + length)


@dataclass(frozen=True, slots=True)
class TubeTable:
    """One tube in its table.

    Attributes:
        name: The SQL name of the table.
        id: The id of the tube in the registry.
        order: The columns that tasks are ordered by, ending in `task_id`.
        payload_columns: Names of the columns of a typed payload; `None` is JSON text.
        change_feed: Whether statements write their events into the rows, for the change feed.
        unique_for_us: The time from the put for which the key of a task stays in use; `None` frees it with its task.
        max_attempts: The number of takes after which a task is buried; `None` is no limit.
    """

    name: str
    id: int
    order: tuple[str, ...]
    payload_columns: tuple[str, ...] | None = None
    change_feed: bool = False
    unique_for_us: int | None = None
    max_attempts: int | None = None

    def fulfils(self, where: str | None, state: TaskState) -> Expression:
        """Rows in an effective state that fulfil a program's condition; all of them without one.

        Raises:
            InvalidOptionError: It is no condition.
        """
        if where is None:
            return TRUE
        from tubeq_spark.storage.user_condition import condition_of, shown  # noqa: PLC0415  (needs an extra)

        return condition_of(where, shown(state, typed=self.payload_columns is not None))

    @staticmethod
    def is_older(newest: Mapping[int, int]) -> Expression:
        """Put no later than the newest id of its slot. The ids of one slot only grow, whatever clocks say."""
        return _ROW.task_id <= case(*((slot() == number, last) for number, last in newest.items()))

    def mine(self, of: Row = _ROW) -> Expression:
        """Rows of tasks, and the tombstone. All other rows have the negated id of the tube."""
        return of.tube == self.id

    def is_kept_key(self, of: Row = _ROW) -> Expression:
        """Rows for keys of this tube that stay in use for a while, though their tasks may have ended."""
        return (of.tube == -self.id) & (of.state == KEPT_KEY)

    @property
    def is_gone(self) -> Expression:
        """Rows of removed tasks, which stay for the change feed until a sweep."""
        return (_ROW.tube == -self.id) & (_ROW.state == GONE)

    def is_ready(self, now_us: int, of: Row = _ROW) -> Expression:
        """Tasks that are ready at a moment, including those with ended leases, which are to be written before a take."""
        delayed = _in_one_of([TaskState.DELAYED], of) & (of.next_event <= at(now_us))
        ended = (of.state == TaskState.TAKEN.value) & (of.next_event <= at(now_us))
        if self.max_attempts is not None:
            ended &= of.attempts < integer(self.max_attempts)
        # An engine plans each part of a condition separately, so common parts are factored out.
        return ((_in_one_of([TaskState.READY], of) | delayed) | ended) & is_alive(now_us, of)

    def state(self, now_us: int, over: Collection[str] = (), of: Row = _ROW) -> Expression:
        """The state of a task at a moment; NULL if its ttl has ended.

        A backoff delays a task only when the end of its lease is written.

        Args:
            now_us: The moment.
            over: Owners whose sessions are over. Their leases have ended.
            of: The row.
        """
        branches: list[tuple[Expression, Expression]] = []
        for state in _HOLDING:
            holds = all_of(
                of.state == state.value, of.next_event.is_null() | (of.next_event > at(now_us))
            )
            if over and state is TaskState.TAKEN:
                holds &= ~of.owner.is_in(over)
            branches.append((holds, literal(state.value)))
        branches.append((~is_alive(now_us, of), null(Type.STRING)))
        branches += [(of.state == state.value, self._becomes(state, of)) for state in TIMERS]
        return Case(tuple(branches))

    def _becomes(self, state: TaskState, of: Row) -> Expression:
        if state is TaskState.TAKEN:
            return self.readied_state(of)
        return literal((state if state in _FREE else TaskState.READY).value)

    def readied_state(self, of: Row = _ROW) -> Expression:
        """The state after a release: ready, or buried by `max_attempts`."""
        ready, buried = TaskState.READY.value, TaskState.BURIED.value
        if self.max_attempts is None:
            return literal(ready)
        return case((self.is_worn(of), buried), other=ready)

    def is_in(self, state: TaskState, now_us: int, over: Collection[str] = ()) -> Expression:
        """Tasks that are in a state at a moment; arguments as for `state`."""
        return self.state(now_us, over) == state.value

    def is_buried(self, now_us: int, of: Row = _ROW) -> Expression:
        """Tasks that are stored as buried, and whose ttl has not ended."""
        return _in_one_of([TaskState.BURIED], of) & is_alive(now_us, of)

    def is_due(self, now_us: int, of: Row = _ROW) -> Expression:
        """Tasks whose states have changed by time and are not written yet."""
        return (_in_one_of(_HOLDING, of) & (of.next_event <= at(now_us))) | (
            _in_one_of(_FREE, of) & (of.expires_at <= at(now_us))
        )

    def due_at(self) -> Expression:
        """The moment of the next change of a task by time; NULL is never."""
        return case((_in_one_of(_HOLDING, _ROW), _ROW.next_event), other=_ROW.expires_at)

    def is_worn(self, of: Row = _ROW) -> Expression:
        """Tasks that were taken `max_attempts` times."""
        return FALSE if self.max_attempts is None else of.attempts >= integer(self.max_attempts)

    def is_held(self, owner: str | None, take_ids: Collection[int] | None = None) -> Expression:
        """Tasks that are stored as taken, in any segment: by a session or by all, of some takes or of all."""
        held: Expression = _ROW.state == TaskState.TAKEN.value
        if take_ids is not None:
            held &= _ROW.claim.is_in(take_ids)
        return held if owner is None else held & (_ROW.owner == owner)

    def is_of(
        self, utubes: Collection[str | None] | None, but: Collection[str | None] = ()
    ) -> Expression:
        """Tasks of some sub-queues, at least one; of all (`None`) except `but`."""
        if utubes is not None:
            return of_utubes(utubes)
        if len(but) > MOST_NAMED:
            return ~of_utubes(but)
        # One comparison for each name, so that file statistics skip files with rows of only one of them.
        others = [_ROW.utube != utube for utube in but if utube is not None]
        without = all_of(*others)
        return _ROW.utube.is_not_null() & without if None in but else _ROW.utube.is_null() | without

    def has_id(self, ids: Collection[int]) -> Expression:
        """Tasks with some ids, at least one."""
        return one_of(_ROW.task_id, ids, Type.BIGINT)

    def select(
        self,
        columns: Mapping[str, Expression],
        where: Expression = TRUE,
        **parts: Unpack[Parts],
    ) -> Select:
        """A query over the rows of this tube."""
        return Select(self.name, columns, self.mine() & where, **parts)

    def up_to(self, position: OrderPosition, of: Row = _ROW) -> Expression:
        """Rows up to a position in the tube's order."""
        near = of.task_id <= position.task_id
        if self.order_column not in self.order:
            return near
        key = of[self.order_column]
        last = (literal if self.order == AGED else integer)(position.key)
        return (key < last) | ((key == last) & near)

    @property
    def order_column(self) -> str:
        """The column that the order compares before the id."""
        return "rank" if self.order == AGED else "pri"

    @property
    def position(self) -> Struct:
        """The position of a row in the order."""
        parts = named(self.order_column, "task_id")
        if self.order_column not in self.order:
            # A driver of a program may have priorities and another order.
            parts["pri"] = integer(0)
        return Struct(parts)

    def noted(self, events: Expression) -> dict[str, Expression]:
        """The column with the events that have written a row, in a table with a change feed."""
        return {"change": events} if self.change_feed else {}

    def taking(self, to: Expression, lease: NewLease, take_id: Expression) -> dict[str, Expression]:
        """The columns that every take sets: a row `t` moves to a lease segment, and its lease begins."""
        # A delayed task is taken only after the end of its delay.
        events = case((_T.state == TaskState.DELAYED.value, "delay take"), other="take")
        return {
            "segment": to,
            "claim": take_id,
            "state": literal(TaskState.TAKEN.value),
            "owner": literal(lease.owner),
            "attempts": _T.attempts + integer(1),
            "since": at(lease.at_us),
            "next_event": lease_end(lease, _T.ttr),
        } | self.noted(events)
