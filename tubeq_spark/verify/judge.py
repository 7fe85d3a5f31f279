"""Judges the commits of one tube, in their order: its tasks, its order, its limits and its counts."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from tubeq_spark.model.reports import Violation
from tubeq_spark.model.takes import begun
from tubeq_spark.model.tube_types import order_of
from tubeq_spark.storage.statement import PUTS, TAKES, total_of
from tubeq_spark.verify.rows import Row, changed, fault_of_step, rows_of, tasks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.model.takes import Rate
    from tubeq_spark.model.tube_types import Driver
    from tubeq_spark.storage.log.replay import Replayed
    from tubeq_spark.storage.statement import Note

#: Operations that end tasks which nobody counts as done.
_UNCOUNTED = {"truncate", "drop", "repair"}
#: A consumer is alone if the last this many commits are of its session, and each was decided after the one before it.
#: If one was not, two programs may share the session.
_ALONE = 10


class _Ready(NamedTuple):
    """A task that is stored as ready: its place in the order, the version since which it is, and the end of its ttl."""

    place: tuple[int, int]
    since: int
    row: Row


class Judge:
    """Judges one tube, by its limits as loose as they were at any time. The commits are given in their order."""

    def __init__(self, name: str, id: int, driver: Driver, options: Sequence[TubeOptions]) -> None:
        """Know no task.

        Args:
            name: The name of the tube.
            id: Its id.
            driver: Its type.
            options: All options that it has had. The order or the rate is not judged if it has changed.
        """
        self.name = name
        self.violations: list[Violation] = []
        self._id, self._subqueues = id, driver.subqueues
        orders, rates = {order_of(driver, of) for of in options}, {of.rate for of in options}
        self._order = orders.pop() if len(orders) == 1 else ()
        self._rate = rates.pop() if len(rates) == 1 else None
        self._parallel = max(of.parallel for of in options)
        self._most_taken = _loosest([of.most_taken for of in options])
        self._capacity = _loosest([of.capacity for of in options])
        self._ids: set[int] = set()
        self._over: set[int] = set()
        self._keys: dict[str, int] = {}
        self._ready: dict[int, _Ready] = {}
        self._queues: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
        self._taken: dict[str | None, dict[int, Row]] = defaultdict(dict)
        self._moments: dict[str | None, list[int]] = defaultdict(list)
        self._total = 0
        self._sessions: deque[str] = deque(maxlen=_ALONE)
        self._version, self._is_counted, self._at_us = 0, True, 0

    @property
    def tasks(self) -> int:
        """The number of tasks that any version had."""
        return len(self._ids | self._over)

    def begin(self, version: int, rows: pa.Table, totals: Mapping[str, int]) -> None:
        """Begin with the rows of a version, and the versions of its application ids. They are not judged."""
        self._version = version
        self._total = totals.get(total_of(self._id), 0)
        for row in rows_of(tasks_of(rows)):
            self._enter(row)

    def judge(self, commit: Replayed, *, is_counted: bool = True) -> None:
        """Judge the next commit; without `is_counted`, only learn what it changed."""
        self._version, self._is_counted = commit.version, is_counted
        removed, added = changed(tasks_of(commit.before), tasks_of(commit.after))
        before = {row.task_id: row for row in removed}
        after = {row.task_id: row for row in added}
        if len(before) < len(removed) or len(after) < len(added):
            self._fail("doubled", "a task has two rows")
        note = commit.note
        if note is None:
            if before or after:
                changes = f"{commit.statement} of another program changed {len({**before, **after})} tasks"
                self._fail("stranger", changes)
        else:
            self._judge_steps(note, before, after)
            self._judge_counts(note, commit, len(before.keys() - after))
        since = {id: found.since for id in before if (found := self._ready.get(id)) is not None}
        for row in before.values():
            self._leave(row)
        if note is not None and note.operation in TAKES:
            self._judge_take(note, commit, [after[id] for id in after if after[id].state == "t"])
        for row in after.values():
            # A compaction moves tasks that stay as they are.
            is_moved = row.state == before.get(row.task_id, row).state
            self._enter(row, since.get(row.task_id) if is_moved else None)
        self._over.update(before.keys() - after)
        if note is not None:
            capacity, tasks = self._capacity, len(self._ids)
            if note.operation in PUTS and capacity is not None and tasks > capacity:
                self._fail("capacity", f"the tube has {tasks} tasks, {capacity} fit")
            has_read_last = note.base in (None, commit.version - 1)
            is_later = note.at_us is None or note.at_us >= self._at_us
            self._sessions.append(note.session if has_read_last and is_later else "")
            self._at_us = note.at_us or self._at_us

    def _fail(self, rule: str, text: str, task_id: int | None = None) -> None:
        if self._is_counted:
            found = Violation(self.name, self._version, rule, text, task_id)
            self.violations.append(found)

    # -- the tasks -----------------------------------------------------------------------------------

    def _enter(self, row: Row, since: int | None = None) -> None:
        """A row is there from this version on; its task may be ready since an earlier one."""
        task_id = row.task_id
        if task_id in self._ids or task_id in self._over:
            self._fail("doubled", "was there before", task_id)
        self._ids.add(task_id)
        if row.unique is not None:
            other = self._keys.setdefault(row.unique, task_id)
            if other != task_id:
                self._fail("unique", f"has the key of task {other}", task_id)
        if row.state == "t":
            self._taken[row.utube][task_id] = row
        elif row.state == "r":
            place = self._place(row)
            self._ready[task_id] = _Ready(place, since or self._version, row)
            heapq.heappush(self._queues[self._queue(row)], place)

    def _leave(self, row: Row) -> None:
        """A row is no longer there."""
        task_id = row.task_id
        if task_id not in self._ids:
            self._fail("doubled", "was removed, but it was not there", task_id)
        self._ids.discard(task_id)
        self._ready.pop(task_id, None)
        self._taken[row.utube].pop(task_id, None)
        if row.unique is not None and self._keys.get(row.unique) == task_id:
            del self._keys[row.unique]

    def _judge_steps(self, note: Note, before: Mapping[int, Row], after: Mapping[int, Row]) -> None:
        for task_id in {**before, **after}:
            fault = fault_of_step(note, before.get(task_id), after.get(task_id))
            if fault is not None:
                self._fail("step", f"{note.operation}: the task {fault}", task_id)

    # -- the order -----------------------------------------------------------------------------------

    def _queue(self, row: Row) -> str | None:
        return row.utube if self._subqueues else None

    def _place(self, row: Row) -> tuple[int, int]:
        order = self._order
        key = (row.rank or 0) if "rank" in order else row.pri if "pri" in order else 0
        return key, row.task_id

    def _judge_order(self, note: Note, base: int, taken: Sequence[Row]) -> None:
        """Find ready tasks that come before the taken ones of their queue, and were left."""
        last: dict[str | None, Row] = {}
        for row in taken:
            queue = self._queue(row)
            if queue not in last or self._place(row) > self._place(last[queue]):
                last[queue] = row
        for queue, row in last.items():
            for left in self._first(queue, self._place(row)):
                if left.since <= base and left.row.is_alive(note.at_us or 0):
                    text = f"was taken before task {left.row.task_id}, which was ready"
                    self._fail("order", text, row.task_id)
                    break

    def _first(self, queue: str | None, before: tuple[int, int]) -> list[_Ready]:
        """The ready tasks of a queue before a place, in order."""
        heap, ready = self._queues[queue], []
        while heap and heap[0] < before:
            place = heapq.heappop(heap)
            found = self._ready.get(place[1])
            # A task that was taken, or has got another priority, may have left its place in the heap.
            if found is not None and found.place == place:
                ready.append(found)
        for found in ready:
            heapq.heappush(heap, found.place)
        return ready

    # -- the limits ----------------------------------------------------------------------------------

    def _judge_take(self, note: Note, commit: Replayed, taken: Sequence[Row]) -> None:
        base = commit.read if note.base is None else note.base
        is_alone = {*self._sessions} == {note.session} and len(self._sessions) == _ALONE
        if base is not None and self._order and (self._subqueues or is_alone):
            self._judge_order(note, base, taken)
        if self._subqueues:
            self._judge_subqueues(note, taken)
        most = self._most_taken
        if most is not None and taken:
            held = sum(len(self._lasting(note, utube)) for utube in [*self._taken])
            if held + len(taken) > most:
                self._fail("most_taken", f"{held + len(taken)} tasks are taken, {most} may be")

    def _lasting(self, note: Note, utube: str | None) -> list[Row]:
        """The tasks of a sub-queue that are taken by leases that last, without those of this commit."""
        at_us = note.at_us or 0
        return [row for row in self._taken[utube].values() if row.is_lasting(at_us)]

    def _judge_subqueues(self, note: Note, taken: Sequence[Row]) -> None:
        by_utube: dict[str | None, list[Row]] = defaultdict(list)
        for row in taken:
            by_utube[row.utube].append(row)
        for utube, rows in by_utube.items():
            held = self._lasting(note, utube)
            if held and (self._parallel == 1 or len(held) + len(rows) > self._parallel):
                text = f"the sub-queue {utube!r} was taken with task {held[0].task_id}"
                self._fail("exclusive", text, rows[0].task_id)
            if self._rate is not None:
                self._judge_rate(self._rate, utube, rows)

    def _judge_rate(self, rate: Rate, utube: str | None, rows: Sequence[Row]) -> None:
        moments, now_us = self._moments[utube], rows[0].since or 0
        if rate.room(moments, now_us) < len(rows):
            text = f"{len(rows)} leases of {utube!r} began, more than its rate allows"
            self._fail("rate", text, rows[0].task_id)
        self._moments[utube] = begun(moments, now_us, len(rows), rate.tasks)

    # -- the counts ----------------------------------------------------------------------------------

    def _judge_counts(self, note: Note, commit: Replayed, ended: int) -> None:
        rows = commit.after.num_rows - commit.before.num_rows
        if note.changed is not None and note.changed.inserted - note.changed.deleted != rows:
            self._fail("count", f"its note tells {note.changed}, but there are {rows} rows more")
        new = commit.totals.get(total_of(self._id))
        if new is None:
            return
        counted = 0 if note.operation in _UNCOUNTED else ended
        if new != self._total + counted:
            text = f"{new} tasks are counted as done after {self._total}, and {counted} have ended"
            self._fail("count", text)
        self._total = new


def _loosest(limits: Sequence[int | None]) -> int | None:
    """The greatest of some limits; `None` is no limit."""
    return None if None in limits else max(limit for limit in limits if limit is not None)
