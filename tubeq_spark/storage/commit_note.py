"""The note of a commit in the history of its table: its verb, its session, its number of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NEWEST", "PATTERN", "Note", "newest_write"]

#: A note in the history.
PATTERN = r"tubeq operation=(\w+) session=([\w-]*) conflicts=(\d+)(?: tasks=(\d+))?"

#: How many of the newest commits are looked through for one that is a write.
NEWEST = 10
#: Commits that write no rows, as either engine calls them: they switch VACUUM's retention and remove files.
_CLEANING = frozenset(
    {"SET TBLPROPERTIES", "SET TABLE PROPERTIES", "VACUUM START", "VACUUM END", "METADATA CLEANUP"}
)


@dataclass(frozen=True, slots=True)
class Note:
    """The parts of a note that are known before the commit.

    Attributes:
        operation: What it is for: a verb, or what a sweep or a session does.
        session: Whose it is.
        conflicts: The number of lost conflicts before it.
        tasks: How many tasks it is about; `None`: what the statement changes.
    """

    operation: str
    session: str = ""
    conflicts: int = 0
    tasks: int | None = None

    def __str__(self) -> str:
        text = f"tubeq operation={self.operation} session={self.session} conflicts={self.conflicts}"
        return text if self.tasks is None else f"{text} tasks={self.tasks}"


def newest_write(commits: Sequence[tuple[str, int]]) -> int:
    """The time of the last commit to a table, except those of VACUUM.

    Args:
        commits: Operation and moment of the newest commits, the newest first; at least one.

    Returns:
        The moment of the newest write or, where all of them cleaned, of the oldest of them.
    """
    written = (at for operation, at in commits if operation not in _CLEANING)
    return next(written, commits[-1][1])
