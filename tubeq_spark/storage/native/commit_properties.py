"""The options of a commit for the library: its user metadata, and its number of attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import CommitProperties, Transaction

from tubeq_spark.clock import SystemClock
from tubeq_spark.rules.microseconds import to_us
from tubeq_spark.storage.ended import FOR_EVER_MS
from tubeq_spark.storage.location import local_directory

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["is_far", "saying"]


def is_far(snapshot: DeltaTable) -> bool:
    """Whether a table is on remote storage, whose answers can be lost."""
    return local_directory(snapshot.table_uri) is None


def saying(
    snapshot: DeltaTable,
    said: str,
    once: tuple[str, int] | None = None,
    *,
    total: tuple[str, int] | None = None,
    at_once: bool = False,
) -> CommitProperties:
    """The properties of a commit; `at_once`: it becomes the next version, or fails.

    So is each on an object store: of a commit that is there, and whose answer was lost, the library would
    make one more version. Elsewhere it may land behind commits of others, but not
    behind one that has written the same total.

    Args:
        snapshot: The version that it is committed on.
        said: What it says, as user metadata.
        once: Version that it writes under an id of an application.
        total: The same of a total, which stays for ever.
        at_once: Whether it must be the next version.
    """
    milliseconds = to_us(SystemClock().now()) // 1_000
    # To Spark one without a moment has expired at once.
    transactions = [Transaction(*once, milliseconds)] if once is not None else []
    transactions += [Transaction(*total, FOR_EVER_MS)] if total is not None else []
    return CommitProperties(
        custom_metadata={"userMetadata": said},
        max_commit_retries=0 if at_once or is_far(snapshot) else None,
        app_transactions=transactions or None,
    )
