"""The bar that shows how far a long `tubeq put` is, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Bar"]


class Bar:
    """By bytes of a file, as its lines are not known; a context manager."""

    def __init__(self, size: int | None) -> None:
        """Show what is put of a file of so many bytes; `None` where that is not known."""
        self._size = size
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("put {task.fields[count]:,}"),
            BarColumn(bar_width=40),
            TextColumn("{task.percentage:3.0f} %" if size else ""),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("", total=size, count=0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, count: int, stream: BinaryIO) -> None:
        """So many tasks were put, and this is where the file is read."""
        done = stream.tell() if self._size else 0
        self._progress.update(self._task, count=count, completed=done)
