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

from tubeq_spark.storage.durability.synced_log import synced_log_of
from tubeq_spark.storage.log.facts import BEGINNING, Contents, LogFacts
from tubeq_spark.storage.store.local_store import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.storage.statement import Affected

#: The moment of a total, in milliseconds: 9999-12-31. Delta removes a transaction id
#: `delta.setTransactionRetentionDuration` after its moment, and a total must stay.
FOR_EVER_MS = 253_402_214_400_000
#: The most attempts to read a log from which others remove commits meanwhile.
_TRIES = 5


def total(tube: int) -> str:
    """The application id of the total of tasks that the native engine has ended in a tube."""
    return f"tubeq.done/{tube}"


@dataclass(frozen=True, slots=True)
class Ended:
    """The number of tasks that a statement ends.

    Attributes:
        tube: The id of the tube.
        count: The number, if the statement changes all rows that it names or none. `None`: the number of rows that
            it deletes or turns into gone rows.
        all_changed: Whether all rows that it changes are of ended tasks.
    """

    tube: int
    count: int | None = None
    all_changed: bool = False

    def count_of(self, affected: Affected) -> int:
        """The number of ended tasks, from the rows that the statement has changed."""
        if not affected.total:
            return 0
        if self.count is not None:
            return self.count
        return affected.deleted + (affected.updated if self.all_changed else affected.kept)


def native_total(table: Path, tube: int) -> int:
    """The total of a tube in the log of a table on this host, whatever features the readers of the table need.

    Raises:
        OSError: The log cannot be read.
    """
    for _ in range(_TRIES):
        facts = LogFacts.listed(LocalStore(synced_log_of(table)))
        begins = (v for v in sorted(facts.parts, reverse=True) if facts.checkpoint(v, ["txn"]))
        start = next(begins, BEGINNING)
        state = facts.states.get(start, Contents())
        for version in facts.versions:
            commit = facts.commit(version) if version > start else None
            if commit is not None:
                state.apply(commit)
        if facts.files and not facts.is_outdated:
            return state.transactions.get(total(tube), (0, None))[0]
    raise FileNotFoundError(str(table))
