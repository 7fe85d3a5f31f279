"""take: move the next tasks, in order, to a lease segment, where this session holds them.

Steps: make sure of the session's lease (at most one commit, usually none), choose the tasks, one
MERGE that moves them. Tubes with sub-queues (`take_subqueues`) and tubes without (`choose`) choose
tasks in different ways. Takes of tasks read rows, takes of batches only counts
(`chosen`). If a take is interrupted before the MERGE, nothing has changed. After it, the
tasks belong to the session until their ttr or the session ends.

If another take commits between the choice and the MERGE, fewer rows match, because segments only
lose rows, and the moved tasks are read back. If it commits during the MERGE, the MERGE conflicts,
and the take starts again.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.errors import (
    CommitUnknownError,
    StoreError,
    TubeqError,
)
from tubeq_spark.runtime.group_commit import each
from tubeq_spark.runtime.taken import LeasedBatch, TakenRows
from tubeq_spark.runtime.waiting import looks
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.durability.arrivals import Arrivals
from tubeq_spark.storage.uninterrupted import if_interrupted
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.choose import TakeInOrder
from tubeq_spark.verbs.chosen import ChosenRows, ChosenSegments, ChosenTasks
from tubeq_spark.verbs.expire import end_dead_sessions, end_lapsed_sessions
from tubeq_spark.verbs.limits import limits_now
from tubeq_spark.verbs.renew import give_back_unknown, give_up, new_lease, outlast
from tubeq_spark.verbs.take_subqueues import TakeSubqueues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected
    from tubeq_spark.task import Task
    from tubeq_spark.verbs.choose import OrderChoice
    from tubeq_spark.verbs.take_subqueues import SubqueueChoice

log = logging.getLogger(__name__)
T = TypeVar("T")
H = TypeVar("H", LeasedBatch, TakenRows)

#: A call that has lost all its taken tasks takes again at once; it takes so often in all.
_ROUNDS = 3
#: A failed undo of a take that no caller got is tried so often in all; then the session's heart repeats it.
_UNDOES = 3


def take_group(
    ctx: TubeContext, requests: list[TakeRequest]
) -> Sequence[TakenRows | Exception | None]:
    """Take for several calls at once, in their order. Small takes share a lease segment."""
    return _by_address(requests, lambda some: _take_rows(ctx, some))


def _take_rows(ctx: TubeContext, requests: Sequence[TakeRequest]) -> list[TakenRows | None]:
    lasting = _lasting(ctx, requests, ChosenRows)
    remember(ctx, lasting)
    return lasting


def _by_address(
    requests: Sequence[TakeRequest], take: Callable[[Sequence[TakeRequest]], Sequence[T]]
) -> Sequence[T | Exception]:
    """Take for the calls that name sub-queues, and then for the others, which may take from any.

    Calls that name sub-queues share commits, also if they name different ones. Each sub-queue goes to one call.
    """
    parts = [
        part
        for is_any in (False, True)
        if (part := [n for n, asked in enumerate(requests) if (asked.utubes is None) is is_any])
    ]
    if len(parts) == 1:
        return take(requests)
    results: dict[int, T | Exception] = {}
    taken = each(lambda part: take([requests[n] for n in part]), parts)
    for part, found in zip(parts, taken, strict=True):
        shares = [found] * len(part) if isinstance(found, Exception) else found
        results.update(zip(part, shares, strict=True))
    return [results[n] for n in range(len(requests))]


def remember(ctx: TubeContext, lasting: Sequence[TakenRows | None]) -> None:
    """Remember the tasks of calls."""
    for taken in lasting:
        if taken is not None:
            ctx.queue.held_tasks.add(ctx.record.id, taken.rows, taken.sizes)


def handed_out(ctx: TubeContext, taken: TakenRows | None) -> list[Task]:
    """The tasks of a call. They are released if the call fails, or is interrupted before it returns."""
    if taken is None:
        return []
    undo_if_interrupted(ctx, taken)
    try:
        return ctx.record_event("take", taken.rows)
    except Exception:
        undo(ctx, taken)
        raise


def undo_if_interrupted(ctx: TubeContext, taken: TakenRows | LeasedBatch | None) -> None:
    """Release the tasks of a call if it is interrupted before it returns."""
    if taken is not None:
        if_interrupted(lambda: undo(ctx, taken))


def undo(ctx: TubeContext, taken: TakenRows | LeasedBatch) -> None:
    """Release tasks that no caller got.

    An interrupt may also cancel the statement of Spark that releases them. Then this tries again, and in the end
    the session's heart does.
    """
    count, is_undone = 0, False
    for _ in range(_UNDOES):
        try:
            count, is_undone = give_up(ctx, taken), True
            break
        except Exception:
            log.info("tube %s: a take is undone once more", ctx.record.name, exc_info=True)
    else:
        ctx.queue.unknown_takes.add(lambda: give_up(ctx, taken) >= 0)
    if isinstance(taken, LeasedBatch):
        ctx.queue.held_tasks.drop_batch(taken.take_id)
    else:
        # If nothing was given back, other commits have ended the leases, and count that.
        places = [(row.segment, row.task_id) for row in taken.rows]
        ctx.queue.held_tasks.left(ctx.record.id, places, are_known=is_undone)
        ctx.queue_event("release", [row.task(TaskState.READY) for row in taken.rows if count])
    ctx.count("release", count)
    ctx.table_lock.wake_takes()


def take_batches(
    ctx: TubeContext, requests: Sequence[TakeRequest]
) -> Sequence[LeasedBatch | Exception | None]:
    """Take batches for several calls, each as one lease segment, without reading rows.

    With sub-queues the takes share commits. Without, each take has a commit of its own.
    """
    batches: Sequence[LeasedBatch | Exception | None]
    if ctx.driver.subqueues:
        batches = _by_address(requests, lambda some: _lasting(ctx, some, ChosenSegments))
    else:
        batches = each(lambda call: _lasting(ctx, [call], ChosenSegments)[0], requests)
    for batch in batches:
        if isinstance(batch, LeasedBatch):
            ctx.queue.held_tasks.add_batch(batch.take_id, batch.until)
            ctx.count("take", batch.count)
    return batches


def _lasting(
    ctx: TubeContext,
    requests: Sequence[TakeRequest],
    kind: type[ChosenTasks[H]],
) -> list[H | None]:
    """Take for several calls; a call that loses all its tasks before it returns takes again.

    Args:
        ctx: The tube.
        requests: The requests of the calls.
        kind: Whether rows or segments are chosen.

    Returns:
        The tasks of each call; `None` for a call that found none.
    """
    results: list[H | None] = [None] * len(requests)
    asking = list(range(len(requests)))
    for _ in range(_ROUNDS):
        try:
            taken = _take_each(ctx, [requests[call] for call in asking], kind)
            lasting = outlast(ctx, taken)
        except Exception:
            if not any(results):
                raise
            # The other calls keep their tasks.
            log.warning("tube %s: not taken again", ctx.record.name, exc_info=True)
            break
        for call, batch in zip(asking, lasting, strict=True):
            results[call] = batch
        pairs = zip(asking, taken, lasting, strict=True)
        asking = [call for call, before, after in pairs if before is not None and after is None]
        if not asking:
            break
    return results


def _take_each(
    ctx: TubeContext, requests: Sequence[TakeRequest], kind: type[ChosenTasks[H]]
) -> list[H | None]:
    """Take for several calls, by as many commits as they need.

    A commit gives the tasks of a sub-queue to one call. With `parallel > 1` other calls may take from it, too, by
    further commits.
    """
    taken = _take(ctx, requests, kind)
    more = taken
    while ctx.record.options.parallel > 1 and any(more) and None in taken:
        asking = [call for call, found in enumerate(taken) if found is None]
        try:
            more = _take(ctx, [requests[call] for call in asking], kind)
        except Exception:
            log.warning("tube %s: some calls get nothing", ctx.record.name, exc_info=True)
            break
        for call, found in zip(asking, more, strict=True):
            taken[call] = found
    return taken


def begin_take(ctx: TubeContext, requests: Sequence[TakeRequest]) -> TakeInOrder | TakeSubqueues:
    """A new take in this tube."""
    return (TakeSubqueues if ctx.driver.subqueues else TakeInOrder)(ctx, requests)


def _take(
    ctx: TubeContext, requests: Sequence[TakeRequest], kind: type[ChosenTasks[H]]
) -> list[H | None]:
    take = begin_take(ctx, requests)

    def attempt() -> Plan[list[H | None]]:
        limits = limits_now(ctx)
        choice = None if limits.tasks == 0 else take.choose(kind, limits)
        if choice is None:
            return Plan(None, lambda _: [None] * len(requests))
        lease = new_lease(ctx, choice.owner, choice.begins_us)
        raised = limits.raised(choice.quota)

        def finish(changed: Affected) -> list[H | None]:
            affected = raised.tasks(changed)
            try:
                held = moved(choice, lease, affected) if affected.updated else {}
            except TubeqError:
                # The take had to be undone, and that failed: the session's heart tries it again.
                look_for(ctx, choice)
                raise
            if not held:
                raise Stale
            return [None if take_id is None else held.get(take_id) for take_id in choice.take_ids]

        return Plan(ctx.gates.raising(choice.take(lease), raised, choice.now_us), finish)

    return run(ctx, take, "take", attempt)


def run(
    ctx: TubeContext,
    take: TakeInOrder | TakeSubqueues,
    operation: str,
    attempt: Callable[[], Plan[T]],
) -> T:
    """Commit the decision of `attempt`.

    If the commit of a take is unknown, the session's heart searches for its tasks and releases
    them, because no caller has them. The same holds after an exception that ends the thread, such as one of an
    observer.
    """
    try:
        return ctx.queue.loop.run(operation, ctx.table_lock, attempt)
    except (CommitUnknownError, KeyboardInterrupt, SystemExit):
        chosen = take.chosen
        if chosen is not None:
            look_for(ctx, chosen)
        raise


def look_for(ctx: TubeContext, chosen: OrderChoice[Any] | SubqueueChoice[Any]) -> None:
    """Let the session's heart search for the tasks of a take that no caller has, and release them."""
    made = [take_id for take_id in chosen.take_ids if take_id is not None]
    ctx.queue.unknown_takes.add(partial(give_back_unknown, ctx, made, chosen.owner))


def moved(
    choice: OrderChoice[H] | SubqueueChoice[H],
    lease: NewLease,
    affected: Affected,
) -> dict[int, H]:
    """The tasks under each take id, after the statement has moved the chosen ones.

    It is empty if the take had to be undone: the statement moved fewer tasks than were chosen, and one of the
    others is still ready.
    """
    ctx, tasks = choice.ctx, choice.tasks
    held = tasks.moved(ctx, choice.destination, lease)
    complete = affected.updated == tasks.count
    if not complete:
        held = tasks.read_back(ctx, held, affected.updated) if affected.updated else {}
    if held:
        # The ends of delays stay committed if the take is undone.
        tasks.count_delays(ctx, held)
    return {} if affected.updated and not complete and choice.undone() else held


#: Operations that make no task ready, and free no capacity.
_MOVES = ("take", "touch", "renew", "fold", "gone")
#: After these operations a take finds more only if they free a sub-queue, or a place within `most_taken`.
_ENDS = ("ack", "bury", "delete", "truncate")


def _changes(ctx: TubeContext, *, for_tasks: bool) -> Callable[[], object]:
    """Return a function whose value changes when a commit on this host may have ended the wait."""
    synced = ctx.table_lock.synced
    if synced is None:
        return lambda: ctx.table_lock.changes
    moves = (*_MOVES, "put") if not for_tasks else _MOVES
    makes_room = ctx.driver.subqueues or ctx.record.options.most_taken is not None
    ends = _ENDS if for_tasks and not makes_room else ()
    arrivals = Arrivals(synced, (*moves, *ends))
    return lambda: (ctx.table_lock.changes, arrivals.count())


def wait_for(
    context: Callable[[], TubeContext],
    timeout: float | None,
    look: Callable[[], T | None],
    *,
    for_tasks: bool = True,
) -> T | None:
    """Call `look` until it finds something, or `timeout` seconds have passed.

    If it finds nothing, this also releases the tasks of dead sessions, and looks again. If the storage fails for a
    moment, the next look tries it again.

    Args:
        context: Returns the tube by its newest record.
        timeout: Seconds; `None` waits for ever, 0 looks once.
        look: Returns the result, or `None` if it found nothing.
        for_tasks: Whether the result is tasks. Then the tasks of ended sessions are released before each look,
            because they may come first.

    Raises:
        QueueStateError: The queue was closed meanwhile.
        StoreError: The storage failed at the last look, or in a way that does not pass.
    """
    failed: StoreError | None = None
    first = context()
    # Only looks after a wait have this patience; the first one belongs to the verb itself.
    patience: Callable[[], AbstractContextManager[None]] = nullcontext
    for _ in looks(
        timeout,
        clock=first.queue.clock,
        config=first.queue.config,
        changes=_changes(first, for_tasks=for_tasks) if timeout != 0 else lambda: 0,
        require_running=first.queue.require_running,
        next_change=lambda: first.next_begin.seconds(first.queue.now_us()) if for_tasks else None,
    ):
        try:
            with patience():
                found = _looked(context(), look, for_tasks=for_tasks)
        except StoreError as error:
            if not error.passes:
                raise
            log.warning(
                "%s: waiting goes on, though the storage failed: %s", first.record.name, error
            )
            failed = error
        else:
            if found is not None:
                return found
            failed = None
        patience = first.queue.engine.patience
    if failed is not None:
        raise failed
    return None


def _looked(ctx: TubeContext, look: Callable[[], T | None], *, for_tasks: bool) -> T | None:
    """Look once, and again if tasks of dead sessions were released."""
    if for_tasks:
        ctx.next_begin.at_us = None
        end_lapsed_sessions(ctx)
    found = look()
    if found is None and end_dead_sessions(ctx):
        return look()
    return found
