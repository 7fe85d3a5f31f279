"""How many more tasks of a tube with `most_taken` may be taken, for one attempt of a take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.verbs.expire import end_due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.rows import TakenState
    from tubeq_spark.storage.statement import Affected, Statement


@dataclass(frozen=True, slots=True)
class Room:
    """How many more tasks of a tube may be taken now.

    Attributes:
        tasks: The number; `None` sets no limit.
    """

    _ctx: TubeContext
    tasks: int | None = None
    _sequence: int = 0

    def passing(self, statement: Statement) -> Statement:
        """Make a statement fail if another take commits first, so that the limit holds."""
        if self.tasks is None:
            return statement
        return self._ctx.taken_gate.passing(statement, self._sequence)

    def counted(self, affected: Affected) -> Affected:
        """The tasks among the rows that such a statement has changed."""
        if self.tasks is None:
            return affected
        return self._ctx.taken_gate.without_sequence(affected)


def room(ctx: TubeContext, leaving: int = 0) -> Room:
    """Count the taken tasks. Usually no commit; two at most, for ended leases and for the first sequence number.

    Args:
        ctx: The tube.
        leaving: The number of tasks that the same commit acks.

    Raises:
        Stale: A lease has ended meanwhile, and its end must be written first.
    """
    most = ctx.record.options.most_taken
    if most is None:
        return Room(ctx)
    state = _state(ctx)
    if state.sequence is None:
        begin = lambda: Plan(ctx.taken_gate.begin(ctx.queue.now_us()), lambda _: None)  # noqa: E731
        ctx.queue.loop.run("begin", ctx.table_lock, begin)
        state = _state(ctx)
    if state.sequence is None:
        raise Stale
    return Room(ctx, max(0, most - state.taken + leaving), state.sequence)


def _state(ctx: TubeContext) -> TakenState:
    for _ in range(2):
        now_us = ctx.queue.now_us()
        state = ctx.taken_gate.look(now_us)
        if not state.ended:
            return state
        end_due(ctx, now_us)
    raise Stale


def within(requests: Sequence[TakeRequest], tasks: int | None) -> Sequence[TakeRequest]:
    """The requests of some calls, cut to so many tasks together. The first calls get their tasks first."""
    if tasks is None:
        return requests
    cut = []
    for request in requests:
        cut.append(replace(request, count=min(request.count, tasks)))
        tasks -= cut[-1].count
    return cut
