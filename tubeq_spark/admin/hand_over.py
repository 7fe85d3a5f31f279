"""Lets the native engine make all commits at a location on S3 to which Spark has committed so far.

A commit of Spark may be unfinished: its log store has noted it in DynamoDB, and its file is not in the log yet.
Only a read by Spark with that log store copies the file there. A commit of the native engine under the same
number would undo it, so all such commits are finished before the mark of the location is changed.

The tubes have been upgraded to the newest format before.

| step | stopped here, or its answer is lost | another program commits here |
|---|---|---|
| check for other sessions and other obstacles | nothing was written | it is refused later |
| Spark reads each table, and so finishes a commit | as before | as before |
| without such a log store: refuse if a commit is unfinished | as before | as before |
| Spark commits a property to each table | as before, with that property | one of the two conflicts, and begins anew |
| Spark reads the table again, the native engine compares the version | as before | the versions differ: refused |
| check again for other sessions, compare all versions, look for commits that are only noted | as before | refused |
| the native engine changes the mark by a conditional PUT | it is changed or not; the next call finds out | not seen |
| compare all versions and look for noted commits once more | it is changed | `StoreError`, which names the tables |

Until the mark is changed the location is Spark's, and the next call begins anew. Other queue objects read the
mark every four seconds and after each conflict (`Permission`), so one that was not stopped is refused then.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.admin.engines import engines_of
from tubeq_spark.errors import StoreError, TubeBusyError, TubeqError
from tubeq_spark.model.membership import MemberName
from tubeq_spark.observe.sessions import sessions_of
from tubeq_spark.storage.location import SESSIONS, TAKEN_UTUBES, TUBES, name_of
from tubeq_spark.storage.opened_location import WRITERS
from tubeq_spark.storage.tables.schema import FENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tubeq_spark.admin.engines import Engines
    from tubeq_spark.model.reports import SessionInfo
    from tubeq_spark.runtime.context import QueueContext
    from tubeq_spark.storage.engine import Tables
    from tubeq_spark.storage.opened_location import OpenedLocation
    from tubeq_spark.storage.tables.registry import Registry, TubeRecord

_STOP = "stop all programs of the queue, and upgrade it again"


@contextmanager
def telling_what_is_done(opened: OpenedLocation) -> Iterator[None]:
    """Add to errors before the mark is changed that the tubes are upgraded and the location stays Spark's."""
    try:
        yield
    except TubeqError as error:
        told = f"the tubes are upgraded, but {opened.uri} stays Spark's: {error}"
        error.args = (told, *error.args[1:])
        raise


def native_beside(queue: QueueContext, opened: OpenedLocation) -> Engines:
    """The native engine for a location that a queue object has opened by Spark.

    Raises:
        StoreError: The native engine cannot work there.
    """
    return engines_of(queue.require_spark().spark, opened.location, "native", None)


def finishes(queue: QueueContext, opened: OpenedLocation) -> bool:
    """Whether the session finishes the commits that its log store has noted elsewhere."""
    from tubeq_spark.storage.spark.open_location import (  # noqa: PLC0415  pyspark is optional
        commits_by_dynamodb,
    )

    return commits_by_dynamodb(queue.require_spark().spark, opened.uri)


@dataclass(frozen=True, slots=True)
class HandOver:
    """One hand-over of a location.

    Attributes:
        queue: A queue object whose row verbs are run by Spark.
        opened: Its location, which is Spark's.
        registry: The registry of the location.
        native: The tables there as the native engine sees them.
        finishes: The result of the function `finishes`.
    """

    queue: QueueContext
    opened: OpenedLocation
    registry: Registry
    native: Tables
    finishes: bool

    def require_possible(self) -> None:
        """Refuse before anything is written.

        Raises:
            TubeBusyError: Other sessions are alive.
            StoreError: The native engine could not work on all tubes, or not safely.
        """
        danger = self.native.overwrites(self.opened.location.text)
        if danger is not None:
            raise StoreError(danger)
        with_feeds = [r.name for r in self.registry.records() if _has_feed(r)]
        if with_feeds:
            msg = f"only Spark may commit to tubes with a feed of changes ({', '.join(with_feeds)})"
            raise StoreError(msg)
        for table in self._tables():
            features = self.native.unwritable(table)
            if features is not None:
                msg = (
                    f"the native engine does not write tables with {features}, as {name_of(table)}: switch it off "
                    "(ALTER TABLE … DROP FEATURE, or SET TBLPROPERTIES)"
                )
                raise StoreError(msg)
        own = MemberName.parse(self.queue.session.member).uuid
        self._refuse([each for each in sessions_of(self.queue, ()) if each.member != own])

    def finish(self) -> dict[str, int]:
        """Finish all commits of Spark; the location is Spark's as before.

        Returns:
            The version of the last commit to each table.

        Raises:
            TubeBusyError: Other programs work on the queue.
            StoreError: A commit cannot be finished, or the storage failed.
        """
        versions = {table: self._finish(table) for table in self._tables()}
        self._refuse(sessions_of(self.queue, ()))
        others = self._changed(versions)
        if others:
            raise _is_used(others)
        return versions

    def change_mark(self, versions: Mapping[str, int]) -> None:
        """Make the location the native engine's.

        Args:
            versions: The result of `finish`.

        Raises:
            TubeBusyError: Another program works on the queue; the location is Spark's as before.
            StoreError: The storage failed, and the next call finds out whether the mark was changed. Or the mark
                was changed, and another program committed meanwhile.
        """
        registry = self.opened.location.table(TUBES)
        try:
            is_changed = self.native.set_property(registry, WRITERS, "native")
        finally:
            # Further commits of this queue object are refused from now on, also if the answer was lost.
            self.queue.loop.look_again()
        if not is_changed:
            with telling_what_is_done(self.opened):
                raise _is_used([registry])
        others = self._changed({**versions, registry: versions[registry] + 1})
        if others:
            msg = (
                f"{self.opened.uri} was upgraded, but a program that was not stopped committed to "
                f"{_names(others)} at the same moment: stop it, and see whether its last tasks are there"
            )
            raise StoreError(msg)

    def _refuse(self, alive: Sequence[SessionInfo]) -> None:
        if alive:
            who = ", ".join(f"{each.uuid} ({each.host} pid {each.pid})" for each in alive)
            msg = f"sessions are alive at {self.opened.uri}: {who}; {_STOP} when their leases have ended"
            raise TubeBusyError(msg)

    def _tables(self) -> list[str]:
        """All tables, the registry last; also those of dropped tubes, which may be used again."""
        names = [*self.registry.names(), TAKEN_UTUBES, SESSIONS, TUBES]
        tables = map(self.opened.location.table, names)
        return [table for table in tables if self.queue.engine.tables.is_table(table)]

    def _finish(self, table: str) -> int:
        """Let Spark finish a commit that it has begun in a table, and return the version of its last commit."""
        tables = self.queue.engine.tables
        with self.queue.engine.reading():
            before, _ = tables.last_commit(table)
            if not self.finishes:
                self._require_finished(table)
            if not tables.set_property(table, FENCE, str(self.queue.now_us())):
                raise _is_used([table])
            version, _ = tables.last_commit(table)
        if not before + 1 == version == self.native.version(table):
            raise _is_used([table])
        self._require_finished(table)
        return version

    def _require_finished(self, table: str) -> None:
        """Refuse if a commit was begun and its file is not in the log."""
        begun = self.native.begun_by_spark(table, self.native.version(table) or 0)
        if begun:
            msg = (
                f"version {min(begun)} of {name_of(table)} was begun and is not in its log: stop all programs of "
                "the queue, and give the session the log store (spark.delta.logStore.….impl) with which they "
                "have committed"
            )
            raise StoreError(msg)

    def _changed(self, versions: Mapping[str, int]) -> list[str]:
        """The tables to which others have committed, or have begun to commit, since."""
        return [
            table
            for table, seen in versions.items()
            if self.native.version(table) != seen or self.native.begun_by_spark(table, seen)
        ]


def _has_feed(record: TubeRecord) -> bool:
    return record.options.change_feed


def _is_used(tables: Sequence[str]) -> TubeBusyError:
    return TubeBusyError(f"other programs commit to {_names(tables)}: {_STOP}")


def _names(tables: Sequence[str]) -> str:
    return ", ".join(sorted(name_of(table) for table in tables))
