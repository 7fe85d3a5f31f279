"""Case 080: the callback of a tube's changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import Changes, put_and_take

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube


@pytest.mark.without_spark
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
