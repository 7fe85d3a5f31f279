"""A short run of `python -m tests.chaos` loses and doubles no task, though processes are killed or stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.run import Chaos

if TYPE_CHECKING:
    from pathlib import Path

SECONDS, SEED, WORKERS, EVERY = 20.0, 7, 4, 0.6
#: A busy machine kills less often.
KILLS = 15


@pytest.mark.thorough
@pytest.mark.processes
@pytest.mark.slow
def test_queue_when_its_processes_are_killed_at_any_moment_loses_and_doubles_no_task(
    tmp_path: Path,
) -> None:
    outcome = Chaos(tmp_path, SEED, WORKERS, spark=False).run(SECONDS, EVERY)

    assert outcome.findings == []
    assert outcome.kills >= KILLS
    assert outcome.killed_in, "no process was killed in a verb"
    assert outcome.pauses["longer"], "no process was stopped until its lease was over"
    assert any(name.startswith("work ") for name in outcome.ops), "no loop of work has begun"
    assert outcome.compactions, "no small segments were merged"
    # Nobody waits for a commit of a process that is gone.
    assert not [text for text in outcome.warnings if "may still be committing" in text]
    assert not outcome.left["notes of commits"]
