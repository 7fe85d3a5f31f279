"""Compares the commits, files and requests of plans in which nothing fails with those in `costs.json`.

A change of the queue that makes one of these numbers another one is found. If it is meant, `python -m
tests.simulation.costs` writes the file again; compare the sums that it prints before you commit the file.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.history import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History

_FILE = Path(__file__).with_suffix(".json")


def cost_of(history: History) -> list[int]:
    """The commits of all calls, the files at the end, and the requests of all calls."""
    commits = sum(call.commits for call in history.calls)
    return [commits, history.files, sum(call.requests for call in history.calls)]


def other_costs(history: History) -> Iterator[Violation]:
    """A violation if a seed costs more or less than it is known to."""
    cost = cost_of(history)
    known = json.loads(_FILE.read_text()).get(str(history.quiet), cost)
    if cost != known:
        yield Violation(
            "cost", "", f"seed {history.quiet}: commits, files, requests {cost}, not {known}"
        )


def main() -> None:
    """Write the table, from the quiet plans among 2,000 seeds."""
    from tests.simulation.queue_plans import plan_of  # noqa: PLC0415
    from tests.simulation.queue_run import run  # noqa: PLC0415

    logging.disable(logging.CRITICAL)
    plans = filter(lambda plan: plan.is_quiet, map(plan_of, range(2_000)))
    found = {plan.seed: cost_of(run(plan).history) for plan in plans}
    lines = [f'"{seed}": {cost}' for seed, cost in found.items()]
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print("commits, files, requests:", [sum(some) for some in zip(*found.values(), strict=True)])


if __name__ == "__main__":
    main()
