"""The output of a crawl: a live line on a terminal, elsewhere one line for each batch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rich.console import Console

    from tubeq_spark.jobs.crawler.parts import Exclusivity
    from tubeq_spark.jobs.crawler.settings import Progress


class Screen:
    """Shows a crawl while it runs; a context manager."""

    def __init__(self, console: Console, limit: int | None) -> None:
        """Show on a console.

        Args:
            console: The console.
            limit: The wanted number of pages, if it is known.
        """
        self._console = console
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.fields[steps]}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("pages · {task.fields[rate]:.0f}/s · {task.fields[rest]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=limit, steps="starting", rate=0.0, rest="")
        self._steps: dict[int, str] = {}
        self._shown = ""
        self._started = time.monotonic()
        self._first: int | None = None

    def __enter__(self) -> Self:
        """Start showing."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop showing, and leave the terminal as it was."""
        self._bar.stop()

    def step(self, consumer: int, name: str) -> None:
        """Show that a consumer now does `name`."""
        # The mapping is replaced each time, because another thread may be reading the old one.
        self._steps = {**self._steps, consumer: name}
        steps = " | ".join(f"{step:<12}" for _, step in sorted(self._steps.items()))
        self._bar.update(self._task, steps=steps)

    def progress(self, progress: Progress) -> None:
        """Show the progress when a consumer has looked for a batch."""
        if self._first is None:
            self._first = progress.pages
        seconds = max(time.monotonic() - self._started, 0.001)
        rate = (progress.pages - self._first) / seconds
        states = ("ready", "taken", "delayed", "buried")
        depths = " ".join(f"{state} {progress.tasks[state]:,}" for state in states)
        rest = f"queue: {depths} · failures {progress.failures:,}"
        self._bar.update(self._task, completed=progress.pages, rate=rate, rest=rest)
        # A consumer that waits for a free host looks often, and sees the same.
        if self._bar.disable and self._shown != (shown := f"{progress.pages} {rest}"):
            self._shown = shown
            self._console.print(f"{progress.pages:,} pages · {rate:.0f}/s · {rest}", soft_wrap=True)


def host_table(hosts: Sequence[Mapping[str, Any]], seconds: float) -> Table:
    """A table of the fetches from each host; `seconds` is the time of the recent fetches."""
    table = Table(title="hosts", title_justify="left")
    table.add_column("host")
    for name in ("pages", "MB", "refusals", "failures", "tasks/s"):
        table.add_column(name, justify="right")
    for row in hosts:
        table.add_row(
            row["host"],
            f"{row['pages']:,}",
            f"{row['bytes'] / 1e6:,.1f}",
            f"{row['refusals']:,}",
            f"{row['failures']:,}",
            f"{row['recent'] / max(seconds, 0.001):,.1f}",
        )
    return table


def proof(exclusivity: Exclusivity) -> Text:
    """The sentence about whether one consumer at a time fetched from each host; in red if not."""
    facts = exclusivity
    sentence = (
        f"hosts fetched by two consumers at once: {facts.hosts:,} "
        f"(of {facts.fetches:,} fetches by {facts.consumers:,} consumers)"
    )
    if facts.hosts:
        wrong = f"WRONG: {sentence}, {facts.overlaps:,} fetches began during another consumer's"
        return Text(wrong, style="bold red")
    return Text(sentence)


def task_table(statistics: Mapping[str, Mapping[str, int]]) -> Table:
    """The tube's statistics."""
    table = Table(title="queue", title_justify="left")
    for name in ("tasks", "", "calls", ""):
        table.add_column(name, justify="right" if not name else "left")
    tasks = list(statistics["tasks"].items())
    calls = [(name, count) for name, count in statistics["calls"].items() if count]
    for number in range(max(len(tasks), len(calls))):
        cells = [pairs[number] if number < len(pairs) else ("", None) for pairs in (tasks, calls)]
        table.add_row(
            *[
                f"{cell:,}" if isinstance(cell, int) else cell or ""
                for pair in cells
                for cell in pair
            ]
        )
    return table
