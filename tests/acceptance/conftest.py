"""Fixtures of the acceptance tests: one queue on a clock of its own a module, new tubes a test.

The cases (`test_case_*.py`) and the verbs on Arrow tables run on each engine, all of them in memory,
where all are fast: `--engine memory` runs nothing else, and starts no Spark. What is about leases and
the 1.5 dialect runs on both that store tables. What the mark `frames` is on needs Spark.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.command_line import Tubeq
from tests.acceptance.support import (
    FOR_EVER,
    TUBE_TYPES,
    WAIT,
    InMemory,
    Native,
    OnSpark,
    outliving,
)
from tests.conftest import ENGINES
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from tests.acceptance.support import Engine, InBackground, NewTube, Session, SharedTube
    from tubeq_spark import Queue, Tube

_numbers = itertools.count(1)
#: Which tests run on more than Spark, by how the names of their files begin.
ON = {
    "test_case_": ENGINES,
    "test_addressed": ENGINES,
    "test_arrow": ENGINES,
    "test_bad_input": ENGINES[:2],
    "test_failed_tasks": ENGINES,
    "test_kick_where": ENGINES,
    "test_large": ENGINES,
    "test_leases": ENGINES[:2],
    "test_limits": ENGINES,
    "test_looking": ENGINES,
    "test_metrics": ENGINES[:2],
    "test_aging": ENGINES,
    "test_alter": ENGINES,
    "test_failures": ENGINES,
    "test_tarantool15": ENGINES[:2],
    "test_traces": ENGINES,
    "test_typed": ENGINES,
    "test_unique": ENGINES,
    "test_unreadable": ENGINES[:2],
    "test_work": ENGINES,
}

#: Files of which few tests that need no Spark run there, too: one for each kind of commit that no other file has.
ON_SPARK = {
    "test_aging": {
        "test_take_when_a_tube_has_aging_is_in_the_order_of_ranks[spark-many at once]",
    },
    "test_alter": {
        "test_alter_when_options_change_commits_to_the_registry_alone",
    },
    "test_bad_input": {
        "test_take_of_none_takes_nothing_without_a_commit",
    },
    "test_failures": {
        "test_lease_when_it_ended_lets_the_tasks_behind_it_pass",
        "test_many_when_each_has_an_error_keeps_its_own",
    },
    "test_kick_where": set(),
    "test_limits": {
        "test_take_when_a_lease_of_most_taken_ends_takes_again",
        "test_take_in_a_fair_tube_with_rate_and_parallel_keeps_all_of_them",
    },
    "test_unique": {
        "test_put_many_when_some_keys_are_there_returns_tasks_in_the_order_of_the_items",
        "test_ack_when_its_tube_has_unique_for_is_one_commit_and_a_put_of_a_kept_key_none",
        "test_sweep_when_kept_keys_are_over_removes_them_and_the_count_of_done_stays",
    },
    "test_looking": {
        "test_session_when_it_holds_tasks_is_told_with_its_process_and_what_it_holds",
        "test_taken_utubes_shows_what_is_taken_and_when_its_last_lease_began",
        "test_utubes_when_tasks_are_in_all_states_counts_them_with_the_age_of_the_oldest",
        "test_why_when_other_subqueues_have_earlier_tasks_says_how_many",
    },
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each case on each engine that was asked for."""
    file = Path(metafunc.definition.path).name
    engines = next((on for name, on in ON.items() if file.startswith(name)), None)
    if engines is None or "engine" not in metafunc.fixturenames:
        return
    config = metafunc.config
    chosen = config.getoption("--engine") or (
        ENGINES[:1] if config.getoption("--connect") else ENGINES
    )
    if "spark" in metafunc.fixturenames:
        engines = ENGINES[:1]
    frames = metafunc.definition.get_closest_marker("frames") is not None
    no_frames = pytest.mark.skip(reason="it is about DataFrames, which need Spark")
    params = [
        pytest.param(name, marks=[no_frames] if frames and name != "spark" else [])
        for name in engines
        if name in chosen
    ]
    metafunc.parametrize("engine", params, indirect=True, scope="module")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run all cases without Spark, where they take milliseconds, and on Spark what goes another way."""
    kept, left_out = [], []
    for item in items:
        callspec = getattr(item, "callspec", None)
        engine = None if callspec is None else callspec.params.get("engine")
        if engine in ("memory", "native"):
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "thorough"]
        elif item.get_closest_marker("without_spark") is not None or (
            engine == "spark" and not _runs_on_spark(item)
        ):
            left_out.append(item)
            continue
        kept.append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def _runs_on_spark(item: pytest.Item) -> bool:
    few = ON_SPARK.get(item.path.stem) if item.path.parent == Path(__file__).parent else None
    needs_spark = item.get_closest_marker("frames") or "spark" in getattr(item, "fixturenames", ())
    return (
        few is None
        or bool(needs_spark)
        or not few.isdisjoint({item.name, item.name.partition("[")[0]})
    )


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Engine:
    """Opens queues; on Spark where a test does not say."""
    name = getattr(request, "param", "spark")
    if name == "memory":
        return InMemory()
    if name == "native":
        return Native()
    return OnSpark(request.getfixturevalue("spark"))


@pytest.fixture(scope="module")
def shared_location(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where all queues of a module live, on each engine elsewhere."""
    return str(tmp_path_factory.mktemp("queue"))


@pytest.fixture(scope="module")
def clock(engine: Engine) -> ManualClock:
    """The clock of the module's queues on an engine: it moves only when a test says so."""
    return ManualClock()


@pytest.fixture(scope="module")
def queue(engine: Engine, shared_location: str, clock: ManualClock) -> Iterator[Queue]:
    """The module's queue; its session outlives every step of the clock."""
    yield from outliving(engine, shared_location, clock)


@pytest.fixture(scope="module")
def other(engine: Engine, clock: ManualClock, queue: Queue) -> Iterator[Queue]:
    """A second session on the module's queue, which lives as long."""
    yield from outliving(engine, queue.location, clock)


@pytest.fixture(scope="module")
def live_queue(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """A queue in real time, for what is about blocking."""
    queue = engine.open(str(tmp_path_factory.mktemp("live")))
    yield queue
    engine.leave(queue)


@pytest.fixture
def session(engine: Engine, queue: Queue, clock: ManualClock) -> Iterator[Session]:
    """More sessions, for what is about their ends."""
    with ExitStack() as stack:

        def open_session(*, ttr: float = FOR_EVER, **options: Any) -> Queue:
            opened = stack.enter_context(engine.open(queue.location, clock=clock, **options))
            opened.cfg(ttr=ttr)
            return opened

        yield open_session


def _creating(engine: Engine, queue: Queue) -> NewTube:
    def create(type_name: str, **options: Any) -> Tube:
        name = f"{type_name}_{next(_numbers)}"
        return engine.create_tube(queue, name, type_name, **options)

    return create


@pytest.fixture
def new_tube(engine: Engine, queue: Queue) -> NewTube:
    """Makes a new tube in the module's queue."""
    return _creating(engine, queue)


@pytest.fixture
def new_live_tube(engine: Engine, live_queue: Queue) -> NewTube:
    """Makes a new tube in the module's queue in real time."""
    return _creating(engine, live_queue)


def _give_emptied(engine: Engine, queue: Queue) -> SharedTube:
    made: dict[str, Tube] = {}

    def give(type_name: str) -> Tube:
        if type_name in made:
            engine.empty(queue, made[type_name].name)
        else:
            made[type_name] = engine.create_tube(queue, f"shared_{type_name}", type_name)
        made[type_name].on_task_change(None)
        return made[type_name]

    return give


@pytest.fixture(scope="module")
def shared_tube(engine: Engine, queue: Queue) -> SharedTube:
    """Gives the module's tube of a type, emptied: cheaper than a new one; only its counters go on."""
    return _give_emptied(engine, queue)


@pytest.fixture(scope="module")
def shared_live_tube(engine: Engine, live_queue: Queue) -> SharedTube:
    """Gives the module's tube of a type in real time, emptied."""
    return _give_emptied(engine, live_queue)


@pytest.fixture
def fifo(shared_tube: SharedTube) -> Tube:
    """An empty fifo tube."""
    return shared_tube("fifo")


@pytest.fixture
def fifottl(shared_tube: SharedTube) -> Tube:
    """An empty fifottl tube."""
    return shared_tube("fifottl")


@pytest.fixture(params=TUBE_TYPES)
def tube(request: pytest.FixtureRequest, shared_tube: SharedTube) -> Tube:
    """An empty tube of each type, for what all types share."""
    return shared_tube(request.param)


@pytest.fixture(params=TUBE_TYPES)
def fresh_tube(request: pytest.FixtureRequest, new_tube: NewTube) -> Tube:
    """A new tube of each type, for what counts calls, or drops."""
    return new_tube(request.param)


@pytest.fixture
def tubeq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tubeq]:
    """The command line on a queue of its own, with no settings but those of the test."""
    for name in ("TUBEQ_LOCATION", "TUBEQ_REMOTE", "TUBEQ_ENGINE", "TUBEQ_CONFIG", "TUBEQ_SESSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    tubeq = Tubeq(str(tmp_path / "queue"), ManualClock())
    yield tubeq
    tubeq.queue.close()


@pytest.fixture
def in_background() -> Iterator[InBackground]:
    """Calls in threads; a test waits for what it started with ``future.result(WAIT)``."""
    with ThreadPoolExecutor(max_workers=8) as pool:

        def start(call: Callable[..., Any], *args: Any, **options: Any) -> Future[Any]:
            running = threading.Event()

            def run() -> Any:
                running.set()
                return call(*args, **options)

            future = pool.submit(run)
            assert running.wait(WAIT)
            return future

        yield start


@pytest.fixture
def versions(engine: Engine, queue: Queue) -> Callable[[], dict[str, int]]:
    """Reads the version of every tube, and of the list of tubes, past the verbs."""
    return lambda: engine.versions(queue.location)
