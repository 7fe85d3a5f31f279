"""Prints statistics of tubes as tables, for `tubeq stats` and `tubeq top`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["console", "print_table", "rate_table", "statistics_table"]

_STATES = ("ready", "taken", "delayed", "buried", "done", "total")
_VERBS = ("put", "take", "ack", "release")
#: Columns of a table that goes to a file or a pipe: nothing is cut there.
_WIDE = 200


def console() -> Console:
    """Standard output, as it is now."""
    found = Console(file=sys.stdout)
    return found if found.is_terminal else Console(file=sys.stdout, width=_WIDE)


def print_table(table: Table) -> None:
    """Print a table to standard output."""
    console().print(table)


def statistics_table(found: Mapping[str, Any]) -> Table:
    """Tubes, with their tasks by state and their calls."""
    table = _table([*_STATES, *_calls(found)])
    for name, counts in found.items():
        tasks, calls = counts["tasks"], counts["calls"]
        numbers = [tasks[s] for s in _STATES] + [calls[v] for v in _calls(found)]
        table.add_row(name, counts["type"], *[f"{number:,}" for number in numbers])
    return table


def rate_table(
    found: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    seconds: float,
) -> Table:
    """Tubes, with their tasks by state and how many a second the verbs moved since `before`."""
    table = _table([*_STATES, *[f"{verb}/s" for verb in _VERBS]])
    for name, counts in found.items():
        cells = [f"{counts['tasks'][state]:,}" for state in _STATES]
        former = (before or {}).get(name)
        for verb in _VERBS:
            if former is None or seconds <= 0:
                cells.append("")
            else:
                cells.append(f"{(counts['calls'][verb] - former['calls'][verb]) / seconds:,.1f}")
        table.add_row(name, counts["type"], *cells)
    return table


def _calls(found: Mapping[str, Any]) -> list[str]:
    """The verbs that were called at all."""
    calls = [counts["calls"] for counts in found.values()]
    names = list(dict.fromkeys(name for counts in calls for name in counts))
    return [f"{name}" for name in names if any(counts.get(name) for counts in calls)]


def _table(numbers: list[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("tube")
    table.add_column("type")
    for name in numbers:
        table.add_column(name, justify="right")
    return table
