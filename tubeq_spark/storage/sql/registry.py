"""The registry: which tubes there are, with which id, type and options."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import StoreError, TubeNotFoundError
from tubeq_spark.rules import refusals
from tubeq_spark.rules.options import TubeOptions
from tubeq_spark.rules.refusals import no_queue
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.location import TUBES
from tubeq_spark.storage.outcome import is_missing_table
from tubeq_spark.storage.sql.noted import noted
from tubeq_spark.storage.sql.quoting import bigint, moment, path_of, string
from tubeq_spark.storage.sql.schema import FORMAT_VERSION
from tubeq_spark.storage.sql.system_table import SystemTable
from tubeq_spark.storage.statement import Affected, Clause, Statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Registry", "TubeRecord", "TubeStatus"]


class TubeStatus(StrEnum):
    """Whether a tube may be used.

    A tube whose name had another one before is *creating* until its table fits it: whoever comes
    upon it goes on with that.
    """

    CREATING = "creating"
    LIVE = "live"
    DROPPING = "dropping"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class TubeRecord:
    """A tube as the registry knows it.

    Attributes:
        name: Its name, as it was created.
        id: Unique for ever in this location.
        type: Name of its driver.
        options: What it was created with.
        status: Whether it may be used.
        created_us: When it was registered.
        owner: The session and epoch that a temporary tube ends with; `None`: nobody noted it.
    """

    name: str
    id: int
    type: str
    options: TubeOptions
    status: TubeStatus
    created_us: int
    owner: str | None = None


class Registry(SystemTable):
    """Reads and writes `_tubeq_tubes`."""

    def records(self) -> list[TubeRecord]:
        """All tubes that are not dropped.

        Raises:
            QueueNotFoundError: There is no registry any more.
            StoreError: A newer version of this package wrote the tables.
        """
        try:
            rows = self._engine.rows(
                "SELECT name, id, type, options, status, format_version, unix_micros(created) AS created "
                f"FROM {self._table} WHERE status <> {string(TubeStatus.DROPPED.value)}"
            )
        except Exception as error:
            if not is_missing_table(error):
                raise
            raise no_queue(
                (path_of(self._table) or self._table).removesuffix(f"/{TUBES}")
            ) from error
        newest = max((row["format_version"] for row in rows), default=FORMAT_VERSION)
        if newest > FORMAT_VERSION:
            msg = f"these tables have format version {newest}; this package knows {FORMAT_VERSION}"
            raise StoreError(msg)
        return [_record(row) for row in rows]

    def find(self, name: str) -> TubeRecord | None:
        """The tube whose name is `name` but for its case, if any."""
        folded = name.lower()
        return next((r for r in self.records() if r.name.lower() == folded), None)

    def live(self, name: str) -> TubeRecord:
        """The tube of exactly this name.

        Raises:
            TubeNotFoundError: There is none, or it is being dropped.
        """
        return self.as_live(name, self.find(name))

    @staticmethod
    def as_live(name: str, record: TubeRecord | None) -> TubeRecord:
        """What was found under a name, if it is a tube of exactly this name that may be used.

        Raises:
            TubeNotFoundError: It is not.
        """
        if record is None or record.name != name or record.status is not TubeStatus.LIVE:
            raise refusals.no_tube(name)
        return record

    def add(self, new: TubeRecord) -> bool:
        """Register a tube under a new id. One commit.

        Args:
            new: The tube; its id is ignored. As *live*, its name must never have been in use.

        Returns:
            False when the name is (or, as *live*, ever was) in use; nothing was written then.
        """
        others = f" AND t.status <> {string(TubeStatus.DROPPED.value)}"
        if new.status is TubeStatus.LIVE:
            others = ""
        name = string(new.name)

        def attempt() -> Plan[bool]:
            operation_id = self._operation_id()
            # The id is read in the same transaction: two creators cannot get the same one.
            source = f"(SELECT {name} AS name, coalesce(max(id), 0) + 1 AS id FROM {self._table})"
            row = {
                "name": "s.name",
                "id": "s.id",
                "type": string(new.type),
                "options": string(_options_text(new)),
                "status": string(new.status.value),
                "created": moment(new.created_us),
                "format_version": f"CAST({FORMAT_VERSION} AS INT)",
            }
            where = (
                f"{noted('t.id')} AND lower(t.name) = lower(s.name) "
                f"AND t.id <> {bigint(operation_id)}{others}"
            )
            statement = Statement(
                self._table, where, [Clause(row, inserts=True)], operation_id, source
            )
            return Plan(statement, lambda affected: affected.inserted == 1)

        return self._loop.run("create_tube", self._table_lock, attempt)

    def move(
        self,
        record: TubeRecord,
        before: Sequence[TubeStatus],
        after: TubeStatus,
        *,
        owner: str | None = None,
    ) -> None:
        """Change a tube's status. One commit.

        Args:
            record: The tube.
            before: The statuses that it may have.
            after: The one that it gets.
            owner: The session that it must still end with, if that matters.

        Raises:
            TubeNotFoundError: Its status is none of `before`, or its owner another one.
        """
        operation = "create_tube" if TubeStatus.CREATING in before else "drop"
        self._change(operation, record, before, {"status": string(after.value)}, owner)

    def own(self, record: TubeRecord, owner: str) -> TubeRecord:
        """Make a temporary tube end with another session. One commit.

        Raises:
            TubeNotFoundError: It is no longer live.
        """
        owned = replace(record, owner=owner)
        change = {"options": string(_options_text(owned))}
        self._change("own", record, (TubeStatus.LIVE,), change)
        return owned

    def _change(
        self,
        operation: str,
        record: TubeRecord,
        before: Sequence[TubeStatus],
        change: dict[str, str],
        owner: str | None = None,
    ) -> None:
        owned = "" if owner is None else f" AND instr(options, {string(owner)}) > 0"

        def attempt() -> Plan[None]:
            current = self.find(record.name)
            if (
                current is None
                or current.id != record.id
                or current.status not in before
                or owner not in (None, current.owner)
            ):
                msg = f"tube {record.name!r} is no longer {before[0].value}"
                raise TubeNotFoundError(msg)
            operation_id = self._operation_id()
            statuses = ", ".join(string(status.value) for status in before)
            where = (
                f"{noted('id')} AND id = {bigint(record.id)} AND status IN ({statuses})"
                f"{owned} AND id <> {bigint(operation_id)}"
            )
            return Plan(Statement(self._table, where, [Clause(change)], operation_id), self._one)

        self._loop.run(operation, self._table_lock, attempt)

    @staticmethod
    def _one(affected: Affected) -> None:
        if affected.total != 1:
            raise Stale


def _record(row: Mapping[str, Any]) -> TubeRecord:
    # Where the owner of a temporary tube was noted, it stands in the place of a plain "true": older
    # versions of this package read it as that.
    temporary = json.loads(row["options"]).get("temporary")
    owner = temporary if isinstance(temporary, str) else None
    return TubeRecord(
        row["name"],
        row["id"],
        row["type"],
        TubeOptions.from_json(row["options"]),
        TubeStatus(row["status"]),
        row["created"],
        owner,
    )


def _options_text(record: TubeRecord) -> str:
    text = record.options.to_json()
    if record.owner is None:
        return text
    return json.dumps(json.loads(text) | {"temporary": record.owner}, sort_keys=True)
