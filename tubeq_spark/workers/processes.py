"""Runs several processes that work on one tube: starts them, starts dead ones again, and asks them to end.

Each child writes lines of JSON to a pipe: its session, its report so far, the tasks of calls that begin and end, and that
it takes no more tasks. A child with a call that takes too long is asked to end, and killed when it has settled its other
tasks. When a child has died, the tasks of its calls have failed, and its other tasks are given back.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import subprocess
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import SessionError
from tubeq_spark.workers.handlers import Failure, WorkReport
from tubeq_spark.workers.source import LOOK, Source, going_on

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tubeq_spark.clock import Clock
    from tubeq_spark.runtime.stopping import Stop
    from tubeq_spark.tube import Tube

log = logging.getLogger(__name__)

#: Seconds before a child that died is started again. They double while children die at once.
_FIRST, _MOST = 1.0, 60.0
#: The exit code of a child after which a new start does not help: bad use, or a tube that is gone.
BAD_USE = 2
#: The signal that asks a child to end, and the one that asks it to end at once. Two equal signals may arrive as one
#: during a long call, and a service manager also sends SIGTERM to all processes of a service by itself.
_HANDED_ON = (signal.SIGTERM, signal.SIGINT)
#: Seconds after which a child with an overdue call is killed even if it does not answer: a handler may let no other
#: thread run.
_SILENCE = 30.0
#: The exit codes of a child that a signal ended before it listened to signals, or while it closed its queue.
_TERMINATED = tuple(code for sent in _HANDED_ON for code in (-sent, 128 + sent))


@dataclass(frozen=True, slots=True)
class Death:
    """A child that died.

    Attributes:
        session: The session of the child.
        errors: The errors of the tasks that have failed by it, by id and attempt.
    """

    session: str
    errors: Mapping[tuple[int, int], str]


@dataclass(eq=False)
class _Child:
    process: subprocess.Popen[bytes]
    pipe: int
    began: float
    session: str = ""
    report: WorkReport = field(default_factory=WorkReport)
    text: bytes = b""
    #: Whether it has begun a call. Until then it holds no tasks.
    has_begun: bool = False
    #: The tasks in calls, by id and attempt, and since when.
    in_calls: dict[tuple[int, int], float] = field(default_factory=dict)
    #: Whether it gave back the tasks of running calls, because a second signal came.
    has_cut_off: bool = False
    #: Whether it takes no more tasks, and whether it has settled those that are in no call.
    is_ending: bool = False
    is_settled: bool = False
    #: When it was asked to end because a call takes too long.
    asked: float | None = None
    #: The tasks whose calls took too long, and why the parent has killed it.
    overdue: Collection[tuple[int, int]] = ()
    why: str = ""

    def hear(self, said: dict[str, Any], now: float) -> None:
        """Hear what the child says in a line."""
        if "begun" in said:
            self.has_begun = True
            self.in_calls |= dict.fromkeys(map(tuple, said["begun"]), now)
        elif "over" in said:
            for number, attempt in said["over"]:
                self.in_calls.pop((number, attempt), None)
        elif "cut_off" in said:
            self.has_cut_off = True
            self.in_calls.clear()
        elif "session" in said:
            self.session = said["session"]
        elif "stopping" in said:
            self.is_ending = True
        else:
            self.report, self.is_settled = WorkReport(**said), self.is_ending

    def death(self, cause: str) -> Death:
        """The tasks that have failed because it died: those in calls, or those whose call has run for too long."""
        why = f"{self.why}: " if self.why else ""
        failed = self.overdue or self.in_calls
        return Death(
            self.session,
            {
                (number, attempt): f"{why}the worker {cause} during attempt {attempt}"
                for number, attempt in sorted(failed)
            },
        )

    def tasks(self, death: Death) -> str:
        """A text about the tasks that have failed because it died."""
        why = f", because {self.why}," if self.why else ""
        failed = [f"{number} (attempt {attempt})" for number, attempt in death.errors]
        if not failed:
            return f"{why} without a task in a call"
        return f"{why} during task{'s' if len(failed) > 1 else ''} {', '.join(failed)}"


class ChildFailedError(Exception):
    """A child ended so that a new start does not help. It has printed the reason.

    Attributes:
        code: The exit code of the child.
    """

    def __init__(self, code: int) -> None:
        """Carry the exit code."""
        super().__init__(f"a worker process ended with {code}")
        self.code = code


@dataclass(eq=False)
class Processes:
    """Children of this process that run one command. For one thread.

    Attributes:
        command: What each child runs. The number of its pipe is added.
        count: How many run at a time.
        stop: Ends the children, as it ends a loop.
        clock: Real time.
        give_back: Settles the tasks of a child that died, and returns how many it buried.
        told: Called with the report of all children so far.
        time_limit: Seconds for which a call may run.
    """

    command: Sequence[str]
    count: int
    stop: Stop
    clock: Clock
    give_back: Callable[[Death], int]
    told: Callable[[WorkReport], object]
    time_limit: float = float("inf")
    #: How many children died.
    died: int = field(default=0, init=False)
    #: Whether a second signal cut calls off.
    has_cut_off: bool = field(default=False, init=False)
    _children: list[_Child] = field(default_factory=list, init=False)
    _selector: selectors.DefaultSelector = field(
        default_factory=selectors.DefaultSelector, init=False
    )
    #: The report of children that have ended.
    _before: WorkReport = field(default_factory=WorkReport, init=False)
    _wait: float = field(default=_FIRST, init=False)
    #: The moment to start each missing child.
    _starts: list[float] = field(default_factory=list, init=False)
    _signals: int = field(default=0, init=False)
    #: The first error, which is raised once all children have ended.
    _error: BaseException | None = field(default=None, init=False)

    def run(self) -> WorkReport:
        """Run the children until all have ended. After an error they are asked to end.

        Raises:
            ChildFailedError: A child ended so that a new start does not help.
        """
        began = self.clock.monotonic()
        self._starts = [began] * self.count
        while self._starts or self._children:
            try:
                self._step(began)
            except BaseException as error:  # noqa: BLE001  (it is raised in the end, or another one is)
                # Until the children have ended, their reports are read, and overdue ones are killed. Otherwise
                # this process would wait for a call that hangs.
                if self._error is not None:
                    log.warning("while worker processes end: %s", error)
                self._error = self._error or error
        self._selector.close()
        if self._error is not None:
            raise self._error
        return self._report(began)

    def _step(self, began: float) -> None:
        self._start()
        self._read()
        self._end_overdue()
        self._signal()
        for child in list(self._children):
            self._look_after(child)
        self.told(self._report(began))

    @property
    def _is_ending(self) -> bool:
        return self.stop.is_asked or self._error is not None

    def _start(self) -> None:
        now = self.clock.monotonic()
        if self._is_ending:
            self._starts.clear()
        due = [moment for moment in self._starts if moment <= now]
        self._starts = [moment for moment in self._starts if moment > now]
        for _ in due:
            pipe, theirs = os.pipe()
            # A terminal sends Ctrl-C to all processes of a group. A child would get it twice, and end at once.
            process = subprocess.Popen(  # noqa: S603
                [*self.command, str(theirs)], pass_fds=[theirs], process_group=0
            )
            os.close(theirs)
            os.set_blocking(pipe, False)
            child = _Child(process, pipe, now)
            self._selector.register(pipe, selectors.EVENT_READ, child)
            self._children.append(child)

    def _read(self) -> None:
        """Wait a moment for reports of the children, and read them."""
        if not self._children:
            self.clock.sleep(LOOK)
            return
        for key, _ in self._selector.select(LOOK):
            self._hear(key.data)

    def _end_overdue(self) -> None:
        """Ask children with overdue calls to end, and kill those that have settled their other tasks."""
        now = self.clock.monotonic()
        for child in self._children:
            late = [task for task, began in child.in_calls.items() if now - began > self.time_limit]
            if not late:
                continue
            if child.asked is None:
                # What it has settled since it was asked counts: a call may have ended a moment ago.
                child.asked, child.is_settled = now, False
                child.process.send_signal(_HANDED_ON[0])
            elif child.is_settled or now - child.asked > _SILENCE:
                child.overdue = late
                child.why = f"the call took longer than {self.time_limit:g} s"
                child.process.kill()

    def _hear(self, child: _Child) -> None:
        try:
            said = os.read(child.pipe, 65_536)
        except BlockingIOError:
            return
        *lines, child.text = (child.text + said).split(b"\n")
        for line in lines:
            child.hear(json.loads(line), self.clock.monotonic())

    def _signal(self) -> None:
        """Hand signals on to the children, also if this process ends by an error."""
        asked = 2 if self.stop.is_urgent else int(self._is_ending)
        for number in _HANDED_ON[self._signals : asked]:
            self._signals += 1
            for child in self._children:
                child.process.send_signal(number)

    def _look_after(self, child: _Child) -> None:
        """Forget a child that has ended, and plan the start of another one in its place."""
        code = child.process.poll()
        if code is None:
            return
        self._hear(child)
        self._selector.unregister(child.pipe)
        os.close(child.pipe)
        self._children.remove(child)
        # The last one to end has seen whether tasks are left.
        self._before = replace(self._before + child.report, gave_up=child.report.gave_up)
        self.has_cut_off |= child.has_cut_off
        if code == BAD_USE:
            raise ChildFailedError(code)
        is_idle, is_asked = not child.in_calls, self._is_ending
        # Calls whose tasks were lost may still run.
        if code == 0 and (is_idle or is_asked):
            if child.asked is not None:
                # The call has ended after all.
                self._replacement(child)
            return
        if code in _TERMINATED and is_idle and is_asked:
            return
        self.died += 1
        cause = _cause(code)
        death = child.death(cause)
        log.warning(
            "worker process %d %s%s%s",
            *(child.process.pid, cause, child.tasks(death), self._replacement(child)),
        )
        self._before += WorkReport(failed=len(death.errors))
        if child.session and child.has_begun:
            self._settle(death)

    def _replacement(self, child: _Child) -> str:
        """Plan the start of another child in the place of a dead one, and say when it begins."""
        if self._is_ending:
            return ""
        now, wait = self.clock.monotonic(), 0.0
        if child.asked is None:
            self._wait = _FIRST if now - child.began > _MOST else min(2 * self._wait, _MOST)
            wait = self._wait
        self._starts.append(now + wait)
        return f"; another one begins in {wait:g} s"

    def _settle(self, death: Death) -> None:
        """Settle the tasks of a dead child, or leave them to the ends of their leases."""
        said = "the tasks of a dead worker process come back when their leases end"
        try:
            with going_on(said):
                self._before += WorkReport(buried=self.give_back(death))
        except SessionError:
            # The session is over, so its tasks were given back.
            log.info("the session of a dead worker process was over: %s", death.session)

    def _report(self, began: float) -> WorkReport:
        own = replace(self._before, seconds=self.clock.monotonic() - began)
        return sum((child.report for child in self._children), own)


def _cause(code: int) -> str:
    """How a process has ended, by its exit code."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def settle_death(tube: Tube, death: Death, *, buries: bool) -> int:
    """Release the failed tasks of a dead process; release its other tasks, too, and do not count the attempt.

    Args:
        tube: The tube, by a queue object that has joined the session of the process.
        death: Its tasks.
        buries: Whether failed tasks are buried.

    Returns:
        The number of buried tasks.
    """
    source = Source(tube, 1, None, buries=buries)
    # Another queue object has taken them.
    rows = tube._read(lambda ctx: ctx.reader.of(ctx.table.is_held(ctx.queue.session.owner)))  # noqa: SLF001  (a part of the tube)
    held = [((row.task_id, row.attempts), row.task()) for row in rows]
    errors = death.errors
    buried, _ = source.fail([Failure(task, errors[key]) for key, task in held if key in errors])
    source.give_back([task for key, task in held if key not in errors])
    return buried
