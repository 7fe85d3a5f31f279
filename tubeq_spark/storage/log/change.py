"""The change of a table that one commit makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.ended import FOR_EVER_MS
from tubeq_spark.storage.log.actions import Actions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.log.snapshot import Shape, Snapshot


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one commit.

    Attributes:
        user_metadata: Its user metadata.
        rows: New rows; `None` if there are none.
        gone: Removed files.
        once: An application id, and the version that is written under it, if any.
        total: The same for a total of ended tasks, which never expires.
        operation_id: The id in `user_metadata` that no other commit has.
        on: Makes the same change for a later version than it was decided on, with the same rows and files;
            `None` if it must be decided anew.
        written: Added files that were written before.
        order: The order in which the rows that stay in their partitions are read next; empty if there is none.
        shape: The new columns and properties of the table; `None` if they stay.
        operation: Its name in the history; `None` is that of a write or a removal.
    """

    user_metadata: str
    rows: pa.Table | None = None
    gone: Sequence[DataFile] = ()
    once: tuple[str, int] | None = None
    total: tuple[str, int] | None = None
    operation_id: int = 0
    on: Callable[[Snapshot], Change | None] = lambda _: None
    written: Sequence[DataFile] = ()
    order: Sequence[str] = ()
    shape: Shape | None = None
    operation: str | None = None

    def transactions(self, now_ms: int) -> dict[str, tuple[int, int | None]]:
        """The transaction versions of application ids, with their times for Spark's expiry."""
        found: dict[str, tuple[int, int | None]] = {}
        if self.once is not None:
            found[self.once[0]] = (self.once[1], now_ms)
        if self.total is not None:
            found[self.total[0]] = (self.total[1], FOR_EVER_MS)
        return found

    def actions(
        self, added: Sequence[DataFile], before: int, now_ms: int
    ) -> list[Mapping[str, Any]]:
        """The lines of its log, with the commit info in the words of the library.

        Args:
            added: The files of its rows, and `written`.
            before: The version on which it is committed.
            now_ms: The moment, in milliseconds since 1970.
        """
        count = sum(file.rows or 0 for file in added)
        info: dict[str, Any] = {
            "timestamp": now_ms,
            "operation": self.operation or ("WRITE" if added else "DELETE"),
            "operationParameters": {"mode": "Overwrite" if self.gone else "Append"}
            if added
            else {},
            "operationMetrics": {
                "num_added_files": len(added),
                "num_removed_files": len(self.gone),
                "num_added_rows": count,
            },
            "engineInfo": "tubeq_spark",
            "userMetadata": self.user_metadata,
        }
        if before >= 0:
            info["readVersion"] = before
        found: list[Mapping[str, Any]] = [{"commitInfo": info}]
        if self.shape is not None and before < 0:
            found.append({"protocol": self.shape.protocol})
        if self.shape is not None:
            found.append({"metaData": self.shape.metadata})
        found += [
            {"txn": {"appId": app, "version": version, "lastUpdated": at_ms}}
            for app, (version, at_ms) in self.transactions(now_ms).items()
        ]
        found += [file.removed(now_ms) for file in self.gone]
        found += [file.added() for file in added]
        return found

    def after(self, added: Sequence[DataFile], now_ms: int) -> Actions:
        """What its readers find in the log. Arguments as for `actions`."""
        removes = [file.removed(now_ms)["remove"] for file in self.gone]
        metadata = None if self.shape is None else self.shape.metadata
        return Actions(list(added), removes, self.transactions(now_ms), metadata)
