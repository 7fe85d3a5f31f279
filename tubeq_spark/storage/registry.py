"""The registry: which tubes there are, with which id, type and options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError, TubeNotFoundError
from tubeq_spark.options import TubeOptions
from tubeq_spark.storage.commit import Plan, Stale
from tubeq_spark.storage.engine import Affected, Merge
from tubeq_spark.storage.notes import noted
from tubeq_spark.storage.quoting import bigint, moment, string
from tubeq_spark.storage.schema import FORMAT_VERSION
from tubeq_spark.storage.system_table import SystemTable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Registry", "TubeRecord", "TubeStatus"]


class TubeStatus(StrEnum):
    """Whether a tube may be used."""

    LIVE = "live"
    DROPPING = "dropping"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class TubeRecord:
    """A tube as the registry knows it."""

    name: str
    id: int
    type: str
    options: TubeOptions
    status: TubeStatus
    created_us: int


class Registry(SystemTable):
    """Reads and writes `_tubeq_tubes`."""

    _kept: list[TubeRecord] | None = None

    def keep(self, records: list[TubeRecord]) -> None:
        """Have the next look find what one that was just made has found, at no cost."""
        self._kept = records

    def records(self) -> list[TubeRecord]:
        """All tubes that are not dropped.

        Raises:
            StoreError: A newer version of this package wrote the tables.
        """
        kept, self._kept = self._kept, None
        return self._read() if kept is None else kept

    def _read(self) -> list[TubeRecord]:
        rows = self._engine.rows(
            "SELECT name, id, type, options, status, format_version, unix_micros(created) AS created "
            f"FROM {self._table} WHERE status <> {string(TubeStatus.DROPPED.value)}"
        )
        newest = max((row["format_version"] for row in rows), default=FORMAT_VERSION)
        if newest > FORMAT_VERSION:
            msg = f"these tables have format version {newest}; this package knows {FORMAT_VERSION}"
            raise StoreError(msg)
        return [
            TubeRecord(
                row["name"],
                row["id"],
                row["type"],
                TubeOptions.from_json(row["options"]),
                TubeStatus(row["status"]),
                row["created"],
            )
            for row in rows
        ]

    def find(self, name: str) -> TubeRecord | None:
        """The tube whose name is `name` but for its case, if any."""
        folded = name.lower()
        return next((r for r in self.records() if r.name.lower() == folded), None)

    def live(self, name: str) -> TubeRecord:
        """The tube of exactly this name.

        Raises:
            TubeNotFoundError: There is none, or it is being dropped.
        """
        record = self.find(name)
        if record is None or record.name != name or record.status is not TubeStatus.LIVE:
            msg = f"no tube named {name!r}"
            raise TubeNotFoundError(msg)
        return record

    def add(self, name: str, type_name: str, options: TubeOptions, now_us: int) -> bool:
        """Register a tube under a new id; False when the name is in use by now. One commit."""

        def attempt() -> Plan[bool]:
            marker = self._marker()
            # The id is read in the same transaction: two creators cannot get the same one.
            source = (
                f"SELECT {string(name)} AS name, coalesce(max(id), 0) + 1 AS id FROM {self._table}"
            )
            sql = (
                f"MERGE INTO {self._table} t USING ({source}) s "
                f"ON {noted('t.id')} AND lower(t.name) = lower(s.name) AND t.id <> {bigint(marker)} "
                f"AND t.status <> {string(TubeStatus.DROPPED.value)} "
                "WHEN NOT MATCHED THEN INSERT "
                "(name, id, type, options, status, created, format_version) VALUES "
                f"(s.name, s.id, {string(type_name)}, {string(options.to_json())}, "
                f"{string(TubeStatus.LIVE.value)}, {moment(now_us)}, CAST({FORMAT_VERSION} AS INT))"
            )
            return Plan(Merge(self._table, sql, marker), lambda affected: affected.inserted == 1)

        return self._loop.run("create_tube", self._lane, attempt)

    def move(self, record: TubeRecord, before: Sequence[TubeStatus], after: TubeStatus) -> None:
        """Change a tube's status. One commit.

        Raises:
            TubeNotFoundError: Its status is none of `before`.
        """

        def attempt() -> Plan[None]:
            current = self.find(record.name)
            if current is None or current.id != record.id or current.status not in before:
                msg = f"tube {record.name!r} is no longer {before[0].value}"
                raise TubeNotFoundError(msg)
            marker = self._marker()
            statuses = ", ".join(string(status.value) for status in before)
            sql = (
                f"UPDATE {self._table} SET status = {string(after.value)} "
                f"WHERE {noted('id')} AND id = {bigint(record.id)} AND status IN ({statuses}) "
                f"AND id <> {bigint(marker)}"
            )
            return Plan(Merge(self._table, sql, marker), self._one)

        self._loop.run("drop", self._lane, attempt)

    @staticmethod
    def _one(affected: Affected) -> None:
        if affected.total != 1:
            raise Stale
