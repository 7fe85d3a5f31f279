"""Case 060: several consumers wait at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.acceptance.support import WAIT, data_of, ids_of

if TYPE_CHECKING:
    from tests.acceptance.support import InBackground, NewTube


def test_take_by_five_waiting_consumers_gives_each_a_task_of_its_own(
    new_live_tube: NewTube, in_background: InBackground
) -> None:
    """Case 060-2."""
    tube = new_live_tube("fifo")
    assert tube.type == "fifo"
    waiting = [in_background(tube.take, timeout=WAIT) for _ in range(5)]

    assert tube.put(1) is not None
    tube.put_many([2, 3])
    assert None not in [
        put.result(WAIT) for put in [in_background(tube.put, number) for number in (4, 5)]
    ]

    tasks = [consumer.result(WAIT) for consumer in waiting]
    assert sorted(data_of(tasks)) == [1, 2, 3, 4, 5]
    assert len(set(ids_of(tasks))) == 5
