"""Case 050: a task is gone when its ttl has passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube
    from tubeq_spark import Tube
    from tubeq_spark.testing import ManualClock


def test_take_from_one_tube_when_ttl_has_passed_gives_none(
    fifottl: Tube, clock: ManualClock
) -> None:
    """Case 050-1."""
    for _ in range(2):
        fifottl.put_many([f"ompq_{number}" for number in range(10)], ttl=0.1)
        clock.advance(0.1)

        assert fifottl.take(timeout=0) is None


def test_take_from_several_tubes_when_ttl_has_passed_gives_none(
    new_tube: NewTube, clock: ManualClock
) -> None:
    """Case 050-4."""
    tubes = [new_tube("fifottl") for _ in range(3)]
    for tube in tubes:
        tube.put("ompq", ttl=0.1)
    clock.advance(0.1)

    assert [tube.take(timeout=0) for tube in tubes] == [None, None, None]
