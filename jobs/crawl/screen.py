"""The output of a crawl: a live line on a terminal, elsewhere one line for each batch."""

from __future__ import annotations

import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rich.console import Console

    from crawl.pages import Proof
    from tubeq_spark import UtubeCounts


class Screen:
    """Shows a crawl while it runs; a context manager."""

    def __init__(self, console: Console, limit: int | None) -> None:
        """Show on a console.

        Args:
            console: The console.
            limit: The wanted number of pages, if it is known.
        """
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[steps]}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("pages · {task.fields[rest]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=limit, steps="starting", rest="")
        self._steps: dict[int, str] = {}
        self._shown = ""
        self._started = time.monotonic()

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

    def progress(self, pages: int, hosts: Sequence[UtubeCounts]) -> None:
        """Show the stored pages and the tasks of each host when a consumer has looked for a batch."""
        states = ("ready", "taken", "delayed", "buried")
        counts = [(state, sum(getattr(host, state) for host in hosts)) for state in states]
        rest = "queue: " + " ".join(f"{state} {count:,}" for state, count in counts)
        self._bar.update(self._task, completed=pages, rest=rest)
        # A consumer that waits for a free host looks often, and sees the same.
        if self._bar.disable and self._shown != (shown := f"{pages:,} pages · {rest}"):
            self._shown = shown
            seconds = time.monotonic() - self._started
            self._console.print(f"{seconds:4.1f} s · {shown}", soft_wrap=True)


def host_table(hosts: Sequence[Mapping[str, Any]]) -> Table:
    """A table of the fetches from each host."""
    table = Table(title="hosts", title_justify="left")
    table.add_column("host")
    for name in ("pages", "MB", "refusals", "failures"):
        table.add_column(name, justify="right")
    for row in hosts:
        table.add_row(
            row["host"],
            f"{row['pages']:,}",
            f"{row['bytes'] / 1e6:,.1f}",
            f"{row['refusals']:,}",
            f"{row['failures']:,}",
        )
    return table


def proof_text(proof: Proof) -> Text:
    """The sentences on what the page table proves; in red if it disproves one."""
    sentences = (
        f"pages fetched twice: {proof.twice:,} (of {proof.urls:,})\n"
        f"hosts fetched by two consumers at once: {proof.shared:,} "
        f"(of {proof.fetches:,} fetches by {proof.consumers:,} consumers)"
    )
    return Text(sentences) if proof.holds else Text(f"WRONG: {sentences}", style="bold red")


def task_table(statistics: Mapping[str, Mapping[str, int]]) -> Table:
    """The tube's statistics."""
    table = Table(title="queue", title_justify="left")
    for name in ("tasks", "", "calls", ""):
        table.add_column(name, justify="right" if not name else "left")
    tasks = list(statistics["tasks"].items())
    calls = [(name, count) for name, count in statistics["calls"].items() if count]
    for (state, count), (call, made) in zip_longest(tasks, calls, fillvalue=("", 0)):
        table.add_row(state, f"{count:,}" if state else "", call, f"{made:,}" if call else "")
    return table
