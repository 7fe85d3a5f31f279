"""take: the next tasks, in order, move to a lease segment, where this session holds them.

A take happens in the order of this file. `take_group` takes for the calls that share a commit. `Take.plan` makes sure of
the session's lease, reads the limits of the tube (`limits`), chooses the first tasks that these allow, and divides them
among the calls. One statement names the chosen tasks, and moves all of them or none: if another commit has changed one,
the take is decided again. If the commit was slow, the leases are renewed; if some have ended, the calls take again
(`wait`). If the chosen tasks include ended leases or unreadable tasks, a commit of its own first releases or
buries them, and the choice is made again.

If a take is interrupted before its commit, nothing has changed. After it, the tasks belong to the session until their
ttr or the session ends.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.model.takes import NewLease, segments_of_group
from tubeq_spark.runtime.held_tasks import Taken
from tubeq_spark.storage.arrow.columns import array, counted, repeated
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.expression import Expression, row
from tubeq_spark.storage.query import named
from tubeq_spark.storage.rows import COLUMNS, GateIncrements, stored_tasks
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.statement import MOST_NAMED, Affected, asked_by
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.limits import TakeLimits, from_own_gates, settled_limits, shared_out, within
from tubeq_spark.verbs.settle import bury_unreadable
from tubeq_spark.verbs.wait import give_back_unknown, with_time_left

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import TakeRequest
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.current_tube import CurrentTube

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Takes of at most this many tasks share one lease segment in each commit. A larger take gets its own, because an ack
#: of some tasks rewrites the rest of their lease segment.
SMALL_TAKE = 16
#: If one candidate is unreadable, this many more are checked, so that one commit buries many.
_LOOK_AHEAD = 1_000
#: After this many commits that release or bury tasks, an attempt counts as a conflict.
_MOST_COMMITS_BEFORE = 3
#: If the tasks do not last after the commit, the calls take again; they take at most so often in all, then they find none.
_MOST_TAKES = 3
#: The type of the numbers of calls.
_CALL = pa.int32()


def take_group(current: CurrentTube, requests: Sequence[TakeRequest]) -> Sequence[Taken | None]:
    """Take for several calls at once, in their order; nothing while the tube is paused.

    If leases end before the calls return, or the record of the tube has changed, all of them take again.

    Args:
        current: The tube.
        requests: The requests of the calls; one for a batch is alone.

    Returns:
        The tasks of each call, which are remembered; `None` for a call that found none.

    Raises:
        TubeMovedError: The tube was moved to another place.
    """
    for _ in range(_MOST_TAKES):
        ctx = current.newest()
        if ctx.record.paused:
            ctx.require_here()
            break
        found = with_time_left(current, ctx, Take(ctx, requests).run())
        if found is not None:
            return found
    return [None] * len(requests)


# -- one commit -----------------------------------------------------------------------------------


class Take:
    """One take for several calls at once, over all its attempts. The first call gets the first tasks."""

    def __init__(self, ctx: TubeContext, requests: Sequence[TakeRequest]) -> None:
        """Take for some calls, or for one batch."""
        self._ctx = ctx
        self._requests = requests
        self._as_batch = requests[0].as_batch
        self._columns = COLUMNS
        if self._as_batch:
            order = ctx.table.order_column
            self._columns = named("segment", "task_id", "state", "utube", "ttr", order)
        #: The rows of the newest choice; none for a batch.
        self._rows: list[StoredTask] = []
        #: Whether every call asks for more than `SMALL_TAKE` tasks.
        self._is_large = all(request.count > SMALL_TAKE for request in requests)
        self._attempts = 0
        self._owner = ""
        #: The take ids of the newest attempt that chose tasks.
        self._take_ids: Sequence[int] = ()

    def run(self) -> list[Taken | None]:
        """Take by one commit; `None` for a call that gets no task."""
        nothing: list[Taken | None] = [None] * len(self._requests)
        return self.commit("take", lambda: self.plan() or Plan(None, lambda _: nothing))

    def commit(self, operation: str, attempt: Callable[[], Plan[T]]) -> T:
        """Commit the decision of `attempt`.

        Nobody gets the tasks of an unknown commit. So a thread of the session searches for them, and releases them. It
        does the same if a callback or an observer ends the thread.
        """
        ctx = self._ctx
        try:
            return ctx.queue.loop.run(operation, ctx.table_lock, attempt)
        except (CommitUnknownError, KeyboardInterrupt, SystemExit):
            self._give_back_if_committed()
            raise

    def _give_back_if_committed(self) -> None:
        if self._take_ids:
            search = partial(give_back_unknown, self._ctx, self._take_ids, self._owner)
            self._ctx.queue.unknown_takes.add(search)

    def plan(self, acked: Sequence[StoredTask] = ()) -> Plan[list[Taken | None]] | None:
        """Decide one attempt; `None` if no task may be taken. Usually no commit, at most three that release or bury.

        Args:
            acked: Tasks that the same commit acks.

        Raises:
            Stale: Something is still in the way, so the take must be decided again.
        """
        ctx = self._ctx
        if self._take_ids:
            # The previous attempt was not committed, or was undone.
            ctx.lost_takes += 1
        self._attempts += 1
        for _ in range(_MOST_COMMITS_BEFORE):
            # The session may have ended, and its tasks with it. Then this begins a new one.
            self._owner = ctx.queue.taker()
            now_us, limits = ctx.queue.now_us(), None
            if ctx.has_limits:
                limits = settled_limits(ctx, now_us, acked)
                if limits is None:
                    continue
                now_us = limits.now_us
            chosen = self._choose(now_us, limits)
            if chosen is None or not chosen.num_rows:
                return None
            if TaskState.TAKEN.value in chosen.column("state").unique().to_pylist():
                end_due(ctx, now_us)
            elif not self._bury_unreadable(chosen, now_us):
                if not all(task.held_by(self._owner, now_us) for task in acked):
                    # The lease of an acked task has ended meanwhile.
                    raise Stale
                return self._move(chosen, now_us, limits, acked)
        raise Stale

    # -- which tasks --------------------------------------------------------------------------

    def _choose(self, now_us: int, limits: TakeLimits | None) -> pa.Table | None:
        """Choose the first tasks that the limits allow, and divide them among the calls; `None` if there are none.

        The column `call` has the number of the call that gets a task.
        """
        requests = self._requests
        if limits is not None:
            # When the first sub-queue that waits because of its rate may go on.
            self._ctx.times.next_us = min(limits.waiting_for_rate.values(), default=None)
            requests = within(requests, limits.tasks_left)
        if not any(request.count for request in requests):
            return None
        if limits is None or not self._ctx.tube_type.subqueues:
            return self._in_order(now_us, requests)
        return self._of_subqueues(limits, requests)

    def _in_order(self, now_us: int, requests: Sequence[TakeRequest]) -> pa.Table:
        """Choose in a tube without sub-queues."""
        if self._is_large and self._has_lost:
            # A large take conflicts more easily, so each further attempt asks for a quarter of the last number.
            wanted = sum(request.count for request in requests) >> 2 * (self._attempts - 1)
            requests = within(requests, max(SMALL_TAKE, wanted))
        counts = [request.count for request in requests]
        found = self._from_other_segments(now_us, sum(counts))
        if found is None:
            found = self._first(self._ctx.table.is_ready(now_us), sum(counts))
        most = found.num_rows
        calls = [repeated(n, _CALL, min(count, most)) for n, count in enumerate(counts)]
        return _with_calls(found, pa.concat_arrays(calls)[:most])

    def _of_subqueues(self, limits: TakeLimits, requests: Sequence[TakeRequest]) -> pa.Table | None:
        """Choose the sub-queues by their first tasks, and then the tasks of each.

        Raises:
            Stale: Other commits have changed the first tasks between the two reads.
        """
        ctx = self._ctx
        addresses = {request.utubes for request in requests}
        named_utubes: set[str | None] | None = None
        if None not in addresses:
            named_utubes = {utube for utubes in addresses for utube in utubes or ()} - limits.closed
            if not named_utubes:
                return None
        ready = ctx.table.is_ready(limits.now_us)
        takeable = ready & ctx.table.is_of(named_utubes, limits.closed)
        # Calls that name different sub-queues may find none among the first ones of the tube, so all are read.
        needs_all = len(addresses) > 1 or self._has_lost or bool(limits.takers - {self._owner})
        most = None if needs_all else sum(request.count for request in requests)
        if most == len(requests) == 1 and not limits.by_turn:
            first = self._first(takeable, 1)
            return _with_calls(first, repeated(0, _CALL, first.num_rows))
        if limits.by_turn:
            firsts = limits.in_turn(ctx.reader.first_of_utubes(takeable, None))[:most]
        else:
            firsts = ctx.reader.first_of_utubes(takeable, most)
        firsts = from_own_gates(limits, firsts, self._owner, self._attempts - 1)
        quotas = shared_out(limits.rooms(firsts), requests, ctx.record.options.parallel)
        counts: Counter[str | None] = sum(map(Counter, quotas), Counter())
        if not counts:
            return None
        found = ctx.reader.first_of_each(self._columns, ready, counts, firsts)
        if not found.num_rows:
            raise Stale
        utubes = found.column("utube").to_pylist()
        return _with_calls(found, array([_call_for(utube, quotas) for utube in utubes], _CALL))

    @property
    def _has_lost(self) -> bool:
        """Whether other commits have come first."""
        return self._attempts > 1

    def _first(self, where: Expression, count: int) -> pa.Table:
        """The first tasks that match a condition."""
        ctx = self._ctx
        return ctx.reader.first(self._columns, where, count, whole_utubes=ctx.tube_type.subqueues)

    def _from_other_segments(self, now_us: int, count: int) -> pa.Table | None:
        """Choose tasks from segments that no other take uses; `None` if the take should choose the first tasks.

        The tasks have the priority of the first task. Used only where no lock keeps takes of other programs apart.
        """
        ctx = self._ctx
        if ctx.table_lock.is_exclusive:
            return None
        rivals = ctx.queue.engine.tables.rivals(ctx.table.name).takes
        found = ctx.reader.segments_by_log(now_us) if rivals else None
        if found is None:
            return None
        first_keys, ready = found
        segments = segments_of_group(ready, count, rivals, f"{self._owner}/{ctx.lost_takes}")
        if not segments:
            return None
        tasks = self._first(row().segment.is_in(segments) & ctx.table.is_ready(now_us), count)
        keys = set(tasks.column(ctx.table.order_column).to_pylist())
        is_same = not first_keys or keys == set(first_keys)
        is_ready = TaskState.TAKEN.value not in tasks.column("state").unique().to_pylist()
        return tasks if tasks.num_rows == count and is_same and is_ready else None

    def _bury_unreadable(self, chosen: pa.Table, now_us: int) -> bool:
        """Bury chosen tasks that Python cannot read; whether there are some. A batch may contain them."""
        if self._as_batch:
            return False
        ctx = self._ctx
        self._rows = stored_tasks(chosen)
        if not any(row.unreadable() for row in self._rows):
            return False
        next_ones = self._first(ctx.table.is_ready(now_us), _LOOK_AHEAD)
        bury_unreadable(ctx, self._rows + stored_tasks(next_ones))
        return True

    # -- what becomes of them -----------------------------------------------------------------

    def _move(
        self, tasks: pa.Table, now_us: int, limits: TakeLimits | None, acked: Sequence[StoredTask]
    ) -> Plan[list[Taken | None]]:
        """Plan the move of the chosen tasks to lease segments."""
        ctx, call_of = self._ctx, tasks.column("call")
        counts = Counter(call_of.to_pylist()) if len(self._requests) > 1 else {0: tasks.num_rows}
        take_ids = dict(zip(sorted(counts), ctx.queue.session.segments(len(counts)), strict=True))
        self._take_ids = list(take_ids.values())
        # The small takes of one commit share the lease segment of the first of them, but a batch does not.
        small = [n for n in take_ids if not self._as_batch and counts[n] <= SMALL_TAKE]
        segments = take_ids | dict.fromkeys(small, take_ids[small[0]] if small else 0)
        take_id_of, segment_of = _of_calls(take_ids, call_of), _of_calls(segments, call_of)
        begins_us, increments = None, GateIncrements()
        if limits is not None:
            has_utubes = ctx.tube_type.subqueues
            begins_us = limits.begins_us
            increments = limits.increments(counted(tasks.column("utube")) if has_utubes else {})
        if begins_us is None:
            begins_us = ctx.queue.now_us()
        lease = NewLease(self._owner, begins_us, ctx.times.expected_us)
        count = tasks.num_rows
        # On Spark a MERGE that names and guards many rows costs more. So a large take moves all that is ready up to its last
        # task, and compares the number.
        may_go_unnamed = len(take_ids) == 1 and not (
            ctx.tube_type.subqueues or acked or increments.numbers
        )
        moves_up_to_last = (
            may_go_unnamed and count > MOST_NAMED and ctx.queue.engine.committing_jvm() is not None
        )
        if moves_up_to_last:
            statement = ctx.writer.take_up_to(tasks, self._take_ids[0], lease, now_us)
        else:
            statement = ctx.writer.take(tasks, segment_of, take_id_of, lease, increments, acked)

        def finish(affected: Affected) -> list[Taken | None]:
            if moves_up_to_last and affected.updated < count:
                if affected.updated:
                    # Others have changed some of the tasks. The rest goes back before the next choice.
                    self._give_back_if_committed()
                    ctx.queue.unknown_takes.look()
                raise Stale
            if self._as_batch:
                held = {take_ids[0]: self._batch(tasks, take_ids[0], lease)}
            else:
                after = rows_after(statement.changes, self._rows, statement.named)
                held = self._with_rows(after, lease)
            return [held.get(take_ids.get(n, 0)) for n in range(len(self._requests))]

        return Plan(statement, finish, now_us, asked_by(self._requests))

    def _with_rows(self, tasks: Sequence[StoredTask], lease: NewLease) -> dict[int, Taken]:
        """The taken tasks of each take id. Also counts the ended delays."""
        ctx = self._ctx
        held: dict[int, list[StoredTask]] = defaultdict(list)
        for task in tasks:
            held[task.take_id or 0].append(task)
        sizes = Counter(task.segment for task in tasks)
        delayed = [task for task in self._rows if task.state is TaskState.DELAYED]
        if delayed:
            ctx.events.record("delay", [task.seen_as(TaskState.READY) for task in delayed])
        return {of: Taken.of_rows(some, lease, sizes[some[0].segment]) for of, some in held.items()}

    def _batch(self, tasks: pa.Table, take_id: int, lease: NewLease) -> Taken:
        """As `_with_rows`, for a batch, which has a lease segment of its own."""
        self._ctx.events.count("delay", counted(tasks.column("state"))[TaskState.DELAYED.value])
        ttr = pc.min(tasks.column("ttr")).as_py()
        return Taken(take_id, take_id, lease, tasks.num_rows, ttr)


def _with_calls(tasks: pa.Table, call_of: pa.Array) -> pa.Table:
    return tasks.append_column("call", call_of)


def _of_calls(numbers: dict[int, int], call_of: pa.ChunkedArray) -> pa.Array:
    """The number of each task's call, of numbers by call."""
    if len(numbers) == 1:
        return repeated(next(iter(numbers.values())), pa.int64(), len(call_of))
    return array([numbers[call] for call in call_of.to_pylist()], pa.int64())


def _call_for(utube: str | None, quotas: Sequence[dict[str | None, int]]) -> int:
    """The first call that may get a task of a sub-queue. The task counts in its quota."""
    call = next(call for call, quota in enumerate(quotas) if quota.get(utube))
    quotas[call][utube] -= 1
    return call
