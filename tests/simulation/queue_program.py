"""Gives each program of a simulation a queue object, and writes its calls into the history."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

from tests.simulation.history import Call, shown
from tests.simulation.queue_acts import Turn
from tests.simulation.queue_threads import LOCATION
from tests.simulation.scheduler import SimThread
from tests.simulation.sim_store import Crash
from tubeq_spark import Batch, CommitUnknownError, Queue

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Mapping

    from tests.simulation.queue_run import Run
    from tests.simulation.scheduler import Actor
    from tests.simulation.sim_store import Faults
    from tubeq_spark import UtubeCounts
    from tubeq_spark.tube import Tube

    Args = Mapping[str, Any]

#: The probability that a program joins its former session after a crash.
_JOINS = 0.4
#: On average one in this many calls opens its tube anew.
_ANEW = 4


def _counted(utubes: list[UtubeCounts]) -> dict[str, dict[str, int]]:
    """The counts of sub-queues together, as statistics have them."""
    names = ("ready", "taken", "delayed", "buried", "total")
    return {"tasks": {name: sum(getattr(each, name) for each in utubes) for name in names}}


#: Functions for results that are neither tasks nor numbers, by the verb.
_READ: dict[str, Callable[[Any], Any]] = {"tasks_by_state": list, "utubes": _counted}


class Program:
    """A program: after a crash it is started again, as another actor."""

    def __init__(
        self, run: Run, name: str, skew: float, faults: Faults, actor: Actor | None = None
    ) -> None:
        self.run, self._name, self._skew, self._faults = run, name, skew, faults
        self.actor = run.actor(name, skew, faults) if actor is None else actor
        self.queue: Queue = None  # type: ignore[assignment]  # it is opened first
        self.held: dict[str, list[int]] = {}
        self._tubes: dict[str, tuple[Queue, Tube]] = {}
        #: The last result, as the history has it.
        self.shown: Any = None
        self.threads: list[list[Any]] = [[]]
        self._working = 0
        self.is_over = False

    # -- its threads -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of its queue object."""
        name = self.actor.name
        return name if name.startswith(self._name) else name + self._name

    def start(self, former: uuid.UUID | None, held: dict[str, list[int]]) -> None:
        """Start its first thread, which opens the queue object, perhaps in a former session with tasks."""
        self._working = 0
        self._spawn(self.actor, self._main, former, held)

    def _spawn(self, actor: Actor, target: Callable[..., None], *args: Any) -> None:
        SimThread(target=target, args=(actor, *args), name=actor.name, actor=actor).start()

    def _main(self, actor: Actor, former: uuid.UUID | None, held: dict[str, list[int]]) -> None:
        try:
            if self.open():
                if former is not None:
                    self.join(former, held)
                for acts in self.threads:
                    if acts:
                        self._working += 1
                        self._spawn(actor, self._work, acts)
                self.run.scheduler.wait(lambda: self._working == 0)
            else:
                self.threads = [[]]
            self._finish(actor)
        except Crash:
            self._again()

    def _work(self, actor: Actor, acts: list[Any]) -> None:
        try:
            while acts and not actor.is_dead:
                act = acts.pop(0)
                Turn(self, act, self.run.plan.tubes[act.tube]).do()
                self.sleep(0.05)
        finally:
            if not actor.is_dead:
                self._working -= 1

    def _finish(self, actor: Actor) -> None:
        if self.run.plan.seed % 3:
            self.close()
        elif not actor.is_dead:
            actor.close()
            actor.is_dead = True
        self.is_over = True

    def _again(self) -> None:
        """Start again after a crash, sometimes as its former self."""
        former, self.queue = self.queue, None  # type: ignore[assignment]
        self.actor = self.run.actor(self._name, self._skew, self._faults)
        joins = random.Random(self.actor.name + str(self.run.plan.seed)).random() < _JOINS
        self.start(former.session_uuid if joins and former is not None else None, self.held)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.actor.sleep(seconds)

    # -- its queue object ------------------------------------------------------------------------

    def _until(self, call: Callable[[], Any]) -> Any:
        """Repeat a call until it returns something, because the storage may fail."""
        for _ in range(20):
            found = call()
            if found is not None:
                return found
            self.sleep(5.0)
        return None

    def _opened(self, **options: Any) -> Queue | None:
        made = functools.partial(Queue, None, LOCATION, engine="native", **options)
        queue: Queue | None = self.call("open", "", {}, made)
        return queue

    def open(self) -> bool:
        """Open the queue."""
        queue = self._until(self._opened)
        if queue is not None:
            self.queue, self.held = queue, {}
        return queue is not None

    def create(self, tube: str) -> None:
        """Create a tube."""
        options = {**self.run.plan.tubes[tube], "if_not_exists": True}
        kind = options.pop("type")
        made = functools.partial(self.queue.create_tube, tube, kind, **options)
        self._until(lambda: self.call("create_tube", tube, {}, made))

    def close(self) -> None:
        """Close the queue object."""
        self.call("close", "", {}, self.queue.close)
        self.held = {}

    def share(self, rng: random.Random) -> None:
        """Join the session of another program, with this queue object or a new one."""
        others = [
            other for other in self.run.programs if other.queue is not None and other is not self
        ]
        if len([acts for acts in self.threads if acts]) > 1 or not others:
            return
        other = rng.choice(others)
        session, held = other.queue.session_uuid, other.held
        if rng.random() < 0.5:
            self.join(session, held)
            return
        self.close()
        queue = self._opened(session_uuid=session)
        if queue is None:
            self.open()
        else:
            self.queue, self.held = queue, held

    def join(self, session: uuid.UUID, held: dict[str, list[int]]) -> None:
        """Join a session, and know the tasks that it holds."""
        args = {"other": str(session)}
        if self.call("identify", "", args, lambda: self.queue.identify(session)) is not None:
            self.held = held

    def on(self, verb: str, tube: str, **given: Any) -> Any:
        """Call a verb of a tube."""
        args = {"ids" if name == "task_ids" else name: value for name, value in given.items()}
        read = _READ.get(verb, lambda found: found)
        return self.call(verb, tube, args, lambda: read(getattr(self.tube(tube), verb)(**given)))

    def tube(self, name: str) -> Tube:
        """A tube of the queue object, mostly the one of the last call."""
        queue, found = self._tubes.get(name, (None, None))
        if found is None or queue is not self.queue or self.run.numbers % _ANEW == 0:
            queue, found = self._tubes[name] = self.queue, self.queue.tube(name)
        return found

    def statistics(self, tube: str) -> None:
        """Count the tasks of a tube."""
        is_one = self.run.numbers % 2
        read = self.queue.statistics
        self.call("statistics", tube, {}, lambda: (not is_one and read().get(tube)) or read(tube))

    def sweep(self) -> None:
        """Sweep."""
        self.call("sweep", "", {}, lambda: self.queue.sweep() and None)

    # -- its history -----------------------------------------------------------------------------

    def call(
        self, verb: str, tube: str, args: Args, call: Callable[[], Any], *, raises: bool = False
    ) -> Any:
        """Call a verb, and write the call into the history. An error becomes `None`, or with `raises` is raised."""
        run, queue, name = self.run, self.queue, self.name
        run.scheduler.actor.require_life()
        run.objects[name] = self.actor
        began, first, sent = run.scheduler.now_us(), run.number(), run.scheduler.sent()
        before = None if queue is None else str(queue.session_uuid)
        result, seen, error, outcome = None, None, None, "returned"
        try:
            result = call()
            seen = shown(result)
            if isinstance(result, Batch) and len(seen) < result.count:
                # Another thread has ended tasks of the batch before its table was read.
                outcome = "unknown"
        except Crash:
            outcome = "unknown"
            raise
        except CommitUnknownError as unknown:
            error, outcome = unknown, "unknown"
        except Exception as raised:  # noqa: BLE001  (the checker judges it)
            # A batch whose table cannot be read is taken.
            error, outcome = raised, "raised" if result is None else "unknown"
            result = None
        finally:
            session = before
            if queue is not None and ("take" in verb or verb == "exchange"):
                session = str(queue.session_uuid)
            self.shown = seen
            span = began, run.scheduler.now_us(), first, run.number()
            kind = None if error is None else type(error).__name__
            how = outcome, seen, kind, str(error or ""), session
            *now, looked = run.scheduler.sent()
            cost = [after - before for after, before in zip(now, sent[:3], strict=True)]
            written = Call(name, verb, tube, dict(args), *span, *how, *cost, looked)
            run.history.calls.append(written)
            self._know(written)
        if raises and error is not None:
            raise error
        return result

    def _know(self, call: Call) -> None:
        """Note the ids that a call has shown, and the tasks that are not held any more."""
        if call.error == "TubeNotFoundError":
            self._tubes.pop(call.tube, None)
        states = {task["task_id"]: task["state"] for task in call.tasks()}
        known = self.run.known.setdefault(call.tube, [])
        held = self.held.setdefault(call.tube, [])
        known += states.keys() - {*known}
        lost = call.args.get("ids", ()) if call.error == "NotTakenError" else ()
        ended = {number for number, state in states.items() if state != "t"}
        ended |= {*call.args.get("ack", ()), *lost}
        held[:] = [number for number in held if number not in ended]
