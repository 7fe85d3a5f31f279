"""Programs that share a table lose and double no change in short simulations, and in orders that once failed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.simulation.line import Line
from tests.simulation.others import compare
from tests.simulation.planted import FAULTS, Fault, finds, planted
from tests.simulation.programs import Program, creation
from tests.simulation.sim_client import EVERY, StoreTables
from tests.simulation.sim_store import Crash, Process
from tests.simulation.simulation import TABLE, Simulation
from tubeq_spark.storage.store.store import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LOG = f"{TABLE}/_delta_log"
_HOURS_3 = 3 * 3_600.0


class _Scene:
    """A table, and programs that act when a request of another one is about to be sent."""

    def __init__(self) -> None:
        self.tables = StoreTables(random.Random(1), TABLE)
        self.world = self.tables.world
        self.line = Line(self.world, TABLE)
        self.world.create("other", f"{_LOG}/{0:020}.json", creation())

    def program(self, name: str) -> Program:
        """A program without faults."""
        return Program(Process(self.world, name), self.tables.open, self.line, [])

    def run(self, program: Program, *acts: str) -> None:
        """Let a program act, and do what follows its commits."""
        with program.process.running():
            for act in acts:
                getattr(program, act)()
                program.process.memory["background"].catch_up()

    def before(self, program: Program, request: str, work: Callable[[], object]) -> None:
        """Do some work before the first request of a program that begins in a way."""

        def between(process: Process, told: str) -> None:
            if process is program.process and told.startswith(request):
                self.world.between = lambda _process, _request: None
                work()

        self.world.between = between

    def shorten(self, program: Program) -> None:
        """Let a program commit until the commits of today are removed."""
        self.run(program, "append")
        # Those before a checkpoint are removed when the checkpoint is old.
        for _ in range(2):
            self.world.pass_time(_HOURS_3)
            until = self.line.last.number // EVERY * EVERY + EVERY
            self.run(program, *["append"] * (until - self.line.last.number))


@pytest.fixture
def scene() -> Iterator[_Scene]:
    """A table without rows."""
    made = _Scene()
    with made.tables.patched():
        yield made


def _commit(version: int) -> str:
    return f"_delta_log/{version:020}.json"


def test_a_read_that_is_paused_for_hours_reads_no_old_version(scene: _Scene) -> None:
    """The commit that it asks for was made before it began, and is removed before it asks."""
    writer, reader = scene.program("writer"), scene.program("reader")
    scene.run(writer, "append")
    scene.run(reader, "read")
    scene.run(writer, "append")
    scene.before(reader, f"GET {_commit(2)}", lambda: scene.shorten(writer))
    scene.run(reader, "read")


def test_a_late_commit_is_not_acknowledged(scene: _Scene) -> None:
    writer, paused = scene.program("writer"), scene.program("paused")
    scene.run(writer, *["append"] * (EVERY - 2))
    scene.before(paused, f"CREATE {_commit(EVERY - 1)}", lambda: scene.shorten(writer))
    scene.run(paused, "append")
    [change] = [c for c in scene.line.changes.values() if not c.versions]
    assert change.outcome != "done"


def test_a_late_commit_is_not_in_the_history(scene: _Scene) -> None:
    """Who asks the history for a lost answer would take it for committed."""
    writer, paused = scene.program("writer"), scene.program("paused")
    scene.run(writer, *["append"] * (EVERY - 2))

    def pause() -> None:
        scene.shorten(writer)
        scene.world.pass_time(10.0)
        scene.before(paused, "LIST", lambda: paused.process.end("LIST"))

    scene.before(paused, f"CREATE {_commit(EVERY - 1)}", pause)
    with pytest.raises(Crash):
        scene.run(paused, "append")
    scene.line.update()
    assert EVERY - 1 in scene.line.late
    scene.run(writer, "read_history")


def test_a_vacuum_that_is_paused_for_hours_keeps_the_files_of_commits_since(scene: _Scene) -> None:
    """It has read a version to which others have added rows since."""
    writer, paused = scene.program("writer"), scene.program("paused")
    scene.run(writer, "append", "append", "remove", "remove", "remove", "remove")

    def pause() -> None:
        scene.run(writer, "append")
        scene.world.pass_time(_HOURS_3)

    scene.before(paused, "PUT", pause)
    scene.run(paused, "vacuum")
    scene.line.check_files()


def test_a_commit_that_was_sent_twice_with_hours_between_is_not_called_refused(
    scene: _Scene,
) -> None:
    """The commit that it finds to be too late may be its own first one."""
    writer, paused = scene.program("writer"), scene.program("paused")
    scene.run(writer, *["append"] * (EVERY - 2))

    client: Any = paused.table.store
    create = client.put_if_absent

    def lost(name: str, content: bytes, needs: Sequence[str] = ()) -> None:
        del needs
        client.put_if_absent = create
        scene.world.send_late(
            60.0, lambda: scene.world.create("paused", f"{TABLE}/{name}", content)
        )
        scene.before(paused, "CREATE", late)
        raise RequestError("no answer", was_sent=True, passes=True)

    def late() -> None:
        scene.world.pass_time(60.0)
        scene.shorten(writer)
        scene.world.pass_time(10.0)

    client.put_if_absent = lost
    scene.run(paused, "append")


def test_an_altered_table_is_as_its_readers_expect_after_a_checkpoint(scene: _Scene) -> None:
    """A checkpoint has maps in another form than a commit."""
    writer = scene.program("writer")
    scene.run(writer, *["append"] * EVERY, "forget", "alter")
    assert compare(scene.world, scene.line, TABLE) == scene.line.last.number + 1


def test_two_programs_that_were_paused_past_the_retention_stay_apart() -> None:
    """One commits a version of long ago, and the other must not go behind that commit."""
    assert Simulation(1215, 20, "store").run() is None


@pytest.mark.parametrize(("storage", "seeds"), [("store", 30), ("local", 12)])
def test_no_order_of_requests_loses_or_doubles_a_change(storage: str, seeds: int) -> None:
    """Run some seeds; `python -m tests.simulation --seeds 2000` runs more."""
    for seed in range(seeds):
        found = Simulation(seed, 12, storage).run()
        assert found is None, (
            f"{found}: tests.simulation --seed {seed} --steps 12 --storage {storage}"
        )


@pytest.mark.parametrize("fault", [FAULTS[0], FAULTS[-5]], ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault) -> None:
    """`python -m tests.simulation --planted` plants all."""
    assert finds(fault, range(30), 12) is not None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_in_code_that_is_still_there(fault: Fault) -> None:
    """A function that moved would leave its faults unplanted."""
    with planted(fault):
        pass
