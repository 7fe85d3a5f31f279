"""A verb keeps or gives back its commit when the registry fails, or a rival alters its tube meanwhile."""

from __future__ import annotations

import itertools
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import TTR, ids_of, names
from tubeq_spark import StoreError
from tubeq_spark.storage.tables.registry import Registry
from tubeq_spark.verbs import wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.concurrency.support import World

pytestmark = pytest.mark.without_spark
_numbers = itertools.count(1)
PASSES, DAMAGED = StoreError("503", passes=True), StoreError("the registry is damaged")


@pytest.fixture
def fresh(world: World) -> World:
    """The two sessions with a new tube, in which the first holds a, and b is ready."""
    name = f"altered_{next(_numbers)}"
    tube = world.mine.create_tube(name, "fifottl", ttr=TTR)
    tube.put_many(["a", "b"])
    assert names(tube.take_many(1)) == "a"
    return replace(world, tube=tube, rival=world.rivals.tube(name))


@contextmanager
def failing(error: StoreError) -> Iterator[None]:
    """Let each read of the registry fail."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Registry, "find", raising(error))
        patched.setattr(Registry, "version", lambda *_: None)
        yield


def raising(error: StoreError) -> Any:
    """A function that fails."""

    def fails(*_: Any) -> Any:
        raise error

    return fails


def held(world: World) -> list[int]:
    return ids_of(world.tube.tasks_by_state("t"))


def test_verbs_when_the_registry_cannot_be_read_go_on_by_the_last_record(fresh: World) -> None:
    with failing(PASSES):
        fresh.clock.advance(5)
        assert names(fresh.tube.ack_many(held(fresh))) == "a"
        fresh.clock.advance(5)
        assert names(fresh.tube.take_many(1)) == "b"


@pytest.mark.parametrize("verb", ["take", "exchange"])
def test_verb_when_the_look_after_its_commit_fails_gives_back_what_it_took(
    fresh: World, verb: str
) -> None:
    with ExitStack() as stack:

        def slow() -> None:
            stack.enter_context(failing(DAMAGED))
            fresh.clock.advance(5)

        stack.enter_context(fresh.probe.interrupted("committed", verb, slow))
        if verb == "take":
            with pytest.raises(StoreError, match="registry is damaged"):
                fresh.tube.take(0)
        else:
            assert fresh.tube.exchange(ack=held(fresh), take=1) == []

    assert fresh.stored() == ("at br" if verb == "take" else "br")


@pytest.mark.parametrize("is_undone", [True, False])
def test_verb_when_its_process_slept_while_the_tube_was_paused_takes_nothing(
    fresh: World, monkeypatch: pytest.MonkeyPatch, *, is_undone: bool
) -> None:
    def sleeps() -> None:
        fresh.rival.pause()
        fresh.clock.advance(5)

    if is_undone:
        with fresh.probe.interrupted("decided", "exchange", sleeps):
            assert fresh.tube.exchange(ack=held(fresh), take=1) == []
    else:
        with monkeypatch.context() as patched:
            patched.setattr(wait, "give_back", raising(PASSES))
            with fresh.probe.interrupted("decided", "take", sleeps):
                assert fresh.tube.take(0) is None
        # The heart does it.
        fresh.mine._context.unknown_takes.look()

    assert fresh.stored() == ("br" if is_undone else "at br")


def test_exchange_when_the_take_after_its_ack_fails_has_acked(
    fresh: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.rival.bury_many(ids_of(fresh.rival.tasks_by_state("r")))
    monkeypatch.setattr(fresh.tube._together, "submit", raising(PASSES))

    assert fresh.tube.exchange(ack=held(fresh), take=1) == []
    assert fresh.stored() == "b!"
