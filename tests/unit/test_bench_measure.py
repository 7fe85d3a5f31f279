"""What the benchmark makes of the times of its calls."""

from __future__ import annotations

import io

from bench.measure import VERBS, Measured, Progress, interleave
from bench.plan import Form, Series


def test_measured_of_several_calls_has_their_middle_and_what_nine_of_ten_stay_within() -> None:
    measured = Measured(100, {"put": [5.0, 1.0, 4.0, 2.0, 3.0]})

    assert (measured.median("put"), measured.p90("put")) == (3.0, 5.0)
    assert measured.tasks_per_second("put") == 100 / 3.0


def test_ratio_of_two_measured_is_the_middle_of_their_rounds() -> None:
    mine, theirs = Measured(1, {"put": [2.0, 6.0, 90.0]}), Measured(1, {"put": [1.0, 2.0, 10.0]})

    assert mine.ratio_to(theirs, "put") == 3.0


class Counting:
    """A subject whose calls are counted."""

    def __init__(self) -> None:
        self.calls = 0

    def prepare(self) -> None: ...

    def version(self) -> int:
        return self.calls

    def _call(self) -> int:
        self.calls += 1
        return 1

    put = take = ack = _call


def test_interleave_when_it_is_stopped_has_the_rounds_that_were_whole() -> None:
    subjects = {"queue": Counting(), "floor": Counting()}
    # Asked before each round: one to warm up, two that count.
    answers = iter([False, False, False, True])
    progress = Progress(io.StringIO(), lambda: next(answers))

    measured = interleave("", Series(Form.MANY, 1, 10, 1), subjects, progress)

    for one in measured.values():
        assert [len(one.seconds[verb]) for verb in VERBS] == [2, 2, 2]
        assert (one.rounds, one.all_commits) == (2, 6)
        assert one.as_dict("put")["n"] == 2
