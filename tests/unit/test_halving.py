"""How the tasks are found that a handler fails at, among those that it failed at together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tubeq_spark.model.failures import PATIENCE, Trial, by_halves

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Handler:
    """Fails at each call with one of the bad tasks, and from some call on at all."""

    def __init__(self, bad: Collection[int], broken_from: int = 1_000_000) -> None:
        self.bad = frozenset(bad)
        self.broken_from = broken_from
        self.calls: list[list[int]] = []

    def __call__(self, part: Sequence[int]) -> None:
        self.calls.append(list(part))
        if len(self.calls) >= self.broken_from or self.bad.intersection(part):
            raise ValueError(*part)

    @property
    def done(self) -> list[int]:
        """What was called last without an error."""
        return sorted(n for call in self.calls if not self.bad.intersection(call) for n in call)


def trial(handler: Handler, count: int, stop_after: int = 1_000_000) -> Trial:
    return by_halves(
        range(count),
        ValueError("together"),
        lambda part: part,
        handler,
        lambda _result, _part: {},
        lambda: len(handler.calls) < stop_after,
    )


@pytest.mark.parametrize(
    ("count", "bad"), [(2, {0}), (2, {1}), (3, {1}), (100, {0, 99}), (1_000, {17, 18, 600})]
)
def test_halves_when_some_tasks_are_bad_find_exactly_these(count: int, bad: set[int]) -> None:
    handler = Handler(bad)

    found = trial(handler, count)

    assert {number: error.args for number, error in found.failed.items()} == {  # type: ignore[union-attr]
        number: (number,) for number in bad
    }
    assert (list(found.untried), found.error) == ([], None)
    # Each innocent task is in one call that succeeds, and no call is made twice.
    assert handler.done == [number for number in range(count) if number not in bad]
    assert len({tuple(call) for call in handler.calls}) == len(handler.calls)


def test_halves_when_one_of_many_is_bad_need_two_calls_a_level() -> None:
    handler = Handler({12_345})

    trial(handler, 2**20)

    assert len(handler.calls) == 2 * 20


def test_halves_when_a_task_was_alone_do_not_call_again() -> None:
    handler = Handler({0})

    found = trial(handler, 1)

    assert handler.calls == []
    assert [str(error) for error in found.failed.values()] == ["together"]
    assert found.error is found.failed[0]


def test_halves_when_all_are_bad_say_so() -> None:
    found = trial(Handler(range(5)), 5)

    assert sorted(found.failed) == [0, 1, 2, 3, 4]
    assert isinstance(found.error, ValueError)


def test_halves_when_the_handler_is_broken_are_given_up() -> None:
    handler = Handler(range(20_000))

    found = trial(handler, 20_000)

    # The call with all of them was the first.
    assert len(handler.calls) == PATIENCE - 1
    assert sorted([*found.failed, *found.untried]) == list(range(20_000))
    assert sorted(found.failed) == [part[0] for part in handler.calls if len(part) == 1]
    assert found.error is not None


def test_halves_when_the_handler_breaks_later_keep_what_is_done() -> None:
    handler = Handler({0}, broken_from=12)

    found = trial(handler, 1_000)

    done = set(range(1_000)).difference(found.failed, found.untried)
    assert done == {n for call in handler.calls[:11] if 0 not in call for n in call}
    assert len(handler.calls) <= 11 + PATIENCE
    assert found.error is not None


def test_halves_when_asked_to_stop_leave_the_rest_untried() -> None:
    handler = Handler({0})

    found = trial(handler, 8, stop_after=2)

    assert handler.calls == [[0, 1, 2, 3], [0, 1]]
    assert sorted(found.untried) == list(range(8))
    assert found.failed == {}


def test_halves_when_an_error_says_nothing_of_the_tasks_raise_it() -> None:
    with pytest.raises(ValueError, match="0"):
        by_halves(
            range(4),
            OSError(),
            lambda part: part,
            Handler({0}),
            lambda *_: {},
            lambda: True,
            (ValueError,),
        )


def test_halves_when_tasks_cannot_be_read_raise_that_error() -> None:
    def read(_part: Sequence[int]) -> Sequence[int]:
        msg = "503"
        raise OSError(msg)

    handler = Handler({0})

    with pytest.raises(OSError, match="503"):
        by_halves(range(4), ValueError(), read, handler, lambda *_: {}, lambda: True)

    assert handler.calls == []


def test_halves_when_a_call_names_failed_tasks_have_these() -> None:
    found = by_halves(
        range(4),
        OSError(),
        lambda part: part[0],
        lambda first: first,
        lambda n, _: {n: "first"},
        lambda: True,
    )

    assert found == Trial({0: "first", 2: "first"})
