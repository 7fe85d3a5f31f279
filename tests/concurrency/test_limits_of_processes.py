"""Limits across processes that are killed: short runs of `python -m tests.concurrency.limited_processes`, and a long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.concurrency.limited_processes import RATE, Load, run
from tests.thorough import thorough
from tubeq_spark import Rate

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.slow]

#: A small one, and those of other limits: the tasks of a tube, and whose turn it is.
SMALL = Load(3, 20, 2.0, commits=20, every=0.3, hold=0.1)
MOST_TAKEN = Load(4, 20, 12.0, 60, hot=3, hold=1.0, options={"parallel": 4, "most_taken": 6})
FAIR = Load(4, 20, 12.0, 60, options={"parallel": 9, "rate": Rate(20, 10.0), "order": "fair"})


@pytest.mark.parametrize(
    "load", [SMALL, *thorough(MOST_TAKEN, FAIR)], ids=["small", "most", "fair"]
)
def test_limits_when_processes_are_killed_hold_in_every_commit(load: Load, tmp_path: Path) -> None:
    outcome = run(load, tmp_path / "queue")

    assert outcome.findings == []
    assert outcome.kills
    hot, others = outcome.begun
    assert hot
    # Tasks of hot sub-queues come first, and may fill all places of `most_taken`.
    assert others or "most_taken" in load.options
    # Takes come to the limits, however busy the machine is.
    assert outcome.most_taken == load.options["parallel"]


@pytest.mark.nightly
def test_limits_of_a_thousand_subqueues_when_eight_processes_are_killed_hold_in_every_commit(
    tmp_path: Path,
) -> None:
    outcome = run(Load(), tmp_path / "queue")

    assert outcome.findings == []
    assert outcome.again, "no process was killed while it held a task"
    assert outcome.most_taken == Load().options["parallel"]
    # How much of the rate is used depends on what else runs: the program in `.ci/nightly`, which runs alone, looks at it.
    assert outcome.most_begun <= RATE.tasks
