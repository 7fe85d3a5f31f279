"""The benchmark computes the right middles, bounds, ratios and goals from the times of calls."""

from __future__ import annotations

import io
from typing import Any

from bench.goals import goals
from bench.measure import VERBS, Measured, Progress, interleave
from bench.peers.run import Beside
from bench.plan import Form, Series, Session
from bench.results import Results
from bench.run import Compared


def test_measured_of_several_calls_has_their_middle_and_what_nine_of_ten_stay_within() -> None:
    measured = Measured(100, {"put": [5.0, 1.0, 4.0, 2.0, 3.0]})

    assert (measured.median("put"), measured.p90("put")) == (3.0, 5.0)
    assert measured.quartiles("put") == (2.0, 4.0)
    assert measured.tasks_per_second("put") == 100 / 3.0


def test_ratio_of_two_measured_is_the_middle_of_their_rounds() -> None:
    times, cpu = {"put": [2.0, 6.0, 90.0]}, {"put": [2.0, 2.0, 2.0]}
    mine = Measured(1, times, cpu)
    theirs = Measured(1, {"put": [1.0, 2.0, 10.0]}, {"put": [1.0, 1.0, 4.0]})

    assert mine.ratio_to(theirs, "put") == 3.0
    assert mine.cpu_ratio_to(theirs, "put") == 2.0


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


def found(session: Session, series: Series, queue: float, floor: float) -> Results:
    """Results of one series, each call of which took as long."""
    times = [{verb: [seconds] for verb in VERBS} for seconds in (queue, floor)]
    measured = [Measured(series.batch, each, each, dict.fromkeys(VERBS, 1)) for each in times]
    results = Results()
    results.add(Compared(session, series, *measured))
    return results


def met(results: Results) -> dict[str, Any]:
    return {goal["name"]: goal["met"] for goal in goals(results)}


def test_goals_are_those_of_an_engine_and_of_the_verbs_on_tables() -> None:
    one, batch = Series(Form.MANY, 1, 1, 0), 100_000
    native, spark, default, many, arrow = (
        met(found(session, series, queue, floor))
        for session, series, queue, floor in (
            (Session.NONE, one, 0.028, 0.020),
            (Session.RECOMMENDED, one, 0.028, 0.020),
            (Session.DEFAULT, one, 0.028, 0.020),
            (Session.NONE, Series(Form.MANY, batch, 1, 0), 0.25, 1.0),
            (Session.NONE, Series(Form.ARROW, batch, 1, 0), 0.25, 1.0),
        )
    )

    assert native == {f"native: {verb} of 1, queue / floor": True for verb in VERBS} | {
        f"native: {verb} of 1, s": verb == "take" for verb in VERBS
    }
    assert spark == {f"spark: {verb} of 1, queue / floor": False for verb in VERBS}
    assert arrow == {f"native: {verb} of 100,000, tasks/s": verb == "take" for verb in VERBS}
    assert default == many == {}


def test_goals_beside_others_are_ratios_to_the_others_that_were_measured() -> None:
    def row(load: str, queue: str, rate: float) -> dict[str, Any]:
        return {"load": load, "queue": queue, "in_batches": False, "tasks_per_s": rate}

    peers = Beside(
        rates=[
            row("work, 8 threads", "tubeq, commit", 1_600.0),
            row("work, 8 threads", "Postgres", 1_000.0),
            row("work, 8 threads", "Postgres", 9_000.0) | {"in_batches": True},
            row("put, 32 threads", "tubeq, commit", 1_000.0),
            row("take and ack, 64 threads", "tubeq, commit", 1_000.0),
        ],
        batches=[
            row("put of 100,000", "tubeq, commit", 900.0),
            row("put of 100,000", "SQLite", 800.0),
            row("put of 100,000", "Postgres", 1_000.0),
        ],
        takes=[
            {"queue": "tubeq, commit", "waiting": 1_000, "ratio": 1.0},
            {"queue": "tubeq, commit", "waiting": 2_000_000, "ratio": 2.5},
        ],
    )

    assert met(Results(peers=peers)) == {
        "native: work, 8 threads, commit, tasks/s / Postgres": True,
        "native: put, 32 threads, commit, tasks/s": False,
        "native: put of 100,000, commit / fastest other": False,
        "native: take of 1, commit, 2,000,000 waiting / few": True,
    }
    assert met(Results(peers=Beside())) == {}
