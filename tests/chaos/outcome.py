"""What came of a chaos, in numbers."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.chaos.plan import SESSION_TTR, TUBES
from tubeq_spark.storage.note import note_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.chaos.history import History
    from tests.chaos.journal import Life, Op

__all__ = ["Outcome", "measure"]

#: The verbs that compact.
_FOLDING = ("put", "sweep")
#: What differs between warnings of a kind: ids of sessions, and numbers.
_VARIES = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")


@dataclass(slots=True)
class Outcome:
    """What came of a chaos.

    Attributes:
        findings: What is wrong.
        kills: How many processes were killed.
        pauses: How many were stopped for a while, by whether that was longer than a session's lease.
        ops: How many verbs were called, by name and outcome.
        killed_in: In how many of which the process was killed.
        paused_in: In how many of which it was stopped for a while.
        compactions: How often a tube's small segments were merged, by the verb that did it.
        tasks: How many tasks there were, by tube, and how many were left.
        warnings: What the package warned of, and how often.
        left: Files that killed processes have left, by kind.
        longest: The longest that an acknowledged verb took, in seconds, by name.
    """

    findings: list[str]
    kills: int
    pauses: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)
    killed_in: Counter[str] = field(default_factory=Counter)
    paused_in: Counter[str] = field(default_factory=Counter)
    compactions: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, tuple[int, int]] = field(default_factory=dict)
    warnings: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)


def measure(
    outcome: Outcome,
    location: Path | None,
    lives: Sequence[Life],
    history: History,
    drained: dict[str, set[int]],
) -> None:
    """Fill in the numbers. Files are counted only if the location is local: on a store it is `None`."""
    for op in history.ops:
        came = "killed" if op.end is None else op.error or "done"
        outcome.ops[f"{op.name} {came}"] += 1
        if op.end is not None:
            longest = outcome.longest.get(op.name, 0.0)
            outcome.longest[op.name] = max(longest, op.end - op.begin)
    for tube, items in history.tube_items():
        outcome.tasks[tube.name] = (len(items), len(drained[tube.name]))
    for life in lives:
        # A loop of work has many tasks to settle when it is killed.
        outcome.killed_in.update({op.name for op in life.ops if op.end is None})
        texts = [entry["warning"] for entry in life.told if "warning" in entry]
        outcome.warnings.update(_VARIES.sub("#", text)[:100] for text in texts)
    _count_pauses(outcome, lives)
    if location is not None:
        _count_compactions(outcome, location, lives)
        outcome.left = _left_in(location)


def _count_pauses(outcome: Outcome, lives: Sequence[Life]) -> None:
    ops = {life.name: life.ops for life in lives}
    for entry in [entry for life in lives for entry in life.told if "paused" in entry]:
        outcome.pauses["longer" if entry["seconds"] > SESSION_TTR else "shorter"] += 1
        outcome.paused_in.update({*_during(ops.get(entry["paused"], ()), entry["at"])})


def _count_compactions(outcome: Outcome, location: Path, lives: Sequence[Life]) -> None:
    """Count them in the tables' logs, where each commit says what it was and whose."""
    whose = {e["session"]: life for life in lives for e in life.told if "session" in e}
    since = time.time() - time.monotonic()
    for tube in TUBES:
        for file in (location / tube.name / "_delta_log").glob("*.json"):
            commits = [json.loads(line) for line in file.read_text().splitlines()]
            for commit in [c["commitInfo"] for c in commits if "commitInfo" in c]:
                note = note_in(commit.get("userMetadata") or "")
                if note is not None and note.operation == "fold":
                    life = whose.get(note.session)
                    at = commit["timestamp"] / 1000 - since
                    verbs = [] if life is None else _during(life.ops, at)
                    # Another thread of the process may be in any verb.
                    outcome.compactions[next(filter(_FOLDING.count, verbs), "other")] += 1


def _during(ops: Iterable[Op], moment: float) -> list[str]:
    """The names of the verbs that were called before, and had not come back."""
    return [op.name for op in ops if op.begin <= moment and (op.end is None or moment <= op.end)]


def _left_in(location: Path) -> Counter[str]:
    """Files that are no part of a table, nor of what the queue works with."""
    left: Counter[str] = Counter()
    for note in location.glob("_tubeq_locks/*.committing"):
        left["notes of commits"] += bool(note.stat().st_size)
    for file in location.glob("*/_delta_log/**/*"):
        if "#" in file.name or file.name.endswith(".tmp"):
            left["temporary files of a log"] += 1
    return left
