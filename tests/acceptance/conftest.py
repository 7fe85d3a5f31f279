"""Provides the fixtures of this folder: each module gets a queue with its own clock, each test a new tube.

All tests that ask for an engine run in memory and in tables without Spark, where they are fast. What needs tables runs
in these only. On Spark run the tests with the mark `on_spark`, one for each kind of commit, and those that need it.
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
#: Files of what needs tables: by how their names begin.
IN_TABLES = ("test_bad_input", "test_metrics", "test_tarantool15", "test_unreadable")
#: Tests with one of these marks run on Spark, and so do those that name it; the others go the way of these.
ON_SPARK = ("on_spark", "thorough", "nightly", "frames")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on each engine that was asked for; what is about DataFrames on Spark alone."""
    if "engine" not in metafunc.fixturenames:
        return
    engines = ENGINES[:2] if metafunc.definition.path.name.startswith(IN_TABLES) else ENGINES
    if "spark" in metafunc.fixturenames or metafunc.definition.get_closest_marker("frames"):
        engines = ENGINES[:1]
    config = metafunc.config
    chosen = config.getoption("--engine") or (
        ENGINES[:1] if config.getoption("--connect") else ENGINES
    )
    params = [name for name in engines if name in chosen]
    metafunc.parametrize("engine", params, indirect=True, scope="module")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run all tests without Spark, where they take milliseconds, and on Spark what goes another way."""
    kept, left_out = [], []
    for item in items:
        callspec = getattr(item, "callspec", None)
        engine = None if callspec is None else callspec.params.get("engine")
        is_ours = item.path.parent == Path(__file__).parent
        if is_ours and engine in ("memory", "native"):
            item.own_markers[:] = [m for m in item.own_markers if m.name not in ON_SPARK]
        is_left = is_ours and engine == "spark" and not _runs_on_spark(item)
        (left_out if is_left else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def _runs_on_spark(item: pytest.Item) -> bool:
    if item.get_closest_marker("without_spark") is not None:
        return False
    marks = {mark.name for mark in item.iter_markers()}
    return "spark" in getattr(item, "fixturenames", ()) or not marks.isdisjoint(ON_SPARK)


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
