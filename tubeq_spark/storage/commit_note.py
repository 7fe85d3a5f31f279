"""What a commit says of itself in the history of its table: which verb, which session, of how many tasks."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PATTERN", "Note"]

#: A note in the history.
PATTERN = r"tubeq operation=(\w+) session=([\w-]*) conflicts=(\d+)(?: tasks=(\d+))?"


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of a commit before it is made.

    Attributes:
        operation: What it is for: a verb, or what a sweep or a session does.
        session: Whose it is.
        conflicts: How often it had to begin anew before.
        tasks: How many tasks it is about; `None`: what the statement changes.
    """

    operation: str
    session: str = ""
    conflicts: int = 0
    tasks: int | None = None

    def __str__(self) -> str:
        text = f"tubeq operation={self.operation} session={self.session} conflicts={self.conflicts}"
        return text if self.tasks is None else f"{text} tasks={self.tasks}"
