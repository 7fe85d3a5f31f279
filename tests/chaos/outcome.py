"""Measures the outcome of a chaos in numbers."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.chaos.plan import SESSION_TTR, TUBES
from tubeq_spark.storage.statement import note_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.history import History
    from tests.chaos.journal import Life

__all__ = ["Outcome", "measure"]

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
        compactions: How often a tube's small segments were merged.
        tasks: How many tasks there were, by tube, and how many were left.
        warnings: What the package warned of, and how often.
        left: Files that killed processes have left, by kind.
    """

    findings: list[str]
    kills: int
    pauses: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)
    killed_in: Counter[str] = field(default_factory=Counter)
    compactions: int = 0
    tasks: dict[str, tuple[int, int]] = field(default_factory=dict)
    warnings: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


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
    for tube, items in history.tube_items():
        outcome.tasks[tube.name] = (len(items), len(drained[tube.name]))
    for life in lives:
        # A loop of work has many tasks to settle when it is killed.
        outcome.killed_in.update({op.name for op in life.ops if op.end is None})
        texts = [entry["warning"] for entry in life.told if "warning" in entry]
        outcome.warnings.update(_VARIES.sub("#", text)[:100] for text in texts)
        pauses = [entry["seconds"] for entry in life.told if "paused" in entry]
        outcome.pauses.update("longer" if each > SESSION_TTR else "shorter" for each in pauses)
    if location is not None:
        outcome.compactions = sum(_folds_in(location / tube.name) for tube in TUBES)
        outcome.left = _left_in(location)


def _folds_in(table: Path) -> int:
    """How many commits of a log merged small segments."""
    texts = [file.read_text() for file in table.glob("_delta_log/*.json")]
    commits = [
        json.loads(line).get("commitInfo", {}) for text in texts for line in text.splitlines()
    ]
    notes = [note_in(commit.get("userMetadata") or "") for commit in commits]
    return sum(note is not None and note.operation == "fold" for note in notes)


def _left_in(location: Path) -> Counter[str]:
    """Files that are no part of a table, nor of what the queue works with."""
    left: Counter[str] = Counter()
    for note in location.glob("_tubeq_locks/*.committing"):
        left["notes of commits"] += bool(note.stat().st_size)
    for file in location.glob("*/_delta_log/**/*"):
        if "#" in file.name or file.name.endswith(".tmp"):
            left["temporary files of a log"] += 1
    return left
