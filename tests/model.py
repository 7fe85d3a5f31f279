"""The reference model: what a tube does (fifo, fifottl, utubettl), in plain Python and in memory.

It is the oracle of the stateful tests and reads as the specification. Everything is judged by
the *effective* state of a task: what it is at the moment of the call, whether or not anybody has
written that down. Four rules carry the whole model:

1.  A task has a state, the moment of its next automatic transition (``next_event``) and the moment
    its life ends (``expires_at``). ``None`` is never. A moment is due when ``moment <= now``.
2.  What is due happens by itself (``ModelTask.due_transitions``)::

        ~ delayed   next_event due  ->  r ready                     counted ``delay``
        t taken     next_event due  ->  r ready, or ! buried        counted ``ttr`` (and ``bury``)
                                        when its attempts are used up
        r ! ready or buried, expires_at due  ->  - gone             counted ``ttl``

    A taken task is governed by its lease alone, a delayed one by its delay: the end of its life
    takes effect the moment it is ready or buried.
3.  Every verb sees tasks after rule 2. What time has done is counted when somebody writes it down: a
    sweep writes down everything, a verb at least what was due to the tasks that it changes. So the
    counts of time, and ``done``, have a range: from what must be written down by now
    (``call_counts``) to what has happened by now (``pending`` is the difference).
4.  ack, release and touch belong to the session that holds the task while its lease lasts; bury,
    delete and peek to everybody.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

READY, TAKEN, DONE, BURIED, DELAYED = "r", "t", "-", "!", "~"
TIME = "time"
"""In place of a session: who ends delays, leases and lives."""
COUNTED_STATES = {READY: "ready", TAKEN: "taken", BURIED: "buried", DELAYED: "delayed"}
TYPES_WITH_TIME = frozenset({"fifottl", "limfifottl", "utubettl"})
TYPES_WITH_SUBQUEUES = frozenset({"utubettl"})


class ModelRefusal(Exception):  # noqa: N818 - a verdict of the model, not an error in it
    """The verb is refused and changes nothing."""


class NotTaken(ModelRefusal):
    """The session does not hold the task, for whatever reason."""


class NotFound(ModelRefusal):
    """There is no such task (any more)."""


class Busy(ModelRefusal):
    """Tasks are taken."""


def _after(moment: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else moment + timedelta(seconds=seconds)


def _sum(seconds: float | None, more: float) -> float | None:
    return None if seconds is None else seconds + more


def _is_due(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now


@dataclass
class ModelTask:
    """One task as it was last written down."""

    task_id: int
    data: Any
    created: datetime
    state: str = READY
    pri: int = 0
    ttl: float | None = None
    ttr: float | None = None
    next_event: datetime | None = None
    expires_at: datetime | None = None
    attempts: int = 0
    owner: str | None = None
    utube: str | None = None
    lease: int = 0
    """Which of the tube's takes was the last to take it."""

    def due_transitions(self, now: datetime, max_attempts: int | None) -> Iterator[str]:
        """Make every transition that is due, yielding the name under which each is counted."""
        if self.state == DELAYED and _is_due(self.next_event, now):
            self.become(READY)
            yield "delay"
        elif self.state == TAKEN and _is_due(self.next_event, now):
            exhausted = self.is_exhausted(max_attempts)
            self.become(BURIED if exhausted else READY)
            yield "ttr"
            if exhausted:
                yield "bury"
        if self.state in {READY, BURIED} and _is_due(self.expires_at, now):
            self.become(DONE)
            yield "ttl"

    def become(self, state: str) -> None:
        """Enter a state that nobody holds and that lasts until the end of the task's life."""
        self.state = state
        self.owner = None
        self.next_event = self.expires_at

    def is_exhausted(self, max_attempts: int | None) -> bool:
        """Whether the task is buried when it is given back once more."""
        return max_attempts is not None and self.attempts >= max_attempts

    def shift_life(self, seconds: float) -> None:
        """Lengthen the task's life."""
        self.ttl = _sum(self.ttl, seconds)
        self.expires_at = None if self.expires_at is None else _after(self.expires_at, seconds)


@dataclass
class ModelTube:
    """A tube: its options, its tasks by id, and its counters."""

    type: str = "fifo"
    pri: int = 0
    ttl: float | None = None
    ttr: float | None = None
    delay: float = 0
    max_attempts: int | None = None
    tasks: dict[int, ModelTask] = field(default_factory=dict)
    calls: dict[str, Counter[str]] = field(default_factory=dict)
    done: int = 0
    takes: int = 0
    events: list[tuple[str, str, int]] = field(default_factory=list)
    """What happened, in order: (session or TIME, event, task id)."""
    truncated: list[tuple[str, int]] = field(default_factory=list)
    """What time had done to tasks that were truncated: written down before, or never."""

    @property
    def has_time(self) -> bool:
        """Whether the type knows pri, ttl, ttr, delay and touch."""
        return self.type in TYPES_WITH_TIME

    # -- what is there -----------------------------------------------------------------------

    def effective(self, now: datetime) -> list[ModelTask]:
        """Every task that is still there, as it is now, in the order of take."""
        tasks = []
        for stored in self.tasks.values():
            task = replace(stored)
            for _ in task.due_transitions(now, self.max_attempts):
                pass
            if task.state != DONE:
                tasks.append(task)
        return sorted(tasks, key=self._place)

    def in_state(self, state: str, now: datetime) -> list[ModelTask]:
        """The tasks effectively in a state, in the order of take."""
        return [task for task in self.effective(now) if task.state == state]

    def held_by(self, session: str, now: datetime) -> list[ModelTask]:
        """The tasks a session holds."""
        return [task for task in self.in_state(TAKEN, now) if task.owner == session]

    def pending(self, now: datetime) -> list[tuple[str, int]]:
        """What time has done that need not be written down: (event, task id)."""
        return self.truncated + [
            (name, stored.task_id)
            for stored in self.tasks.values()
            for name in replace(stored).due_transitions(now, self.max_attempts)
        ]

    def task_counts(self, now: datetime) -> dict[str, int]:
        """``statistics()["tasks"]``; ``done`` at its least."""
        counts = dict.fromkeys(COUNTED_STATES.values(), 0)
        for task in self.effective(now):
            counts[COUNTED_STATES[task.state]] += 1
        return counts | {"total": sum(counts.values()), "done": self.done}

    def call_counts(self, sessions: Iterable[str] | None = None) -> Counter[str]:
        """``statistics()["calls"]``, of some sessions or of all."""
        total: Counter[str] = Counter()
        for session in self.calls if sessions is None else sessions:
            total.update(self.calls.get(session, Counter()))
        return total

    # -- verbs ---------------------------------------------------------------------------------

    def put(
        self,
        session: str,
        now: datetime,
        task_id: int,
        data: Any,
        *,
        pri: int | None = None,
        ttl: float | None = None,
        ttr: float | None = None,
        delay: float | None = None,
        utube: str | None = None,
    ) -> ModelTask:
        """Add a task; the delay comes on top of the ttl, and the ttr is by default the ttl."""
        ttl = self.ttl if ttl is None else ttl
        ttr = self.ttr if ttr is None else ttr
        ttr = ttl if ttr is None else ttr
        delay = self.delay if delay is None else delay
        task = ModelTask(
            task_id,
            data,
            created=now,
            pri=self.pri if pri is None else pri,
            ttl=ttl,
            ttr=ttr,
            utube=utube,
        )
        task.expires_at = _after(now, ttl)
        task.next_event = task.expires_at
        if delay > 0:
            self._delay(task, now, delay)
        self.tasks[task_id] = task
        self._count(session, "put", task)
        return replace(task)

    def take(
        self, session: str, now: datetime, count: int = 1, per_utube: int = 1
    ) -> list[ModelTask]:
        """Take the first ready tasks: (pri, id) in types with time, id in the others.

        Of sub-queues: those that nobody holds, by their heads, up to `per_utube` of each in order.
        """
        ready = self.in_state(READY, now)
        if self.type in TYPES_WITH_SUBQUEUES:
            busy = {task.utube for task in self.in_state(TAKEN, now)}
            by_utube: dict[str | None, list[ModelTask]] = {}
            for task in ready:
                if task.utube not in busy:
                    by_utube.setdefault(task.utube, []).append(task)
            ready = [task for tasks in by_utube.values() for task in tasks[:per_utube]]
        taken = []
        self.takes += 1
        for task_id in [task.task_id for task in ready[:count]]:
            task = self._written_down(now, task_id)
            task.state, task.owner, task.lease = TAKEN, session, self.takes
            task.next_event = _after(now, task.ttr)
            task.attempts += 1
            self._count(session, "take", task)
            taken.append(replace(task))
        return taken

    def ack(self, session: str, now: datetime, task_ids: Sequence[int]) -> list[ModelTask]:
        """Finish held tasks: they are gone."""
        self._must_hold(session, now, task_ids)
        return [self._remove(session, self.tasks[task_id], "ack") for task_id in task_ids]

    def release(
        self, session: str, now: datetime, task_ids: Sequence[int], delay: float = 0
    ) -> list[ModelTask]:
        """Give held tasks back, to their old places; a delay also lengthens their lives."""
        self._must_hold(session, now, task_ids)
        return [self._release(session, now, self.tasks[task_id], delay) for task_id in task_ids]

    def touch(
        self, session: str, now: datetime, task_id: int, increment: float
    ) -> ModelTask | None:
        """Lengthen the lease, the life, and the leases of later takes."""
        if increment == 0:
            return None
        self._must_hold(session, now, [task_id])
        task = self.tasks[task_id]
        task.ttr = _sum(task.ttr, increment)
        task.next_event = None if task.next_event is None else _after(task.next_event, increment)
        task.shift_life(increment)
        self._count(session, "touch", task)
        return replace(task)

    def bury(self, session: str, now: datetime, task_ids: Sequence[int]) -> list[ModelTask]:
        """Set tasks aside, in whatever state; a buried one stays as it is, uncounted."""
        self._must_exist(now, task_ids)
        buried = []
        for task_id in task_ids:
            task = self._written_down(now, task_id)
            if task.state != BURIED:
                task.become(BURIED)
                self._count(session, "bury", task)
            buried.append(replace(task))
        return buried

    def delete(self, session: str, now: datetime, task_ids: Sequence[int]) -> list[ModelTask]:
        """Remove tasks, in whatever state."""
        self._must_exist(now, task_ids)
        return [
            self._remove(session, self._written_down(now, task_id), "delete")
            for task_id in task_ids
        ]

    def peek(self, now: datetime, task_id: int) -> ModelTask:
        """Look at a task."""
        self._must_exist(now, [task_id])
        return next(task for task in self.effective(now) if task.task_id == task_id)

    def kick(self, session: str, now: datetime, count: int = 1) -> int:
        """Make the first buried tasks ready, with all their attempts before them."""
        task_ids = [task.task_id for task in self.in_state(BURIED, now)[:count]]
        for task_id in task_ids:
            task = self._written_down(now, task_id)
            task.become(READY)
            task.attempts = 0
            self._count(session, "kick", task)
        return len(task_ids)

    def exchange(
        self, session: str, now: datetime, ack: Sequence[int], take: int, per_utube: int = 1
    ) -> list[ModelTask]:
        """Finish held tasks and take the next; when the first is refused, take nothing."""
        self.ack(session, now, ack)
        return self.take(session, now, take, per_utube)

    def release_all(self, session: str, now: datetime) -> None:
        """Give back every taken task, whoever holds it."""
        for task in self.in_state(TAKEN, now):
            self._release(session, now, self.tasks[task.task_id])

    def truncate(self, now: datetime) -> None:
        """Remove everything; nothing is counted."""
        self.truncated = self.pending(now)
        self.tasks.clear()

    def check_drop(self, now: datetime) -> None:
        """Refuse a drop while tasks are taken."""
        if self.in_state(TAKEN, now):
            raise Busy

    # -- what happens by itself ------------------------------------------------------------------

    def sweep(self, session: str, now: datetime, dead: Iterable[str] = ()) -> Counter[str]:
        """Write down all that is due, then release what dead sessions still hold."""
        report: Counter[str] = Counter()
        for task_id in list(self.tasks):
            report.update(self._write_down(now, task_id))
        for owner in dead:
            report["release"] += self.end_session(session, now, owner)
        return report

    def end_session(self, session: str, now: datetime, owner: str) -> int:
        """Release what a closed or dead session held; ``session`` is the one that does it."""
        held = self.held_by(owner, now)
        for task in held:
            self._release(session, now, self.tasks[task.task_id])
        return len(held)

    # -- parts -----------------------------------------------------------------------------------

    def _place(self, task: ModelTask) -> tuple[int, int]:
        return (task.pri if self.has_time else 0, task.task_id)

    def _must_hold(self, session: str, now: datetime, task_ids: Sequence[int]) -> None:
        if not {task.task_id for task in self.held_by(session, now)}.issuperset(task_ids):
            raise NotTaken

    def _must_exist(self, now: datetime, task_ids: Sequence[int]) -> None:
        if not {task.task_id for task in self.effective(now)}.issuperset(task_ids):
            raise NotFound

    def _written_down(self, now: datetime, task_id: int) -> ModelTask:
        self._write_down(now, task_id)
        return self.tasks[task_id]

    def _write_down(self, now: datetime, task_id: int) -> list[str]:
        task = self.tasks[task_id]
        names = list(task.due_transitions(now, self.max_attempts))
        for name in names:
            self._count(TIME, name, task)
        if task.state == DONE:
            del self.tasks[task_id]
            self.done += 1
        return names

    def _delay(self, task: ModelTask, now: datetime, delay: float) -> None:
        task.become(DELAYED)
        task.shift_life(delay)
        task.next_event = _after(now, delay)

    def _release(self, session: str, now: datetime, task: ModelTask, delay: float = 0) -> ModelTask:
        exhausted = task.is_exhausted(self.max_attempts)
        if exhausted:
            task.become(BURIED)
        elif delay > 0:
            self._delay(task, now, delay)
        else:
            task.become(READY)
        self._count(session, "release", task)
        if exhausted:
            self._count(session, "bury", task)
        return replace(task)

    def _remove(self, session: str, task: ModelTask, name: str) -> ModelTask:
        task.become(DONE)
        del self.tasks[task.task_id]
        self.done += 1
        self._count(session, name, task)
        return replace(task)

    def _count(self, session: str, name: str, task: ModelTask) -> None:
        self.calls.setdefault(session, Counter())[name] += 1
        self.events.append((session, name, task.task_id))
