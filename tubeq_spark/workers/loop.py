"""The loop of `Tube.work`: takes tasks ahead, hands them to a pool, and settles several ended tasks in one commit.

The caller's thread makes all commits: it acks ended tasks and takes the next ones by one exchange. Meanwhile the
pool goes on with tasks that were taken ahead. If the process is killed at any moment, the held tasks come back
when their leases end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark.clock import US, to_us
from tubeq_spark.workers.brake import Brake
from tubeq_spark.workers.handlers import Failure, WorkReport
from tubeq_spark.workers.source import LOOK, STOPPED, log_lost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.clock import Clock
    from tubeq_spark.runtime.stopping import Stop
    from tubeq_spark.task import Task
    from tubeq_spark.workers.handlers import Ears, Limits
    from tubeq_spark.workers.pools import Pool
    from tubeq_spark.workers.source import Source

log = logging.getLogger(__name__)
#: The most tasks that are taken ahead.
MOST_AHEAD = 1_000
#: How often it tries at its end to settle ended tasks, with `LOOK` seconds in between.
_LAST_TRIES = 3
_EVER = float("inf")
#: The most seconds for which done tasks wait for others.
_GATHERS = 1.0


@dataclass(slots=True)
class _Ended:
    """A task in no call that is still held.

    Attributes:
        task: The task, by its newest lease.
        begun: Whether a call has begun with it.
        failure: Why it has failed.
        until: The moment until which it is held, so that nobody takes from its sub-queue before.
    """

    task: Task
    begun: bool
    failure: Failure | None
    until: float


@dataclass(eq=False)
class Loop:
    """One call of `Tube.work`. For one thread.

    Attributes:
        source: The tube.
        pool: Calls the handler.
        stop: Ends the loop.
        limits: End it, too.
        clock: The clock of the queue.
        ears: Functions that it calls.
    """

    source: Source
    pool: Pool
    stop: Stop
    limits: Limits
    clock: Clock
    ears: Ears
    #: Tasks in a call, or waiting for one, by id.
    _in_hand: dict[int, Task] = field(default_factory=dict, init=False)
    #: The number of calls that run or wait for their turn.
    _calls: int = field(default=0, init=False)
    #: Tasks in no call, which are not settled yet, by id.
    _ended: dict[int, _Ended] = field(default_factory=dict, init=False)
    #: How many tasks are taken ahead: twice as many as have ended during the last two commits. During one
    #: commit calls go on with the tasks of the other one; by one commit alone the number would swing.
    _size: int = field(default=0, init=False)
    _ended_before: int = field(default=0, init=False)
    #: Whether the last take found fewer tasks than it asked for, because its sub-queues are few.
    _is_scarce: bool = field(default=False, init=False)
    #: Until when done tasks of few sub-queues wait for the running calls.
    _gathers_until: float = field(default=0.0, init=False)
    #: Whether it has said that it ends after the running calls, and has settled all other tasks.
    _is_told: bool = field(default=False, init=False)
    #: Whether no other call begins, so that failed tasks are held no longer.
    _is_over: bool = field(default=False, init=False)
    #: Sees the outcomes of calls, also in their threads.
    brake: Brake = field(init=False)

    def __post_init__(self) -> None:
        """Begin now."""
        self._began = self.clock.monotonic()
        #: The moment of the last task, and the next moments to look for a task, and to settle and to renew again after
        #: an error.
        self._seen = self._next_look = self._next_try = self._next_renewal = self._began
        self._counts = {"done": 0, "failed": 0, "buried": 0}
        patience = self.limits.idle
        self.brake = Brake(self.source.name, self.clock.monotonic, self.source.count, patience)

    def run(self) -> WorkReport:
        """Work until the loop ends. If an error ends it, settle the held tasks as far as possible."""
        try:
            while self._step():
                pass
        except BaseException:
            self._let_go()
            raise
        finally:
            self.brake.end()
        return self._report()

    def _report(self) -> WorkReport:
        seconds = self.clock.monotonic() - self._began
        return WorkReport(**self._counts, seconds=seconds, gave_up=self.brake.gave_up)

    def _step(self) -> bool:
        """Settle ended tasks, take and hand out the next ones, and wait; False if the loop is over."""
        self._collect()
        stopping = self.stop.is_asked or self.brake.gave_up
        if self.stop.is_urgent:
            error = self._let_go()
            if error is not None:
                raise error
            if self._calls and self.stop.signal is not None:
                self.ears.cut_off(self.stop.signal)
            return False
        if stopping and not self._is_over:
            self._is_over = True
            self._withdraw()
        self._settle(0 if stopping else self._wanted())
        if self.stop.is_asked and not (self._is_told or self._settles):
            self._is_told = True
            self.ears.stopping(self._calls)
        # At once: during the wait for calls this process may be killed, and its report would be lost.
        self.ears.progress(self._report())
        self._renew()
        # Calls whose tasks were lost still occupy threads. The tube may have tasks for the other threads.
        if self._in_hand or self._settles or (self._calls and not (stopping or self._room)):
            self._wait_for_calls()
            return True
        return not stopping and self._wait_for_tasks()

    # -- what has ended ----------------------------------------------------------------------

    def _collect(self) -> None:
        for outcome in self.pool.ended():
            self._calls -= 1
            for task in outcome.done:
                self._end(task)
            for task in outcome.untried:
                # If no commit has written the end of a lease, this session still holds the task.
                self._end(task, begun=False)
            for failure in outcome.failed:
                failure.log()
                self._counts["failed"] += self._end(failure.task, failure)
            self._seen = self.clock.monotonic()
        if self.brake.waits:
            self._withdraw()

    def _end(self, task: Task, failure: Failure | None = None, *, begun: bool = True) -> bool:
        """Plan to settle a task, at once or later; False if this loop does not hold it for this attempt."""
        newest = self._in_hand.get(task.task_id)
        # A lost task may have been taken again.
        if newest is None or newest.attempts != task.attempts:
            log_lost(task)
            return False
        until = self.clock.monotonic()
        # While the brake is on, its pauses alone count.
        if failure is not None and not self.brake.is_on:
            until += self.source.holds_for(failure)
        del self._in_hand[task.task_id]
        self._ended[task.task_id] = _Ended(newest, begun, failure, until)
        return True

    @property
    def _settles(self) -> list[_Ended]:
        """The tasks to settle now."""
        now = _EVER if self._is_over else self.clock.monotonic()
        return [ended for ended in self._ended.values() if ended.until <= now]

    @property
    def _held(self) -> list[Task]:
        """All tasks that are taken, and not settled."""
        return [*self._in_hand.values(), *(ended.task for ended in self._ended.values())]

    def _settle(self, wanted: int) -> None:
        """Ack and release ended tasks, and take up to `wanted` tasks."""
        if self._gathers or self.clock.monotonic() < self._next_try:
            return
        self._give_back()
        self._settle_failed()
        self._settle_done(wanted)
        if self._settles:
            # The storage failed for a moment, or rivals came first.
            self._next_try = self.clock.monotonic() + LOOK

    @property
    def _gathers(self) -> bool:
        """Whether done tasks wait for the running calls, so that one commit settles them all.

        Workers with few sub-queues wait for each other's commits, so more tasks in each are more in all. A worker waits
        only if it has no task for one of its threads, and for no longer than its last commit took.
        """
        is_idle = self._is_scarce and 0 < self._calls < self.limits.calls
        return is_idle and not self._is_over and self.clock.monotonic() < self._gathers_until

    @property
    def _done(self) -> list[Task]:
        return [ended.task for ended in self._settles if ended.begun and ended.failure is None]

    def _settled(self, tasks: Sequence[Task], later: Sequence[Task]) -> None:
        """Forget settled tasks, except those to settle later."""
        left = {task.task_id for task in later}
        for task in tasks:
            if task.task_id not in left:
                del self._ended[task.task_id]

    def _give_back(self) -> None:
        """Give back the tasks that will not begin, as if they had never been taken."""
        if unbegun := [ended.task for ended in self._settles if not ended.begun]:
            self._settled(unbegun, self.source.give_back(unbegun))

    def _settle_failed(self) -> None:
        failures = [ended.failure for ended in self._settles if ended.failure is not None]
        if failures:
            buried, later = self.source.fail(failures)
            self._settled([failure.task for failure in failures], later)
            self._counts["buried"] += buried

    def _settle_done(self, wanted: int = 0) -> None:
        most_ahead = MOST_AHEAD if self.source.takes_ahead else 0
        done = self._done
        ahead = 2 * (len(done) + self._ended_before)
        if self._is_scarce:
            ahead = max(len(done), self._ended_before)
        self._size = min(max(ahead, self._size // 2), most_ahead)
        self._ended_before = len(done)
        if done:
            began = self.clock.monotonic()
            acked, later, taken = self.source.finish(done, wanted)
            ended = self.clock.monotonic()
            self._gathers_until = ended + min(ended - began, _GATHERS)
            self._settled(done, later)
            self._counts["done"] += len(acked)
            if wanted:
                self._took(taken, wanted)
        elif wanted:
            self._took(self.source.take(wanted), wanted)

    def _let_go(self) -> Exception | None:
        """Settle ended tasks, and give back all others. No other call begins, and running ones are not waited for.

        Returns:
            The first error. After an error of a step the others still run.
        """
        self._is_over = True
        self._withdraw()
        self._collect()

        def cut_off() -> None:
            # Calls that have ended meanwhile are settled, too.
            self._collect()
            # No call begins with the other tasks any more, because `is_held` is false for them.
            for task in list(self._in_hand.values()):
                self._end(task, Failure(task, STOPPED))
            self._settle_failed()

        first: Exception | None = None
        for tries in range(_LAST_TRIES):
            if tries:
                self.clock.sleep(LOOK)
            for step in (self._give_back, self._settle_failed, self._settle_done, cut_off):
                try:
                    step()
                except Exception as error:  # noqa: BLE001  (it is raised in the end, or another one is)
                    log.warning("not all tasks could be settled at the end of work: %s", error)
                    first = first or error
            if first or not self._ended:
                break
        return first

    def is_held(self, task: Task) -> bool:
        """Whether a call may begin with a task: its lease has not ended, as far as this loop knows."""
        if self.brake.is_on and task.task_id != self.brake.tried:
            return False
        newest = self._in_hand.get(task.task_id)
        if newest is None or newest.attempts != task.attempts:
            return False
        if newest.next_event is not None and newest.next_event <= self.clock.now():
            return False
        return self.source.holds(newest)

    # -- what comes next ---------------------------------------------------------------------

    def _wanted(self) -> int:
        # An ack of a sub-queue's task lets its next task begin. All other workers would ask for it at the same time.
        frees = self.source.frees_tasks and self._done
        return self._room if frees or self.clock.monotonic() >= self._next_look else 0

    @property
    def _room(self) -> int:
        """How many more tasks to take, for all calls and ahead."""
        if len(self._ended) - len(self._settles) >= MOST_AHEAD:
            # So many failed tasks are held.
            return 0
        if self.brake.is_on:
            # Calls that began before may run for long.
            is_busy = self.brake.tried in self._in_hand or self._calls >= self.limits.calls
            if is_busy or self.brake.waits:
                return 0
            return min(self.brake.choice, MOST_AHEAD) if self.source.takes_ahead else 1
        if not self.source.takes_ahead:
            # A call with fewer tasks than `batch` still occupies a thread.
            return max(0, self.limits.calls - self._calls) * self.limits.batch
        most = self.limits.calls * self.limits.batch + self._size
        return max(0, most - len(self._in_hand))

    def _took(self, tasks: Sequence[Task], wanted: int) -> None:
        """Hand out taken tasks."""
        now = self.clock.monotonic()
        if tasks:
            self._seen = now
        for task in tasks:
            if (ended := self._ended.pop(task.task_id, None)) is not None:
                log_lost(ended.task)
        is_short = len(tasks) < wanted
        self._is_scarce = is_short and self.source.frees_tasks
        if is_short:
            # The tube has no more tasks for now. Until the next look, ended calls are settled without a take.
            self._next_look = now + self.limits.poll
        self._in_hand.update((task.task_id, task) for task in tasks)
        if self.brake.is_on and wanted:
            tasks = self._one_to_try(tasks)
        for start in range(0, len(tasks), self.limits.batch):
            self._calls += 1
            self.pool.submit(tasks[start : start + self.limits.batch])

    def _one_to_try(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """The one that the brake chooses; the others are given back."""
        tried = self.brake.choose(tasks)
        for task in tasks:
            if task.task_id != tried:
                self._end(task, begun=False)
        self._give_back()
        return [task for task in tasks if task.task_id == tried]

    def _withdraw(self) -> None:
        """Withdraw tasks that were taken ahead from the pool."""
        for unit in self.pool.withdraw():
            self._calls -= 1
            for task in unit:
                self._end(task, begun=False)

    def _renew(self) -> None:
        """Renew the leases of all held tasks, if one of them is half over."""
        now_us, held = to_us(self.clock.now()), self._held
        if all(_left_us(task, now_us) > 0 for task in held):
            return
        now = self.clock.monotonic()
        if now < self._next_renewal:
            return
        renewed, later = self.source.renew(held)
        if later:
            self._next_renewal = now + LOOK
        lasting = {task.task_id: task for task in [*renewed, *later]}
        self._in_hand = {i: lasting[i] for i in self._in_hand if i in lasting}
        for ended in self._ended.values():
            # If it was lost, settling it will show it.
            ended.task = lasting.get(ended.task.task_id, ended.task)

    # -- waiting -----------------------------------------------------------------------------

    def _wait_for_tasks(self) -> bool:
        """Wait for a task as a take does, because none is in hand; False if it was idle for long enough."""
        now = self.clock.monotonic()
        if self.brake.waits:
            # The tube may have tasks, so the loop is not idle. The brake knows when to give up.
            self._seen = now
        idle, waits = self.limits.idle, LOOK
        if self._ended:
            waits = min(waits, max(0.001, min(e.until for e in self._ended.values()) - now))
        elif idle is not None:
            waits = min(waits, max(0.0, self._seen + idle - now))
        wanted = self._room
        tasks = self.source.take(wanted, waits)
        self._took(tasks, wanted)
        if not tasks:
            # A take from a storage that fails may end too early.
            self.clock.sleep(max(0.0, now + waits - self.clock.monotonic()))
        if tasks or self._ended or idle is None:
            return True
        return self.clock.monotonic() - self._seen < idle

    def _wait_for_calls(self) -> None:
        """Wait until a call ends, or until there is something else to do."""
        now_us, now = to_us(self.clock.now()), self.clock.monotonic()
        renews = min((_left_us(task, now_us) / US for task in self._in_hand.values()), default=LOOK)
        waits = [LOOK, max(renews, self._next_renewal - now)]
        if self._gathers:
            waits.append(self._gathers_until - now)
        elif self._room and not self._is_over:
            waits.append(max(self._next_look, self._next_try) - now)
        self.pool.wait(max(min(waits), 0.001))


def _left_us(task: Task, now_us: int) -> float:
    """Microseconds until only half of a task's ttr is left of its lease; infinite if it does not end."""
    if task.next_event is None or task.ttr is None:
        return float("inf")
    return to_us(task.next_event) - task.ttr / 2 * US - now_us
