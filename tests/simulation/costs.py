"""Bounds for the commits and requests of calls, in plans with one thread and without failures.

`costs.json` has three numbers for each kind of call: the most commits of one call, and the first quartiles of commits
and of requests in one history. A quartile is 9999 if no history had enough calls. For each quiet seed it has all commits, the
files at the end, and all requests. `python -m tests.simulation.costs` runs some seeds and writes their greatest
numbers. Compare the commits with the docstrings before you commit the file. A verb makes more commits if it first writes
changes that are due, such as ended leases.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.history import Violation
from tests.simulation.queue_lives import TAKES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import Call, History

_FILE = Path(__file__).with_suffix(".json")
#: `main` makes the table from the quiet plans among this many seeds.
_SEEDS = 3_000
#: A call may make this many commits more than the table says, because the seeds do not show each rare commit.
_MORE = 1
#: The quartiles of a kind are judged if a history has at least this many calls of it.
_SOME = 4
#: The bounds of a kind that is not judged.
_ANY = (9999, 9999, 9999)


def kind_of(call: Call, history: History) -> str:
    """The verb, in a tube with sub-queues ("u") or another ("p"), and whether it failed ("!") or took nothing ("0")."""
    options = history.tubes.get(call.tube, {"type": ""})
    way = "u" if options["type"].startswith("utube") else "p"
    end = "!" if call.error else "0" if call.verb in TAKES and not call.result else ""
    return f"{call.verb} {way}{end}"


def costs(history: History) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """The costs of each kind of call in a history, and of all calls together."""
    commits = sum(call.commits for call in history.calls)
    requests = sum(call.requests for call in history.calls)
    yield f"seed {history.quiet}", (commits, history.files, requests)
    by_kind = defaultdict(list)
    for call in (call for call in history.calls if call.verb != "work"):
        by_kind[kind_of(call, history)].append(call)
    for kind, calls in by_kind.items():
        sent, asked = sorted(c.commits for c in calls), sorted(c.requests for c in calls)
        some, is_judged = len(calls) // 4, len(calls) >= _SOME
        yield kind, (sent[-1], sent[some] * is_judged, asked[some] * is_judged)


def too_costly(history: History) -> Iterator[Violation]:
    """One violation for each kind of call that exceeds its bounds."""
    known = json.loads(_FILE.read_text())
    for kind, cost in costs(history):
        one, *some = known.get(kind, _ANY)
        if any(now > most for now, most in zip(cost, (one + _MORE, *some), strict=True)):
            yield Violation("cost", "", f"{kind}: {cost}, at most {one + _MORE, *some}")


def main() -> None:
    """Write the table."""
    from tests.simulation.queue_acts import plan_of  # noqa: PLC0415
    from tests.simulation.queue_run import run  # noqa: PLC0415

    logging.disable(logging.CRITICAL)
    most: dict[str, tuple[int, ...]] = {}
    for plan in filter(lambda plan: plan.is_quiet, map(plan_of, range(_SEEDS))):
        for kind, cost in costs(run(plan).history):
            most[kind] = tuple(map(max, cost, most.get(kind, cost)))
    lines = []
    for kind, (one, *some) in sorted(most.items()):
        lines.append(f"{json.dumps(kind)}: {json.dumps([one, *(some if any(some) else _ANY[1:])])}")
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
