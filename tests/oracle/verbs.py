"""Applies verbs to a tube in memory by the rules of `lifecycle` and `transitions`.

They are called with the place's lock held. As everywhere, a task is what it effectively is by now;
what time has done is written down, counted and reported to the callback when a verb changes the task, or by a sweep.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.row_oracle import seen_at, taken, time_events, written
from tubeq_spark.clock import US, due
from tubeq_spark.model import validation
from tubeq_spark.model.changes import Every, Touch, released
from tubeq_spark.model.failures import SESSION_ENDED
from tubeq_spark.model.reports import TubeSweep
from tubeq_spark.model.takes import NewLease
from tubeq_spark.model.tube_types import AGED
from tubeq_spark.runtime.events import TubeEvents
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.tables.row_clauses import clause_of
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.task import Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tests.oracle.place import StoredTube
    from tests.oracle.queue import OracleQueue
    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.model.changes import Change, Release
    from tubeq_spark.model.failures import Backoff, ErrorTexts
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.tube_types import Driver
    from tubeq_spark.runtime.sessions_over import DeadSessionJudge


class Verbs:
    """The verbs on one tube, as one queue object calls them."""

    def __init__(self, queue: OracleQueue, tube: StoredTube, driver: Driver) -> None:
        """Work on a tube, by its driver."""
        self.queue, self.tube, self.driver = queue, tube, driver
        self.events = TubeEvents(queue.place.counters, tube.id, tube.name)

    @property
    def max_attempts(self) -> int | None:
        """After so many takes a task is buried instead of readied."""
        return self.tube.options.max_attempts

    @property
    def backoff(self) -> Backoff | None:
        """The delays of its failed tasks."""
        return self.tube.options.backoff

    @property
    def order(self) -> tuple[str, ...]:
        """What tasks are taken by."""
        return self.driver.order if self.tube.options.aging is None else AGED

    @property
    def capacity(self) -> int | None:
        """How many tasks the tube may hold."""
        return self.tube.options.capacity if self.driver.limited else None

    def require_there(self) -> None:
        """Refuse a verb on a closed queue, or on a tube that was dropped.

        Raises:
            QueueStateError: The queue is closed or closing.
            TubeNotFoundError: The tube was dropped.
        """
        self.queue.require_running()
        if self.tube.dropped:
            raise validation.was_dropped(self.tube.name)

    # -- what is there ------------------------------------------------------------------------

    def seen(self) -> list[StoredTask]:
        """All tasks as they are by now, in the tube's order; nothing is written down."""
        now_us = self.queue.now_us()
        over = self._over()
        seen = [self._now(row, now_us, over) for row in self.tube.rows.values()]
        there = [row for row in seen if row is not None]
        return sorted(there, key=self._place)

    def _place(self, row: StoredTask) -> tuple[int, ...]:
        """What the tube's order goes by."""
        return tuple(getattr(row, column) for column in self.order)

    def _over(self) -> set[str]:
        """Owners whose sessions are over: what they hold is ready."""
        now_us, own = self.queue.now_us(), self.queue.session.owner
        over = {owner for v in self.queue.sessions.views().values() for owner in v.over(now_us)}
        return over - {own}

    def _now(self, row: StoredTask, now_us: int, over: set[str]) -> StoredTask | None:
        """A row as it is by now; `None`: its life is over."""
        if row.state is TaskState.TAKEN and row.owner in over:
            row = replace(row, next_event=now_us)
        return seen_at(row, now_us, self.max_attempts)

    def _taken(self) -> list[StoredTask]:
        """What is held in leases that last, by sessions that are over, too; in the tube's order."""
        now_us = self.queue.now_us()
        taken = [row for row in self.tube.rows.values() if row.state is TaskState.TAKEN]
        lasting = [row for row in taken if not due(row.next_event, now_us)]
        return sorted(lasting, key=self._place)

    def in_state(self, state: TaskState) -> list[StoredTask]:
        """The tasks in an effective state, in the tube's order."""
        return [row for row in self.seen() if row.state is state]

    def counts(self) -> Counter[str]:
        """How many tasks there are, by the letter of the effective state."""
        return Counter(row.state.value for row in self.seen())

    def peek(self, task_id: int) -> Task:
        """One task in its effective state."""
        return self._there([task_id])[0].task()

    # -- put and take -------------------------------------------------------------------------

    def put(self, news: list[StoredTask]) -> list[Task]:
        """Add tasks, and find those that have the keys already; none where there is no room for all."""
        holders = self._holders({row.unique for row in news} - {None})
        firsts = {row.unique: row for row in reversed(news) if row.unique is not None}
        added = [
            row
            for row in news
            if row.unique is None or (firsts[row.unique] is row and row.unique not in holders)
        ]
        if self.capacity is not None and len(self.tube.rows) + len(added) > self.capacity:
            if len(self.seen()) < len(self.tube.rows):
                self._write_due()
            if len(self.tube.rows) + len(added) > self.capacity:
                return []
        stored = dict(zip(map(id, added), self._added(added), strict=True))
        holders |= {row.unique: row for row in stored.values() if row.unique is not None}
        self._keep_keys(stored.values())
        self.events.record("put", stored.values())
        return [(stored.get(id(row)) or holders[row.unique]).task() for row in news]

    def _holders(self, keys: Collection[str | None]) -> dict[str | None, StoredTask]:
        """The tasks that have some keys, or had them and were put a while ago; what has ended is written down."""
        now_us = self.queue.now_us()
        named = [row for row in self.tube.rows.values() if row.unique in keys]
        if any(seen_at(row, now_us, None) is None for row in named):
            self._write_due()
        there = {row.unique: row for row in self.seen() if row.unique in keys}
        kept = self.tube.kept.values()
        return {row.unique: row for row in kept if not due(row.expires_at, now_us)} | there

    def _keep_keys(self, rows: Iterable[StoredTask]) -> None:
        """Keep the keys of new tasks in use for a while, also if the tasks end earlier."""
        for_us = self.tube.options.unique_for_us
        for row in rows:
            if row.unique is not None and for_us is not None:
                self.tube.kept[row.unique] = replace(
                    row,
                    state=TaskState.DONE,
                    data=None,
                    next_event=None,
                    expires_at=self.queue.now_us() + for_us,
                )

    def _added(self, news: Sequence[StoredTask]) -> list[StoredTask]:
        if not news:
            return []
        ids = self.queue.session.task_ids(len(news), self.tube.last_id)
        rows = [replace(row, task_id=ids.task_id(place)) for place, row in enumerate(news)]
        self._store(rows)
        self.tube.last_id = rows[-1].task_id
        return rows

    def take(self, request: TakeRequest) -> list[Task]:
        """Take the next tasks, those that dead sessions held included."""
        return self.events.record("take", self.take_rows(request))

    def take_rows(self, request: TakeRequest) -> list[StoredTask]:
        """Take the next tasks without an event of it."""
        self.queue.session.hold()
        self.release_dead(self.queue.dead_owners())
        if self._meets_ended_lease(request):
            self._write_due()
        chosen = self._next(request)
        self.tube.takes += 1
        lease = NewLease(self.queue.session.owner, self.queue.now_us())
        for row in chosen:
            self._write_down(self.tube.rows[row.task_id])
        take_id = self.tube.takes
        rows = [taken(row, take_id, take_id, lease) for row in chosen]
        self.tube.rows.update((row.task_id, row) for row in rows)
        return rows

    def _meets_ended_lease(self, request: TakeRequest) -> bool:
        """Whether a take meets an ended lease: any in a tube with limits, else one of those that it chooses."""
        now_us, chosen = self.queue.now_us(), list(self.tube.rows.values())
        if not self.driver.subqueues and self.tube.options.most_taken is None:
            chosen = [self.tube.rows[row.task_id] for row in self._next(request)]
        return any(row.state is TaskState.TAKEN and due(row.next_event, now_us) for row in chosen)

    def _next(self, request: TakeRequest) -> list[StoredTask]:
        """The first ready tasks within the tube's limits."""
        ready, room, most = (
            self.in_state(TaskState.READY),
            request.count,
            self.tube.options.most_taken,
        )
        if most is not None:
            room = min(room, max(0, most - len(self.in_state(TaskState.TAKEN))))
        if not self.driver.subqueues:
            return ready[:room]
        named = [row for row in ready if request.utubes is None or row.utube in request.utubes]
        return self._of_subqueues(named, request.per_utube, room)

    def _of_subqueues(
        self, ready: Sequence[StoredTask], per_utube: int, room: int
    ) -> list[StoredTask]:
        """The first tasks of sub-queues that may begin some, in the order of their heads, or in turn."""
        taken = Counter(row.utube for row in self.in_state(TaskState.TAKEN))
        by_utube: dict[str | None, list[StoredTask]] = {}
        for row in ready:
            by_utube.setdefault(row.utube, []).append(row)
        queues = list(by_utube.values())
        if self.tube.options.order == "fair":
            queues.sort(key=lambda rows: self._turn(rows[0]))
        chosen: list[StoredTask] = []
        for rows in queues:
            utube = rows[0].utube
            free = self._may_begin(utube, taken[utube])
            begun = rows[: min(per_utube, free, room - len(chosen))]
            if begun:
                self._note_begun(utube, len(begun))
            chosen += begun
        return sorted(chosen, key=self._place)

    def _may_begin(self, utube: str | None, taken: int) -> int:
        """How many tasks of a sub-queue may begin by `parallel` and `rate`."""
        parallel, rate = self.tube.options.parallel, self.tube.options.rate
        free = parallel - taken if parallel > 1 else sys.maxsize * (taken == 0)
        if rate is not None:
            moments = self.tube.begun.get(utube, (0, []))[1]
            since_us = self.queue.now_us() - round(rate.seconds * US)
            free = min(free, rate.tasks - sum(moment > since_us for moment in moments))
        return max(0, free)

    def _turn(self, head: StoredTask) -> tuple[int, ...]:
        """The place of a sub-queue: by the priority of its head, and then by how long it waits."""
        turn, moments = self.tube.begun.get(head.utube, (0, []))
        waits_since = max([head.created, *moments])
        return head.pri, min(waits_since, self.queue.now_us()), turn, head.task_id

    def _note_begun(self, utube: str | None, count: int) -> None:
        last = max((turn for turn, _ in self.tube.begun.values()), default=0)
        moments = self.tube.begun.get(utube, (0, []))[1]
        self.tube.begun[utube] = (last + 1, [*moments, *[self.queue.now_us()] * count])

    # -- settling -----------------------------------------------------------------------------

    def ack(self, ids: Sequence[int]) -> list[Task]:
        """Remove tasks that this session holds."""
        rows = self._held(ids)
        self._remove(ids)
        return self.events.record("ack", rows, TaskState.DONE)

    def release(self, ids: Sequence[int], how: Release) -> list[Task]:
        """Give held tasks back: ready (or buried when its attempts are used up), or delayed."""
        return self._release(failed(self._held(ids), how.error), how.delay(self.backoff))

    def touch(self, task_id: int, increment_us: int) -> Task:
        """Give a held task more time: its lease, its life, and the ttr of later takes."""
        (row,) = self._held([task_id])
        (after,) = self._after(Touch(row.segment, increment_us), [row])
        self.tube.rows[task_id] = after
        return self.events.record("touch", [after])[0]

    def bury(self, ids: Sequence[int], error: ErrorTexts | None) -> list[Task]:
        """Set tasks of any state aside; those that are buried already stay as they are."""
        seen = self._met(ids)
        others = [row for row in seen if row.state is not TaskState.BURIED]
        buried = [row.given_back(TaskState.BURIED) for row in failed(others, error)]
        self._store(buried)
        self.events.record("bury", buried)
        after = {row.task_id: row for row in [*seen, *buried]}
        return [after[task_id].task() for task_id in ids]

    def delete(self, ids: Sequence[int]) -> list[Task]:
        """Remove tasks in any state."""
        rows = self._met(ids)
        self._remove(ids)
        return self.events.record("delete", rows, TaskState.DONE)

    def kick(self, count: int) -> int:
        """Make the first buried tasks ready, with their attempts forgotten."""
        if count and self.max_attempts is not None:
            self._write_due()
        return len(self._kicked(self.in_state(TaskState.BURIED)[:count]))

    def kick_named(self, ids: Sequence[int]) -> list[Task]:
        """Make named buried tasks ready, with their attempts forgotten; all of them or none."""
        rows = self._met(ids)
        for row in rows:
            if row.state is not TaskState.BURIED:
                raise validation.in_other_state(row.task_id, row.state, [TaskState.BURIED])
        return self._kicked(rows)

    def _kicked(self, rows: Sequence[StoredTask]) -> list[Task]:
        ready = [replace(row.given_back(TaskState.READY), attempts=0) for row in rows]
        self._store(ready)
        return self.events.record("kick", ready)

    # -- the whole tube -----------------------------------------------------------------------

    def release_taken(self, owner: str | None, error: str | None = None) -> int:
        """Give back what an owner (or anybody: `None`) holds; returns the number of tasks.

        With an error they have failed.
        """
        self._write_due()
        held = [row for row in self._taken() if owner in (None, row.owner)]
        if error is None:
            return len(self._release(held, 0))
        return len(self._release(failed(held, error), self.backoff or 0))

    def release_dead(self, dead: DeadSessionJudge) -> int:
        """Give back what dead sessions hold; returns the number of tasks."""
        owners = {row.owner for row in self.tube.rows.values() if row.owner is not None}
        return sum(
            self.release_taken(owner, SESSION_ENDED) for owner in owners if dead.is_dead(owner)
        )

    def truncate(self) -> None:
        """Remove every task; counters stay. What time had ended by then counts as expired."""
        self._write_due()
        self._remove(list(self.tube.rows))
        self.tube.kept.clear()

    def drop(self) -> None:
        """Remove the tube.

        Raises:
            TubeBusyError: Tasks are taken.
        """
        if self._taken():
            raise validation.has_taken_tasks(self.tube.name)
        self.queue.place.remove(self.tube)

    def sweep(self, now_us: int, dead: DeadSessionJudge) -> TubeSweep:
        """Write down all that is due at a moment, and give back what the dead hold."""
        done: Counter[str] = Counter()
        for row in list(self.tube.rows.values()):
            events = self._write_down(row, now_us)
            if events:
                # The last one says what became of it; one that was buried had been released, too.
                done["ttr" if "bury" in events else events[-1]] += 1
        released = self.release_dead(dead)
        stored = {row.utube for row in self.tube.rows.values()}
        for utube in self.tube.begun.keys() - stored:
            rate = self.tube.options.rate
            if rate is None or self._may_begin(utube, 0) >= rate.tasks:
                del self.tube.begun[utube]
        return TubeSweep(done["delay"], done["ttl"], done["ttr"] + released)

    # -- parts --------------------------------------------------------------------------------

    def _held(self, ids: Sequence[int]) -> list[StoredTask]:
        """Tasks that this session holds in leases that last.

        Raises:
            NotTakenError: Any of them is not.
        """
        owner, now_us = self.queue.session.owner, self.queue.now_us()
        rows = []
        for task_id in ids:
            row = self.tube.rows.get(task_id)
            if row is None or not row.held_by(owner, now_us):
                raise validation.not_held(task_id)
            rows.append(row)
        return rows

    def _there(self, ids: Sequence[int]) -> list[StoredTask]:
        """Tasks in any state, as they are by now.

        Raises:
            TaskNotFoundError: Any of them does not exist, or its life is over.
        """
        now_us, rows, over = self.queue.now_us(), [], self._over()
        for task_id in ids:
            row = self.tube.rows.get(task_id)
            seen = None if row is None else self._now(row, now_us, over)
            if seen is None:
                raise validation.no_task(task_id)
            rows.append(seen)
        return rows

    def _met(self, ids: Sequence[int]) -> list[StoredTask]:
        """Tasks in any state. If time has changed one, all that it has done to the tube is written first."""
        self._there(ids)
        now_us = self.queue.now_us()
        rows = [self.tube.rows[task_id] for task_id in ids]
        if any(seen_at(row, now_us, self.max_attempts) is not row for row in rows):
            self._write_due()
        return self._there(ids)

    def _write_due(self) -> None:
        """Write all that time has done."""
        for row in list(self.tube.rows.values()):
            self._write_down(row)

    def _write_down(self, row: StoredTask, now_us: int | None = None) -> list[str]:
        now_us = self.queue.now_us() if now_us is None else now_us
        after = written(row, now_us, self.max_attempts, self.backoff)
        events = time_events(row, after)
        for event, then in events:
            self.events.record(event, [then])
        if after is None:
            self._remove([row.task_id])
        else:
            self.tube.rows[row.task_id] = after
        return [event for event, _ in events]

    def _release(self, rows: Sequence[StoredTask], delay_us: int | Backoff | None) -> list[Task]:
        now_us = self.queue.now_us()
        change = released(0, delay_us, now_us)
        after = self._after(change, rows)
        self._store(after)
        return self.events.record("release", after)

    def _after(self, change: Change, rows: Sequence[StoredTask]) -> list[StoredTask]:
        """The rows that a change leaves."""
        table = TubeTable(self.tube.name, self.tube.id, self.order, max_attempts=self.max_attempts)
        return rows_after([clause_of(table, Every(), change)], rows)

    def _store(self, rows: Iterable[StoredTask]) -> None:
        self.tube.rows.update((row.task_id, row) for row in rows)

    def _remove(self, ids: Iterable[int]) -> None:
        for task_id in ids:
            del self.tube.rows[task_id]


def failed(rows: Iterable[StoredTask], error: ErrorTexts | None) -> list[StoredTask]:
    """Rows with their errors; without one they keep the last."""
    if error is None:
        return list(rows)
    return [
        replace(row, error=error if isinstance(error, str) else error[row.task_id]) for row in rows
    ]
