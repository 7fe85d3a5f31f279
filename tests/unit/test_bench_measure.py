"""What the benchmark makes of the times of its calls."""

from __future__ import annotations

from bench.measure import Measured


def test_measured_of_several_calls_has_their_middle_and_what_nine_of_ten_stay_within() -> None:
    measured = Measured(100, {"put": [5.0, 1.0, 4.0, 2.0, 3.0]})

    assert (measured.median("put"), measured.p90("put")) == (3.0, 5.0)
    assert measured.tasks_per_second("put") == 100 / 3.0


def test_ratio_of_two_measured_is_the_middle_of_their_rounds() -> None:
    mine, theirs = Measured(1, {"put": [2.0, 6.0, 90.0]}), Measured(1, {"put": [1.0, 2.0, 10.0]})

    assert mine.ratio_to(theirs, "put") == 3.0
