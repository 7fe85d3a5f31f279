"""Counts the tasks that a commit ends, and their total in the log of a table.

A commit of the native engine has the new total in a `txn` action of Delta: it is written with the
commit or not at all, checkpoints keep it, and a snapshot has it without a read. In a MERGE of Spark
such an action would conflict with other commits. So its note has the number of ended tasks, and a
sweep adds these numbers to a separate total. Both totals have the tube's id in their names, so they
begin at zero in a table that is used for a new tube of the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.storage.statement import Affected

__all__ = ["FOR_EVER_MS", "TOTALS", "Ended", "told_total", "total"]

#: Both totals of a tube, and any others of other tubes, are under names that begin so.
TOTALS = "tubeq.done"
#: In place of the moment of a total, in milliseconds: 9999-12-31. Delta forgets what was written under an
#: id when `delta.setTransactionRetentionDuration` has passed since then, and a total must stay.
FOR_EVER_MS = 253_402_214_400_000


def total(tube: int) -> str:
    """The application id of the tasks of a tube that the native engine has ended."""
    return f"{TOTALS}/{tube}"


def told_total(tube: int) -> str:
    """The application id of the sum of Spark's notes of a tube.

    Its version is a multiple of the total, and some more (`ended_log`).
    """
    return f"{TOTALS}.spark/{tube}"


@dataclass(frozen=True, slots=True)
class Ended:
    """The number of tasks that a statement ends.

    Attributes:
        tube: The id of the tube.
        count: How many, where the statement changes all that it names or nothing; `None`: as many as
            the rows that it deletes.
        removed_in_feed: The segment that their rows move to, and nothing else; `None`: they are deleted.
    """

    tube: int
    count: int | None = None
    removed_in_feed: int | None = None

    def __str__(self) -> str:
        """The text in the note of a commit of Spark."""
        if self.count is not None:
            return f" ended={self.tube}:{self.count}"
        return f" ended={self.tube}:" + (
            "deleted" if self.removed_in_feed is None else f"in:{self.removed_in_feed}"
        )

    def total(
        self, affected: Affected, version_under: Callable[[str], int | None]
    ) -> tuple[str, int] | None:
        """The new total of a tube, with its application id; `None` if no task has ended.

        Args:
            affected: What the statement changes.
            version_under: The version that its table has under an application id.
        """
        number = self.count_of(affected)
        app = total(self.tube)
        return (app, (version_under(app) or 0) + number) if number else None

    def count_of(self, affected: Affected) -> int:
        """How many have ended, of a statement that was decided on one version."""
        if not affected.total:
            return 0
        return affected.deleted if self.count is None else self.count
