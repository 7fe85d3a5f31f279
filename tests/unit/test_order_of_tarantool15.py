"""One number holds rank and priority of the 1.5 dialect, and keeps the order of both."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tubeq_spark import InvalidOptionError
from tubeq_spark.tarantool15.tasks import (
    USUAL_FIRST,
    USUAL_LAST,
    USUAL_PRI,
    priority_of,
    put_options,
    rank_before,
    rank_behind,
    rank_of,
    stored_pri,
)

LEAST, LAST = -(2**23), 2**23 - 1
PLACES = [*product([255, 128, 127, 1, 0], [LEAST, -2, -1, 0, 1, LAST])]


def test_stored_pri_fits_an_int_gives_back_what_it_was_made_of_and_orders_by_rank_first() -> None:
    assert [stored_pri(p) for p in (255, USUAL_PRI, 0)] == [USUAL_FIRST, 128, USUAL_LAST]
    by_number = sorted(PLACES, key=lambda place: stored_pri(*place))
    assert by_number == sorted(PLACES, key=lambda place: (place[1], -place[0]))
    for place in PLACES:
        stored = stored_pri(*place)
        assert -(2**31) <= stored < 2**31
        assert (priority_of(stored), rank_of(stored)) == place


@pytest.mark.parametrize("place", PLACES)
def test_ranks_before_and_behind_are_beyond_the_first_the_last_and_the_usual_one(
    place: tuple[int, int],
) -> None:
    stored, (_, rank) = stored_pri(*place), place
    assert rank_before(stored) == max(min(rank, 0) - 1, LEAST)
    assert rank_behind(stored) == min(max(rank, 0) + 1, LAST)
    assert (rank_before(None), rank_behind(None)) == (-1, 1)


@pytest.mark.parametrize("bad", [-1, 256, 1.0, "1", True])
def test_put_options_when_the_priority_is_none_of_old_are_refused(bad: Any) -> None:
    assert [put_options(None, None, None, pri)["pri"] for pri in (255, 0)] == [0, 255]
    with pytest.raises(InvalidOptionError, match="0 to 255"):
        put_options(None, None, None, bad)
