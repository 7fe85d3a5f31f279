"""Case 080: the callback of a tube's changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import WAIT, Changes, put_and_take

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import NewTube
    from tubeq_spark import Task, Tube


def test_on_task_change_is_called_for_every_change_until_it_is_replaced(
    new_tube: NewTube,
) -> None:
    """Case 080-1."""
    first, second = Changes(), Changes()
    tube = new_tube("fifo", on_task_change=first)

    def cycle() -> None:
        tube.ack(put_and_take(tube, [123]).task_id)

    cycle()
    assert [event for event, _, _ in first] == ["put", "take", "ack"]

    assert tube.on_task_change(second) is first
    cycle()
    assert (len(first), len(second)) == (3, 3)

    assert tube.on_task_change(None) is second
    cycle()
    assert (len(first), len(second)) == (3, 3)


@pytest.mark.parametrize(
    "take",
    [
        lambda tube: tube.take(0),
        lambda tube: tube.take_many(2),
        lambda tube: tube.exchange(ack=[], take=1),
    ],
)
def test_take_of_a_thread_when_the_callback_ends_that_thread_gives_its_tasks_back(
    new_tube: NewTube, take: Callable[[Tube], Any]
) -> None:
    tube = new_tube("fifo")
    tube.put_many([1, 2])

    def leave(_: Task, event: str) -> None:
        if event == "take":
            raise SystemExit

    tube.on_task_change(leave)
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(take, tube).exception(WAIT)
    tube.on_task_change(None)

    assert isinstance(error, SystemExit)
    assert list(tube.tasks_by_state("t")) == []
    assert [task.data for task in tube.take_many(3)] == [1, 2]
