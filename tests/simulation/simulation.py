"""Runs programs on a shared table by a seed, and proves that no order of requests loses or doubles a change."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.simulation.line import Finding, Limit, Line
from tests.simulation.local_tables import LocalTables
from tests.simulation.others import OtherProgram, compare
from tests.simulation.programs import Program, creation
from tests.simulation.sim_client import StoreTables
from tests.simulation.sim_store import Crash, Faults, Process
from tubeq_spark.errors import TubeqError
from tubeq_spark.storage.engine import EngineError
from tubeq_spark.storage.log.actions import DamagedFileError, UnknownLogError
from tubeq_spark.storage.store.store import one_patience

TABLE = "queue/t"
STORAGES: dict[str, type[Any]] = {"store": StoreTables, "local": LocalTables}
#: The acts of our programs, and of others, with their weights.
_ACTS = {
    "append": 30,
    "append_alone": 10,
    "replace": 20,
    "remove": 12,
    "append_once": 10,
    "count": 6,
    "read": 10,
    "read_held": 4,
    "alter": 1,
    "create": 1,
    "vacuum": 2,
    "checkpoint": 2,
    "read_history": 3,
    "forget": 2,
    "reopen": 3,
}
_READS = {"read": 5, "read_held": 2, "read_history": 1, "forget": 1, "reopen": 1}
_OTHERS = {"append": 3, "remove": 1, "alter": 1, "vacuum": 4, "lose_pointer": 1}
#: How probable it is that another program acts before a request, and while a program is paused.
_RIVALS, _RIVALS_IN_PAUSES = 0.06, 0.9
#: The share of seeds in which other programs only run VACUUM while one is paused.
_QUIET = 0.3
#: So many acts are within each other, at most.
_DEPTH = 3
_PROGRAMS = 3


class Simulation:
    """The run of one seed."""

    def __init__(
        self, seed: int, steps: int = 20, storage: str = "store", *, compared: bool = False
    ) -> None:
        """Begin with an empty table.

        Args:
            seed: All that happens follows from it.
            steps: So many acts begin one after the other; others begin within them.
            storage: The kind of storage.
            compared: Whether to compare what other readers read in the end.
        """
        self._tables = STORAGES[storage](random.Random(seed), TABLE)
        self.world, self.counts = self._tables.world, Counter[str]()
        self.world.between = self._between
        self.line, self._ids = Line(self.world, TABLE), list[int]()
        self._faults = self.world.rng.choice(self._tables.faults)
        self.steps = steps
        self._other = OtherProgram(self.world, self.line, TABLE, self._ids)
        self._programs: list[Program] = []
        #: Whether other programs only run VACUUM while one is paused.
        self._is_quiet = self.world.rng.random() < _QUIET
        self._is_compared, self._depth = compared, 0

    def run(self) -> str | None:
        """Run all acts; the finding, if any."""
        try:
            with self._tables.patched():
                if self.world.rng.random() < 0.7:
                    self.world.create("other", f"{TABLE}/_delta_log/{0:020}.json", creation())
                    self.world.sync_all(TABLE)
                self._programs = [self._program(f"p{n}") for n in range(_PROGRAMS)]
                for _ in range(self.steps):
                    self._act()
                self._end()
        except Finding as finding:
            return str(finding)
        except Limit:
            self.counts["limits"] += 1
        return None

    def _program(self, name: str) -> Program:
        process = self._process(name)
        with process.running():
            return Program(process, self._tables.open, self.line, self._ids)

    def _process(self, name: str) -> Process:
        drift = self.world.rng.choice((0.0, 0.0, -3.0, 3.0))
        return Process(self.world, name, self._faults, drift)

    def _between(self, process: Process, request: str) -> None:
        rng = self.world.rng
        often = _RIVALS_IN_PAUSES if request == "pause" else _RIVALS
        if self._depth < _DEPTH and rng.random() < often:
            self.world.note(process.name, f"waits before {request}")
            self.counts["rivals"] += 1
            if request == "pause" and self._is_quiet:
                self._act_of_other("vacuum")
            else:
                self._act()

    def _act(self) -> None:
        """Let a program that is not busy act."""
        idle = [program for program in self._programs if not program.is_busy]
        rng = self.world.rng
        self._depth += 1
        try:
            if not idle or rng.random() < 0.06:
                self._act_of_other(*rng.choices([*_OTHERS], [*_OTHERS.values()]))
            else:
                self._act_of(rng.choice(idle))
            self.line.update()
        finally:
            self._depth -= 1

    def _act_of_other(self, act: str) -> None:
        if not self._tables.is_locked and self.line.last.number >= 0:
            self.counts[f"other {act}"] += 1
            getattr(self._other, act)()
            self.line.update()

    def _act_of(self, program: Program) -> None:
        # Who waits for a lock cannot act.
        acts = _READS if self._tables.is_locked else _ACTS
        if self.line.last.number < 0:
            acts = {"create": 1}
        [act] = self.world.rng.choices([*acts], [*acts.values()])
        process = program.process
        self.world.note(process.name, f"begins to {act}")
        self.counts[act] += 1
        program.is_busy = True
        with process.running():
            try:
                with one_patience():
                    getattr(program, act)()
                if self.world.rng.random() < 0.7:
                    process.memory["background"].catch_up()
            except DamagedFileError as error:
                self.line.require(False, f"the log is called damaged: {error}")
            except (TubeqError, EngineError, UnknownLogError, OSError) as error:
                self.counts[type(error).__name__] += 1
                self.world.note(process.name, f"{type(error).__name__}: {error}")
            except Exception as error:
                msg = f"{act} fails with {error!r}"
                raise Finding(msg) from error
            except Crash:
                self.counts["crashes"] += 1
                program.process = self._process(process.name)
                with program.process.running():
                    program.reopen()
            finally:
                program.is_busy = False

    def _end(self) -> None:
        """Let late requests arrive, and compare what a new program reads with what was committed."""
        self.world.between = lambda _process, _request: None
        self._faults = Faults()
        self.world.pass_time(1e9)
        if self.line.last.number < 0:
            return
        reader = self._program("reader")
        with reader.process.running():
            reader.read()
            reader.read_history()
        self.line.check_log()
        self.line.check_files()
        if self._is_compared:
            self.counts["compared versions"] += compare(self.world, self.line, TABLE)
        self.counts["lost answers"] += sum("no answer" in line for line in self.world.trace)
        self.counts["versions"] += len(self.line.versions)
        self.counts["late commits"] += len(self.line.late)
