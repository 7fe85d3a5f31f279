"""The numbers of tasks that commits end.

A commit of the native engine has the new total in a `txn` action of Delta: the action is written with the
commit or not at all, checkpoints keep it, and a snapshot has it without a further read. The total has the tube's
id in its name, so it begins at zero in a table that is used for a new tube of the same name.

In a MERGE of Spark such an action would conflict with other commits. So the session of the queue object counts the
tasks that commits of Spark end, as it counts calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubeq_spark.storage.statement import Affected

#: The moment of a total, in milliseconds: 9999-12-31. Delta removes a transaction id
#: `delta.setTransactionRetentionDuration` after its moment, and a total must stay.
FOR_EVER_MS = 253_402_214_400_000


def total(tube: int) -> str:
    """The application id of the total of tasks that the native engine has ended in a tube."""
    return f"tubeq.done/{tube}"


@dataclass(frozen=True, slots=True)
class Ended:
    """The number of tasks that a statement ends.

    Attributes:
        tube: The id of the tube.
        count: The number, if the statement changes all rows that it names or none. `None`: the number of removed rows.
    """

    tube: int
    count: int | None = None

    def count_of(self, affected: Affected) -> int:
        """The number of ended tasks, from the rows that the statement has changed."""
        if not affected.total:
            return 0
        return affected.deleted if self.count is None else self.count
