"""The ratios that are aimed at."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BARS", "Bar"]


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio that is aimed at.

    Attributes:
        table: What the title of its table begins with.
        what: The measured thing; empty: each of the table.
        subject: The queue.
        reference: What it is beside.
        least: The least ratio, of rates.
        most: The greatest one, of times.
    """

    table: str
    what: str
    subject: str
    reference: str
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        return f"at most {self.most}" if self.least is None else f"at least {self.least}"

    def is_for(self, table: str, what: str) -> bool:
        """Whether it is for a measured thing of a table."""
        return table.startswith(self.table) and self.what in {"", what}

    def is_met(self, ratio: float) -> bool:
        """Whether a ratio meets it."""
        if self.least is not None and ratio < self.least:
            return False
        return self.most is None or ratio <= self.most


BARS = (
    Bar("One task", "put of 1, commit", "tubeq", "direct commits", most=1.6),
    Bar("One task", "take of 1, commit", "tubeq", "direct commits", most=2.2),
    Bar("One task", "ack of 1, commit", "tubeq", "direct commits", most=3.5),
    Bar("Threads", "take and ack, 64 threads", "tubeq, commit", "Postgres", least=0.6),
    Bar("Threads", "put, 32 threads", "tubeq, commit", "Postgres", least=0.6),
    Bar("Threads", "work, 8 threads", "tubeq, commit", "Postgres", least=1.5),
    Bar("Threads", "work, 8 processes of 8 threads", "tubeq, commit", "Postgres", least=2.0),
    Bar("Large batches", "", "tubeq, commit", "Postgres", least=1.5),
    Bar("Large batches", "", "tubeq, commit", "SQLite", least=1.5),
    Bar("Many waiting tasks", "take of 1, tubeq, commit", "many", "few", most=1.5),
    Bar("Spark", "put_df of 100,000", "tubeq", "bare statements", most=1.2),
    Bar("Spark", "take_df of 100,000", "tubeq", "bare statements", most=0.5),
    Bar("Spark", "ack of 100,000", "tubeq", "bare statements", most=0.1),
)
