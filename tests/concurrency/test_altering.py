"""Rivals of `alter` and `pause`, and reads of the registry that fail."""

from __future__ import annotations

import itertools
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import TTR, ids_of, names
from tubeq_spark import StoreError, TubeNotFoundError
from tubeq_spark.storage.tables.registry import Registry
from tubeq_spark.verbs import after_take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.concurrency.support import World

_numbers = itertools.count(1)


@pytest.fixture
def fresh(world: World) -> World:
    """The two sessions with a new tube."""
    name = f"altered_{next(_numbers)}"
    tube = world.mine.create_tube(name, "fifottl", ttr=TTR)
    return replace(world, tube=tube, rival=world.rivals.tube(name))


def taken(world: World, letters: str) -> list[int]:
    """Tasks that the interrupted queue holds."""
    world.tube.put_many(list(letters))
    return ids_of(world.tube.take_many(len(letters)))


@pytest.mark.without_spark
def test_alter_when_a_rival_alters_another_option_changes_both(fresh: World) -> None:
    with fresh.probe.interrupted("decided", "alter", lambda: fresh.rival.alter(max_attempts=7)):
        fresh.tube.alter(ttr=5)

    assert (fresh.tube.options["ttr"], fresh.tube.options["max_attempts"]) == (5, 7)


@pytest.mark.without_spark
def test_alter_when_a_rival_pauses_meanwhile_leaves_the_pause(fresh: World) -> None:
    with fresh.probe.interrupted("decided", "alter", fresh.rival.pause):
        fresh.tube.alter(ttr=5)

    assert (fresh.tube.options["ttr"], fresh.tube.paused) == (5, True)


@pytest.mark.without_spark
def test_alter_when_a_rival_drops_the_tube_meanwhile_does_not_find_it(fresh: World) -> None:
    with (
        fresh.probe.interrupted("decided", "alter", fresh.rival.drop),
        pytest.raises(TubeNotFoundError),
    ):
        fresh.tube.alter(ttr=5)


# -- looks at the registry ------------------------------------------------------------------------


@pytest.mark.without_spark
def test_verbs_when_the_registry_cannot_be_read_go_on_by_the_last_record(fresh: World) -> None:
    ids = taken(fresh, "ab")
    fresh.rival.put("c")

    with failing(StoreError("503", passes=True)):
        fresh.clock.advance(5)
        assert names([fresh.tube.ack(ids[0])]) == "a"
        fresh.clock.advance(5)
        assert names(fresh.tube.take_many(1)) == "c"

    assert fresh.stored() == "bt ct"


@pytest.mark.without_spark
def test_take_when_the_look_after_its_commit_fails_is_given_back(fresh: World) -> None:
    fresh.rival.put("a")

    with ExitStack() as stack:

        def slow() -> None:
            stack.enter_context(failing(StoreError("the registry is damaged")))
            fresh.clock.advance(5)

        stack.enter_context(fresh.probe.interrupted("committed", "take", slow))
        with pytest.raises(StoreError, match="registry is damaged"):
            fresh.tube.take(0)

    assert fresh.stored() == "ar"


@pytest.mark.without_spark
def test_exchange_when_its_process_slept_while_the_tube_was_paused_acks_alone(
    fresh: World,
) -> None:
    ids = taken(fresh, "a")
    fresh.rival.put("b")

    def sleeps() -> None:
        fresh.rival.pause()
        fresh.clock.advance(5)

    with fresh.probe.interrupted("decided", "exchange", sleeps):
        assert fresh.tube.exchange(ack=ids, take=1) == []

    assert fresh.stored() == "br"
    fresh.rival.resume()


@pytest.mark.without_spark
def test_exchange_when_the_take_after_its_ack_fails_has_acked(
    fresh: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = taken(fresh, "a")

    def fails(*_: Any) -> Any:
        raise StoreError("503", passes=True)

    monkeypatch.setattr(fresh.tube._together, "submit", fails)

    assert fresh.tube.exchange(ack=ids, take=1) == []
    assert fresh.stored() == ""


@pytest.mark.without_spark
def test_exchange_when_the_look_after_its_commit_fails_has_acked(fresh: World) -> None:
    ids = taken(fresh, "a")
    fresh.rival.put("b")

    with ExitStack() as stack:

        def slow() -> None:
            stack.enter_context(failing(StoreError("the registry is damaged")))
            fresh.clock.advance(5)

        stack.enter_context(fresh.probe.interrupted("committed", "exchange", slow))
        assert fresh.tube.exchange(ack=ids, take=1) == []

    assert fresh.stored() == "br"


@pytest.mark.without_spark
def test_take_when_it_cannot_be_undone_is_left_to_the_heart(
    fresh: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.rival.put("a")

    def sleeps() -> None:
        fresh.rival.pause()
        fresh.clock.advance(5)

    def fails(*_: Any) -> Any:
        raise StoreError("503", passes=True)

    with monkeypatch.context() as patched:
        patched.setattr(after_take, "give_up", fails)
        with fresh.probe.interrupted("decided", "take", sleeps):
            assert fresh.tube.take(0) is None
    assert fresh.stored() == "at"

    fresh.mine._context.unknown_takes.look()

    assert fresh.stored() == "ar"
    fresh.rival.resume()


@contextmanager
def failing(error: StoreError) -> Iterator[None]:
    """Let each read of the registry fail."""

    def fails(*_: Any) -> Any:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Registry, "find", fails)
        patched.setattr(Registry, "version", lambda *_: None)
        yield
