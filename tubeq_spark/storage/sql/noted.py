"""The place of a commit's note in a statement, from where it comes into the history of the table.

Delta has a place for it, the user metadata of a commit. A writer sets it as an option. A MERGE, an
UPDATE or a DELETE takes it from a setting of the Spark session, which all threads of the session
share, the program's own included. So the note of these stands in their predicate, which the history
shows, too: as a condition on a partition column that is always true and that no optimiser can see
through. It costs nothing, and two statements at once cannot get each other's.
"""

from __future__ import annotations

__all__ = ["noted"]


def noted(column: str) -> str:
    """The place of the note in a statement: a condition on a partition column that always holds.

    Only on partition columns: a DELETE of whole partitions must stay one of metadata only.
    """
    return f"CAST({column} AS STRING) <> {{note}}"
