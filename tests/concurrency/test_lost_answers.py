"""A verb on Spark finds its commit in the table's history when the answer is lost, and does nothing twice.

Landed: the verb returns as if it had heard. Not landed, or nobody can tell: `CommitUnknownError` with
the operation's id, and nothing is done twice.
"""

from __future__ import annotations

import json
import shutil
import string
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkRuntimeError

from tests.concurrency.support import (
    FOR_EVER,
    Tapped,
    World,
    end_heartbeat,
    ids_of,
    names,
    stored,
)
from tests.thorough import thorough
from tubeq_spark import (
    CommitUnknownError,
    Queue,
    QueueConfig,
    StoreError,
    TubeqError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark import Tube


pytestmark = pytest.mark.usefixtures("spark")
#: More commits than the history is asked for at once.
MANY = 210


class LosesRequests(Tapped):
    """A Spark session that loses statements on their way: they are never run."""

    failure: Exception | None = None

    def run(self, session: SparkSession, text: str, sql: Callable[[str], DataFrame]) -> DataFrame:
        """Run a query, or lose a statement if told to."""
        if self.failure is not None and text.startswith(("MERGE", "DELETE", "UPDATE")):
            raise self.failure
        return sql(text)


def lose(*_: object) -> None:
    """The connection breaks."""
    raise ConnectionError("the answer is lost")


#: One for each kind of statement: what it works on, the verb, its operation, what it returns all the same, the tube then.
CASES: dict[
    str, tuple[Callable[[World], Any], Callable[[World, Any], Any], tuple[str, object, str]]
] = {
    "put": (lambda _: None, lambda w, _: names(w.tube.put_many(["a"])), ("put", "a", "ar")),
    "put_df with a key": (
        lambda w: f"key {w.version()}",
        lambda w, key: w.tube.put_df(w.frame("ab"), key=key).count,
        ("put", 2, "ar br"),
    ),
    "take": (
        lambda w: w.put("abc"),
        lambda w, _: names(w.tube.take_many(2)),
        ("take", "ab", "at bt cr"),
    ),
    "ack": (
        lambda w: w.taken("ab"),
        lambda w, ids: names(w.tube.ack_many(ids)),
        ("ack", "ab", ""),
    ),
    "exchange": (
        lambda w: (w.taken("a"), w.put("bc"))[0],
        lambda w, ids: names(w.tube.exchange(ack=ids, take=1)),
        ("exchange", "b", "bt cr"),
    ),
}

_METRICS = "spark.databricks.delta.history.metricsEnabled"


@pytest.fixture
def world(pair: World) -> Iterator[World]:
    """The module's tube, empty at the start of each test.

    By Spark: the native engine waits for the JVM, which may be committing what no answer came of.
    """
    yield pair
    pair.rival.truncate()


@pytest.fixture
def no_metrics(pair: World) -> Iterator[World]:
    """The module's tube; what is committed tells nothing of the rows that it changed."""
    spark, engine = pair.spark, pair.mine._context.engine
    # However slow the machine is, these sessions are not replaced meanwhile.
    began, engine._own._since = engine._own._since, float("inf")
    sessions = [spark, *(engine._own.get(compiling=each) for each in (False, True))]
    for session in sessions:
        session.conf.set(_METRICS, "false")
    yield pair
    for session in sessions:
        session.conf.set(_METRICS, "true")
    engine.spark.conf.unset(_METRICS)
    engine._own._since = began
    pair.rival.truncate()


@pytest.mark.parametrize("verb", CASES)
def test_verb_when_its_answer_is_lost_after_the_commit_returns_as_if_it_had_heard(
    world: World, verb: str
) -> None:
    setup, act, (operation, result, after) = CASES[verb]
    given = setup(world)
    before = world.version()

    with world.probe.interrupted("committed", operation, lose):
        assert act(world, given) == result

    assert world.version() == before + 1
    assert world.stored() == after


# -- the history has no metrics --------------------------------------------------------------------


@pytest.mark.thorough
def test_take_when_its_answer_is_lost_and_the_history_has_no_metrics_is_done_once(
    no_metrics: World,
) -> None:
    world = no_metrics
    world.put("ab")
    before = world.version()

    with (
        world.probe.interrupted("committed", "take", lose),
        pytest.raises(CommitUnknownError, match="metricsEnabled must be true"),
    ):
        world.tube.take()

    assert world.version() == before + 1
    assert world.stored() == "at br"
    assert names(world.tube.take_many(5)) == "b"


@pytest.mark.thorough
def test_put_into_many_segments_when_its_answer_is_lost_is_found_all_the_same(
    world: World,
) -> None:
    queue = world.open_queue(observer=world.probe, segment_rows=1)
    tube = queue["shared"]
    letters = list(string.ascii_letters[:40])

    with world.probe.interrupted("committed", "put", lose):
        tasks = tube.put_many(letters)

    assert names(tasks) == "".join(letters)
    # Its statement names forty segments, which is more than Spark shows of some lists.
    with world.probe.interrupted("committed", "take", lose):
        assert names(tube.take_many(40)) == "".join(letters)
    assert world.stored() == " ".join(f"{letter}t" for letter in letters)


def test_create_tube_when_its_answer_is_lost_makes_it_once(world: World) -> None:
    before = world.version("_tubeq_tubes")

    with world.probe.interrupted("committed", "create_tube", lose):
        tube = world.mine.create_tube("made_unheard")

    assert world.version("_tubeq_tubes") == before + 1
    assert names(tube.put_many(["a"])) == "a"


@pytest.mark.thorough
def test_put_when_its_answer_is_lost_and_hundreds_have_committed_since_returns_the_task(
    world: World,
) -> None:
    tube = world.mine.create_tube("busy")
    log = Path(world.place, tube.name, "_delta_log")

    def commit_often() -> None:
        last = max(int(file.stem) for file in log.glob("*.json"))
        said = {"timestamp": int(time.time() * 1_000), "operation": "x", "operationParameters": {}}
        for version in range(last + 1, last + MANY + 1):
            (log / f"{version:020}.json").write_text(json.dumps({"commitInfo": said}) + "\n")
        lose()

    with world.probe.interrupted("committed", "put", commit_often):
        tasks = tube.put_many(["a"])

    assert names(tasks) == "a"
    assert stored(tube) == "ar"


# -- nobody can tell ------------------------------------------------------------------------------


@contextmanager
def without_history(world: World) -> Iterator[Callable[[], None]]:
    """What takes the table away from the history's reader; it is back after the block."""
    table, hidden = Path(world.place, world.tube.name), Path(world.place, "hidden")

    def hide() -> None:
        shutil.move(table, hidden)
        lose()

    try:
        yield hide
    finally:
        if hidden.exists():
            shutil.rmtree(table, ignore_errors=True)
            shutil.move(hidden, table)


def test_take_when_the_history_cannot_be_read_says_that_nobody_knows(world: World) -> None:
    world.put("a")

    with (
        without_history(world) as hide,
        world.probe.interrupted("committed", "take", hide),
        pytest.raises(CommitUnknownError) as caught,
    ):
        world.tube.take(0)

    assert caught.value.operation_id
    assert world.stored() == "at"


# -- the request is lost, so there is no commit ---------------------------------------------------


@pytest.fixture(scope="module")
def losing(spark: SparkSession) -> LosesRequests:
    return LosesRequests(spark)


@pytest.fixture(scope="module")
def unheard(pair: World, losing: LosesRequests) -> Tube:
    """The module's tube, as a queue sees it whose statements are lost when told."""
    config = QueueConfig(attempts=3, backoff_first=0, backoff_most=0, vacuum_hours=0)
    queue = Queue(losing, pair.place, clock=pair.clock, config=config)  # type: ignore[arg-type]
    queue.cfg(ttr=FOR_EVER)
    end_heartbeat(queue)
    # Its lease and its slot are there before anything is lost.
    queue["shared"].put("first")
    task = queue["shared"].take(0)
    assert task is not None
    queue["shared"].ack(task.task_id)
    return queue["shared"]


#: What a lost statement raises: no answer at all, or an engine that failed before it committed.
FAILURES = {
    "connection": (ConnectionError("lost"), CommitUnknownError),
    "engine": (PySparkRuntimeError("the executor was killed"), StoreError),
}


@contextmanager
def failing(losing: LosesRequests, failure: str) -> Iterator[None]:
    raised, expected = FAILURES[failure]
    losing.failure = raised
    try:
        with pytest.raises(TubeqError) as caught:
            yield
    finally:
        losing.failure = None
    assert type(caught.value) is expected
    if isinstance(caught.value, CommitUnknownError):
        assert caught.value.operation_id


@pytest.mark.parametrize("failure", thorough("connection", "engine"))
def test_put_when_its_statement_is_never_run_says_so_and_puts_nothing(
    world: World, unheard: Tube, losing: LosesRequests, failure: str
) -> None:
    with failing(losing, failure):
        unheard.put("a")

    assert world.stored() == ""


def test_ack_when_its_statement_is_never_run_says_so_and_can_be_repeated(
    world: World, unheard: Tube, losing: LosesRequests
) -> None:
    world.put("ab")
    ids = ids_of(unheard.take_many(2))

    with failing(losing, "connection"):
        unheard.ack_many(ids)

    assert world.stored() == "at bt"
    assert names(unheard.ack_many(ids)) == "ab"
    assert world.stored() == ""
