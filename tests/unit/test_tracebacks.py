"""The tracebacks of errors that a caller causes end with the caller's line, and one frame of the verb."""

from __future__ import annotations

import inspect
import logging
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import (
    InvalidOptionError,
    NotTakenError,
    Queue,
    QueueNotFoundError,
    QueueStateError,
    TaskNotFoundError,
    Tube,
    TubeNotFoundError,
)
from tubeq_spark.runtime.tracebacks import short_tracebacks
from tubeq_spark.tarantool15 import Queue15
from tubeq_spark.testing import InMemoryQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def queue() -> Iterator[InMemoryQueue]:
    with InMemoryQueue() as queue:
        yield queue


@pytest.fixture
def tube(queue: InMemoryQueue) -> Tube:
    return queue.create_tube("t", "fifottl")


def frames_of(verb: Callable[[], object], error: type[Exception]) -> list[str]:
    """The names of the functions that an error passed, the test's first, without the helper."""
    with pytest.raises(error) as caught:
        verb()
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:]


@pytest.mark.parametrize(
    ("name", "verb", "error"),
    [
        ("put", lambda tube: tube.put({1: 2}), InvalidOptionError),
        ("put_many", lambda tube: tube.put_many([1], ttl=-1), InvalidOptionError),
        ("put_arrow", lambda tube: tube.put_arrow(7), InvalidOptionError),
        ("take_arrow", lambda tube: tube.take_arrow(-1), InvalidOptionError),
        ("ack", lambda tube: tube.ack(7), NotTakenError),
        ("peek", lambda tube: tube.peek(7), TaskNotFoundError),
        ("release", lambda tube: tube.release(7, delay="x"), InvalidOptionError),
    ],
)
def test_error_of_use_when_a_verb_raises_it_has_one_frame_of_ours(
    tube: Tube, name: str, verb: Callable[[Tube], object], error: type[Exception]
) -> None:
    assert frames_of(lambda: verb(tube), error) == ["<lambda>", "<lambda>", name]


def test_error_of_use_when_a_queue_raises_it_has_one_frame_of_ours(
    queue: InMemoryQueue, tmp_path: Path
) -> None:
    create: Any = queue.create_tube
    closed = InMemoryQueue()
    closed.close()

    assert frames_of(lambda: create("a b"), InvalidOptionError) == ["<lambda>", "create_tube"]
    assert frames_of(lambda: queue["none"], TubeNotFoundError) == ["<lambda>", "tube"]
    assert frames_of(closed.tubes, QueueStateError) == ["tubes"]
    old = Queue15(queue)
    queue.create_tube("t", "fifottl")
    assert frames_of(lambda: old.put("t", 1, pri=-1), InvalidOptionError) == ["<lambda>", "put"]
    missing = lambda: Queue(None, tmp_path / "none", create=False, engine="native")  # noqa: E731
    assert frames_of(missing, QueueNotFoundError) == ["<lambda>", "__init__"]


def test_error_of_use_when_the_programs_function_is_between_keeps_its_frames(tube: Tube) -> None:
    def items() -> Iterator[object]:
        yield 1
        tube.peek(7)

    found = frames_of(lambda: tube.put_many(items()), TaskNotFoundError)

    assert found == ["<lambda>", "put_many", "items"]


def test_error_of_use_when_printed_shows_no_error_but_the_programs_own(tube: Tube) -> None:
    def put_a_set() -> None:
        try:
            int("of the program")
        except ValueError:
            tube.put({1, 2})

    texts = []
    for verb in (lambda: tube.put({1, 2}), put_a_set):
        with pytest.raises(InvalidOptionError) as caught:
            verb()
        texts.append("".join(traceback.format_exception(caught.value)))

    assert [text.count("Traceback") for text in texts] == [1, 2]
    assert "'of the program'" in texts[1]


def test_error_of_use_when_debugging_keeps_all_frames(
    tube: Tube, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "tubeq_spark"):
        found = frames_of(lambda: tube.put({1: 2}), InvalidOptionError)

    assert found[-1] == "refuse"
    assert len(found) > 5


def test_error_of_the_storage_keeps_all_frames() -> None:
    def fail() -> None:
        raise ValueError

    @short_tracebacks
    class Verbs:
        def verb(self, call: Callable[[], None] = fail) -> None:
            call()

    assert frames_of(Verbs().verb, ValueError) == ["verb", "verb", "fail"]


def test_verb_when_its_traceback_is_cut_has_the_parameters_that_it_declares() -> None:
    class Plain:
        def verb(self, a: int, /, b: int = 2, *rest: int, c: int = 3, **more: int) -> object:
            """Return all of them."""
            return (a, b, rest, c, more)

    expected = inspect.signature(Plain.verb)
    cut: Any = short_tracebacks(Plain)()

    assert inspect.signature(type(cut).verb) == expected
    assert type(cut).verb.__doc__ == "Return all of them."
    assert cut.verb(1) == (1, 2, (), 3, {})
    assert cut.verb(1, 4, 5, 6, c=7, d=8) == (1, 4, (5, 6), 7, {"d": 8})
