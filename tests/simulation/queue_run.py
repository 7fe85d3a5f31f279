"""Runs a plan: programs with queue objects on one simulated storage, and the history of their calls."""

from __future__ import annotations

import functools
import itertools
import json
import random
from typing import TYPE_CHECKING, Any

from tests.simulation.history import NEVER, Call, History
from tests.simulation.history import Actor as WrittenActor
from tests.simulation.queue_acts import US, Plan, Turn, written
from tests.simulation.queue_threads import LOCATION, simulated
from tests.simulation.scheduler import Actor, Scheduler, SimThread
from tests.simulation.sim_store import Crash, Faults, SimStore
from tubeq_spark import CommitUnknownError, Queue, Task
from tubeq_spark.batch import Batch
from tubeq_spark.model.reports import VerifyReport
from tubeq_spark.storage.store.store import DictStore, Files
from tubeq_spark.verify.verify import verify_tubes

if TYPE_CHECKING:
    import datetime as dt
    import uuid
    from collections.abc import Callable, Mapping

    from tubeq_spark import UtubeCounts
    from tubeq_spark.tube import Tube

    Args = Mapping[str, Any]

#: The probability that a queue object is the second one of its process, and that after a crash it joins its session.
_SECOND, _JOINS = 0.25, 0.4
#: On average one in this many calls opens its tube anew.
_ANEW = 4
#: The fields of a task in a history.
_FIELDS = ("task_id", "data", "pri", "utube", "attempts", "owner", "error", "unique")


def run(plan: Plan) -> Run:
    """Run a plan."""
    found = Run(plan)
    found.play()
    return found


class Run:
    """One simulation."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = SimStore(random.Random(f"world {plan.seed}"))
        self.scheduler = Scheduler(plan.seed, self.world, plan.pace)
        quiet = plan.seed if plan.is_quiet else None
        self.history = History(is_faulty=plan.faults != Faults(), quiet=quiet)
        self.history.tubes = {name: written(options) for name, options in plan.tubes.items()}
        #: The ids of tasks that somebody has seen, by tube.
        self.known: dict[str, list[int]] = {}
        self.numbers = 0
        #: What the logs say at the end.
        self.verified = VerifyReport()
        self._made = itertools.count()
        #: The process of each queue object.
        self.objects: dict[str, Actor] = {}
        self.programs: list[Program] = []

    def play(self) -> None:
        """Run it."""
        with simulated(self.scheduler):
            first = self.actor("z", 0.0, Faults())
            SimThread(target=self._begin, args=(first,), name=first.name, actor=first).start()
            self.scheduler.run()
        self.history.calls.sort(key=lambda call: call.first)
        self.history.files = len(self.world.files)
        self.verified = self._verified()
        for name, actor in self.objects.items():
            silent = tuple((_us(a), _us(b)) for a, b in actor.silent)
            self.history.actors[name] = WrittenActor(name, round(actor.drift * US), silent)

    def actor(self, name: str, skew: float, faults: Faults) -> Actor:
        """A new actor."""
        return Actor(self.scheduler, f"{name}{next(self._made)}", faults, skew)

    def number(self) -> int:
        """The next number of a begin or an end."""
        self.numbers += 1
        return self.numbers

    def _begin(self, first: Actor) -> None:
        maker = Program(self, "z", 0.0, Faults(), first)
        maker.open()
        for tube in self.plan.tubes:
            maker.create(tube)
        rng = random.Random(f"objects {self.plan.seed}")
        for place, skew in enumerate(self.plan.skews):
            # Some processes have two queue objects.
            is_second = place > 0 and rng.random() < _SECOND
            actor = self.programs[-1].actor if is_second else None
            program = Program(self, "abcde"[place], skew, self.plan.faults, actor)
            self.programs.append(program)
            acts = [act for act in self.plan.acts if act.program == place]
            program.threads = [[act for act in acts if act.thread == thread] for thread in (0, 1)]
            program.start(None, {})
        self.scheduler.wait(lambda: all(program.is_over for program in self.programs))
        self._end(maker)
        maker.queue.close()

    def _end(self, last: Program) -> None:
        """Look at what is there, wait for all that time brings, and take every task."""
        for tube in self.plan.tubes:
            last.statistics(tube)
            for state in random.Random(f"states {self.plan.seed}").sample("rt~!", 2):
                last.on("tasks_by_state", tube, state=state)
            last.on("resume", tube)
        last.sleep(160.0)
        last.sweep()
        for tube, options in self.plan.tubes.items():
            last.statistics(tube)
            last.on("kick", tube, count=None)
            per = {"per_utube": 50} if options["type"].startswith("utube") else {}
            for _ in range(4):
                last.sleep(12.0)
                found = last.on("take_many", tube, n=50, **per) or []
                if not found:
                    break
                last.on("ack_many", tube, task_ids=[task.task_id for task in found])
            last.statistics(tube)
        last.call("check", "", {}, lambda: len(last.queue.check().problems))

    def _verified(self) -> VerifyReport:
        """What the logs say, read without a request."""
        files = Files(lambda: self.world.now)
        for name, file in self.world.files.items():
            table, _, path = name.removeprefix(LOCATION.partition("://")[2] + "/").partition("/")
            files.tables[f"{LOCATION}/{table}"][path] = file.content, float(file.at), int(file.tag)
        return verify_tubes(lambda uri: DictStore(files, uri), LOCATION)


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
        result, shown, error, outcome = None, None, None, "returned"
        try:
            result = call()
            shown = _shown(result)
            if isinstance(result, Batch) and len(shown) < result.count:
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
            self.shown = shown
            span = began, run.scheduler.now_us(), first, run.number()
            kind = None if error is None else type(error).__name__
            how = outcome, shown, kind, str(error or ""), session
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


def _counted(utubes: list[UtubeCounts]) -> dict[str, dict[str, int]]:
    """The counts of sub-queues together, as statistics have them."""
    names = ("ready", "taken", "delayed", "buried", "total")
    return {"tasks": {name: sum(getattr(each, name) for each in utubes) for name in names}}


#: Functions for results that are neither tasks nor numbers, by the verb.
_READ: dict[str, Callable[[Any], Any]] = {"tasks_by_state": list, "utubes": _counted}


def _shown(result: Any) -> Any:
    """A result as a history has it."""
    if isinstance(result, Task):
        return _task(result)
    if isinstance(result, list):
        return [_shown(each) for each in result]
    if isinstance(result, Batch):
        return [_row(row) for row in result.table.to_pylist()] if result.count else []
    if isinstance(result, dict) and "tasks" in result:
        return {name: result[name] for name in ("tasks", "calls") if name in result}
    if hasattr(result, "first_task_id"):
        return result.count
    return result if isinstance(result, int | str) else None


def _task(task: Task) -> dict[str, Any]:
    found = {name: getattr(task, name) for name in _FIELDS}
    times = {name: _of(getattr(task, name)) for name in ("created", "next_event", "taken_at")}
    found |= {"state": task.state.value, "ttl": _span(task.ttl), "ttr": _span(task.ttr)}
    return found | times


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a batch."""
    found = {name: row[name] for name in ("task_id", "pri", "utube", "attempts")}
    data = {name: row[name] for name in ("n", "s", "l") if name in row} or json.loads(row["data"])
    found |= {"data": data, "state": "t", "created": _of(row["created"])}
    return found | {"ttl": _span(row["ttl"]), "ttr": _span(row["ttr"])}


def _span(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * US)


def _of(moment: dt.datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * US)


def _us(seconds: float) -> int:
    return NEVER if seconds == float("inf") else round(seconds * US)
