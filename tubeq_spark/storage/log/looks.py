"""How the log of a table differs between storages: how new commits are found, and how long old ones are kept."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.ended import first_note
from tubeq_spark.storage.locks.lock_file import without_readers
from tubeq_spark.storage.log.actions import hours_of
from tubeq_spark.storage.log.log_files import KEPT_HOURS
from tubeq_spark.storage.tables.schema import CHANGE_FEED, LOG_RETENTION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from tubeq_spark.storage.durability.synced_log import SyncedLog


@dataclass(frozen=True, slots=True)
class Looks:
    """How a log finds the commits of others.

    Attributes:
        is_far: Whether each look costs a request, so that one serves all reads of an operation. Then no lock keeps
            other writers away, and a commit may arrive after its request was given up.
        ahead: How many commits one look asks for at the same time at most.
        sure: For so many seconds a version counts as being in the log without a check.
        lately: For so many seconds a removal takes the known version for the newest one.
        lately_beside_others: The same if others commit, too. A rival's commit then costs a failed PUT.
    """

    is_far: bool
    ahead: int = 1
    sure: float = 0.0
    lately: float = 0.0
    lately_beside_others: float = 0.0


#: Files of this host, or in memory.
NEAR = Looks(is_far=False)
#: An object store.
FAR = Looks(is_far=True, ahead=16, sure=60.0, lately=10.0, lately_beside_others=0.25)


class Retention(Protocol):
    """How long the commits of a table stay in its log."""

    @property
    def versions(self) -> int:
        """So many of the newest versions stay in any case."""
        ...

    @property
    def page(self) -> int | None:
        """How many files are listed at once; `None` for all."""
        ...

    def seconds(self, properties: Mapping[str, str | None]) -> AbstractContextManager[float | None]:
        """For how many seconds commits stay while a block runs; `None` if none may be removed."""
        ...

    def first_needed(self, version: int, before: float) -> int | None:
        """The first version before `version` that must stay for another reason; `None` if none must."""
        ...

    def secure(self) -> None:
        """Put the rest of the log on the disk, before a part of it goes."""
        ...


class StoreRetention:
    """The retention on an object store: that of the table, and at least `KEPT_HOURS`."""

    versions = 0
    page = 1_000

    @staticmethod
    @contextmanager
    def seconds(properties: Mapping[str, str | None]) -> Iterator[float | None]:
        """For how many seconds commits stay."""
        hours = hours_of(properties, LOG_RETENTION)
        yield None if hours is None else max(hours, KEPT_HOURS) * 3600.0

    @staticmethod
    def first_needed(version: int, before: float) -> None:
        """Return `None`."""
        del version, before

    def secure(self) -> None:
        """Do nothing: the store is durable by itself."""


class LocalRetention:
    """The retention on local files.

    Nobody needs old commits there. Writers hold the table's lock from their read to their commit. Readers without Spark
    keep a version in memory, and need the log while they open a table or move to a newer version; if they were paused
    for longer than commits stay, they try again. Spark needs the log while it plans a statement, which may take long:
    if a process of this host reads by Spark, more is kept. If a tube has a longer retention than the default, or a
    change feed, the log is kept for all of that time.
    """

    #: Verbs search so many versions after lost answers.
    versions = 200
    page = None
    #: Commits of the last so many seconds stay: a reader needs less time to list a log and to read the listed files.
    SECONDS = 5.0
    #: The same where Spark reads.
    SPARK_SECONDS = 600.0
    #: The hours of the default retention.
    _DEFAULT_HOURS = 2
    #: Notes that no sweep has added up, such as those of a dropped tube, are removed after so many seconds.
    _NOTE_SECONDS = 7 * 86_400.0

    def __init__(self, synced: SyncedLog) -> None:
        """Keep a log."""
        self._synced, self._locks = synced, synced.table.parent / LOCKS

    @contextmanager
    def seconds(self, properties: Mapping[str, str | None]) -> Iterator[float | None]:
        """For how many seconds commits stay while a block runs. No process begins to read by Spark meanwhile."""
        hours = hours_of(properties, LOG_RETENTION)
        with without_readers(self._locks) as unread:
            if hours is None:
                yield None
            elif properties.get(CHANGE_FEED) == "true" or hours > self._DEFAULT_HOURS:
                yield hours * 3600.0
            else:
                yield self.SECONDS if unread else self.SPARK_SECONDS

    def first_needed(self, version: int, before: float) -> int | None:
        """The first version whose note of ended tasks a sweep must still add up."""
        first = first_note(self._synced.log, version)
        if first is None:
            return None
        written = (self._synced.log / f"{first:020}.json").stat().st_mtime
        return None if written < before - self._NOTE_SECONDS else first

    def secure(self) -> None:
        """Sync all commits to the disk.

        Raises:
            OSError: They may not be on the disk.
        """
        self._synced.flush()
