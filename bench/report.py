"""Writes what was measured as one page of Markdown: ratios first."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import sqlite3
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.bars import BARS
from bench.measure import Samples, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Comparison", "Page", "shown"]

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("tubeq-spark", "pyarrow", "deltalake", "obstore", "pyspark", "delta-spark", "psycopg")


@dataclass(slots=True)
class Comparison:
    """A table of the page.

    Attributes:
        title: Its title.
        unit: Of the figures, as "ms".
        references: The subjects to which the table has ratios.
        note: What a reader has to know.
        samples: What was measured.
    """

    title: str
    unit: str
    references: Sequence[str]
    note: str = ""
    samples: Samples = field(default_factory=Samples)

    def lines(self) -> Iterator[str]:
        """The table in Markdown."""
        yield f"### {self.title}"
        yield ""
        if self.note:
            yield self.note
            yield ""
        figures = self.samples.figures
        measured = {name for of_what in figures.values() for name in of_what}
        references = [name for name in self.references if name in measured]
        others = list(dict.fromkeys(what.partition(" | ")[2] for what in figures if " | " in what))
        head = ["what", "queue", *(f"to {reference}" for reference in references)]
        yield from _row([*head, f"median {self.unit}", "quartiles", "n", *others])
        yield from _row(["---", "---", *["---:"] * (len(references) + 3 + len(others))])
        for what in self._measured():
            for subject, values in figures[what].items():
                spread = Spread.of(values)
                found = [self.samples.ratio(what, subject, name) for name in references]
                ratios = ["" if ratio is None else f"{ratio:.2f}" for ratio in found]
                between = f"{shown(spread.low)} to {shown(spread.high)}"
                cells = [what, subject, *ratios, shown(spread.median), between, str(spread.n)]
                for other in others:
                    also = figures.get(f"{what} | {other}", {}).get(subject)
                    cells.append(shown(Spread.of(also).median) if also else "")
                yield from _row(cells)
        yield ""

    def _measured(self) -> list[str]:
        """What was measured, without the other figures of the same calls."""
        return [what for what in self.samples.figures if " | " not in what]

    def goals(self) -> Iterator[list[str]]:
        """The ratios that have a bar: what, which subjects, the ratio, the bar, whether it is met."""
        for what in self._measured():
            for bar in BARS:
                if bar.is_for(self.title, what) and bar.subject in self.samples.figures[what]:
                    ratio = self.samples.ratio(what, bar.subject, bar.reference)
                    if ratio is not None:
                        yield [
                            f"{self.title}: {what}",
                            f"{bar.subject} / {bar.reference}",
                            f"{ratio:.2f}",
                            str(bar),
                            "met" if bar.is_met(ratio) else "missed",
                        ]


@dataclass(slots=True)
class Page:
    """All that a run found.

    Attributes:
        command: The command line.
        queues: A sentence for each queue: its version, and what a power cut loses.
        skipped: A sentence for each that is not here.
        failed: A sentence for each group that has failed.
        comparisons: The tables.
        stopped: Whether the run was ended before everything was measured.
    """

    command: str
    queues: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, None] = field(default_factory=dict)
    failed: dict[str, None] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    stopped: bool = False
    _began: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    _load: float = field(default_factory=lambda: os.getloadavg()[0])

    def compare(self, title: str, unit: str, references: Sequence[str], note: str = "") -> Samples:
        """Begin a table; returns where to add its figures. Arguments as of `Comparison`."""
        found = Comparison(title, unit, references, note)
        self.comparisons.append(found)
        return found.samples

    def text(self) -> str:
        """The page."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        full = [each for each in self.comparisons if each.samples.figures]
        yield "## Benchmark"
        yield ""
        yield f"`{self.command}`, {self._began:%Y-%m-%d %H:%M} UTC, commit {_commit()}."
        yield _machine(self._load)
        yield "A ratio is the median of the ratios of the rounds; the subjects took turns in each."
        if self.stopped:
            yield "**Stopped before everything was measured.**"
        yield from (f"**{sentence}**" for sentence in self.failed)
        yield ""
        goals = [goal for each in full for goal in each.goals()]
        if goals:
            yield "### Ratios that have a bar, for an idle machine with two cores"
            yield ""
            yield from _row(["what", "which", "ratio", "bar", ""])
            yield from _row(["---", "---", "---:", "---:", "---"])
            for goal in goals:
                yield from _row(goal)
            yield ""
        for each in full:
            yield from each.lines()
        if self.queues or self.skipped:
            yield "### What a power cut loses"
            yield ""
            yield from (f"- {name}: {about}." for name, about in self.queues.items())
            yield from (f"- {sentence}" for sentence in self.skipped)
            yield ""


def shown(value: float) -> str:
    """A figure with three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _row(cells: Sequence[str]) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"


def _machine(load: float) -> str:
    versions = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    system = (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}"
    )
    return f"{system}, load {load:.1f} to {os.getloadavg()[0]:.1f}. {', '.join(versions)}."


def _commit() -> str:
    """The commit of the checkout."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True
        ).stdout.strip()
    return "unknown"
