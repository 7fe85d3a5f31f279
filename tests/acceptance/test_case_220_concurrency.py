"""Case 220: puts and takes at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import WAIT, ids_of

if TYPE_CHECKING:
    from tests.acceptance.support import InBackground, NewTube
    from tubeq_spark import Queue


@pytest.mark.thorough
def test_put_and_take_by_two_sessions_at_once_all_succeed(
    queue: Queue, other: Queue, new_tube: NewTube, in_background: InBackground
) -> None:
    """Case 220-1."""
    tube = new_tube("fifo")
    tubes = [queue[tube.name], other[tube.name]]

    puts = [in_background(side.put, "same") for side in tubes]
    ids = ids_of(future.result(WAIT) for future in puts)
    takes = [in_background(side.take, timeout=0) for side in tubes]
    taken = ids_of(future.result(WAIT) for future in takes)

    assert len(set(ids)) == 2
    assert sorted(taken) == sorted(ids)
