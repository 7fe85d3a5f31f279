"""Runs a plan with queue objects on one simulated storage, and returns the history of their calls."""

from __future__ import annotations

import itertools
import random

from tests.simulation.history import NEVER, US, History
from tests.simulation.history import Actor as WrittenActor
from tests.simulation.queue_plans import Plan, written
from tests.simulation.queue_program import Program
from tests.simulation.queue_threads import LOCATION, simulated
from tests.simulation.scheduler import Actor, Scheduler, SimThread
from tests.simulation.sim_store import Faults, SimStore
from tubeq_spark.model.reports import VerifyReport
from tubeq_spark.storage.store.store import DictStore, Files
from tubeq_spark.verify.verify import verify_tubes

#: The probability that a queue object is the second one of its process.
_SECOND = 0.25


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


def _us(seconds: float) -> int:
    return NEVER if seconds == float("inf") else round(seconds * US)
