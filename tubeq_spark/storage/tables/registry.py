"""The registry: the tubes of the location, with their ids, types and options."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import TubeNotFoundError
from tubeq_spark.model import refusals
from tubeq_spark.model.options import TubeOptions
from tubeq_spark.model.refusals import no_queue
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.expression import (
    Contains,
    Lower,
    Micros,
    all_of,
    any_of,
    at,
    literal,
    row,
)
from tubeq_spark.storage.location import TUBES, path_of
from tubeq_spark.storage.outcome import is_missing_table
from tubeq_spark.storage.query import Select, count_if, greatest, named
from tubeq_spark.storage.statement import ONE_ROW, Affected, Clause, Statement
from tubeq_spark.storage.tables.system_table import SystemTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.storage.expression import Expression, Row

_ROW, _T = row(), row("t")
#: The key, among the stored options, of a paused tube.
_PAUSED = "paused"


class TubeStatus(StrEnum):
    """Whether a tube may be used."""

    LIVE = "live"
    DROPPING = "dropping"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class TubeRecord:
    """The record of a tube in the registry.

    Attributes:
        name: Its name, as it was created.
        table: The name of its table, which no other tube of this location ever has.
        id: Its id, which no other tube of this location ever has.
        type: The name of its driver.
        options: Its options.
        status: Whether it may be used.
        created_us: The moment at which it was registered.
        owner: The session and epoch with which a temporary tube ends; `None` if they were not noted.
        paused: Whether takes find nothing.
        text: Its options as they are stored.
    """

    name: str
    table: str
    id: int
    type: str
    options: TubeOptions
    status: TubeStatus
    created_us: int
    owner: str | None = None
    paused: bool = False
    text: str = field(default="", compare=False)

    @property
    def limits(self) -> tuple[object, ...]:
        """The options that limit takes, for comparing two records."""
        return self.options.parallel, self.options.rate, self.options.most_taken


class Registry(SystemTable):
    """Reads and writes `_tubeq_tubes`."""

    def records(self) -> list[TubeRecord]:
        """All tubes that are not dropped.

        Raises:
            QueueNotFoundError: The registry was removed.
        """
        return self._read(_ROW.status != TubeStatus.DROPPED.value)

    def with_dropped(self) -> list[TubeRecord]:
        """All tubes, including dropped ones; errors as for `records`."""
        return self._read()

    def _read(self, where: Expression | None = None) -> list[TubeRecord]:
        columns = named("name", "table_name", "id", "type", "options", "status")
        columns["created"] = Micros(_ROW.created)
        try:
            rows = self._engine.rows(Select(self._table, columns, where))
        except Exception as error:
            if not is_missing_table(error):
                raise
            raise no_queue(
                (path_of(self._table) or self._table).removesuffix(f"/{TUBES}")
            ) from error
        return [_record(each) for each in rows]

    def find(self, name: str) -> TubeRecord | None:
        """The tube whose name is `name`, ignoring case, if any."""
        folded = name.lower()
        return next((r for r in self.records() if r.name.lower() == folded), None)

    def version(self, known: int) -> int | None:
        """The newest version of the registry, if it is cheap to get; else `None`.

        Args:
            known: A version that the registry had; -1 if none is known.
        """
        synced = self._table_lock.synced
        if synced is not None:
            return synced.newest_since(known)
        return self._engine.tables.version(self._table)

    def live(self, name: str) -> TubeRecord:
        """The tube of exactly this name.

        Raises:
            TubeNotFoundError: No tube has this name, or it is being dropped.
        """
        record = self.find(name)
        if record is None or record.name != name or record.status is not TubeStatus.LIVE:
            raise refusals.no_tube(name)
        return record

    def add(self, new: TubeRecord) -> TubeRecord | None:
        """Register a live tube under a new id. One commit.

        Args:
            new: The tube; its id is ignored.

        Returns:
            The tube; `None` if its name is in use, or a tube has ever had its table. Then nothing was written.
        """
        text = _options_text(new)
        columns = {
            "last": greatest(_ROW.id),
            "taken": count_if(_excludes(_ROW, new)),
        }

        def attempt() -> Plan[TubeRecord | None]:
            operation_id = self._operation_id()
            found = self._engine.rows(Select(self._table, columns))[0]
            if found["taken"]:
                return Plan(None, lambda _: None)
            number = (found["last"] or 0) + 1
            record: dict[str, Expression] = {
                "name": literal(new.name),
                "table_name": literal(new.table),
                "id": literal(number),
                "type": literal(new.type),
                "options": literal(text),
                "status": literal(TubeStatus.LIVE.value),
                "created": at(new.created_us),
            }
            # The statement inserts nothing if a program has registered the name, the table or the id since the read.
            statement = Statement(
                self._table,
                any_of(_excludes(_T, new), _T.id >= number) & (_T.id != operation_id),
                [Clause(record, inserts=True)],
                operation_id,
                _T.id,
                ONE_ROW,
            )

            def finish(affected: Affected) -> TubeRecord:
                self._one_inserted(affected)
                return replace(new, id=number, options=TubeOptions.from_json(text), text=text)

            return Plan(statement, finish)

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
            after: The new status.
            owner: The session with which it must still end, if that matters.

        Raises:
            TubeNotFoundError: Its status is none of `before`, or it has another owner.
        """

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
            where = all_of(
                _ROW.id == record.id,
                _ROW.status.is_in(status.value for status in before),
                _ROW.id != operation_id,
            )
            if owner is not None:
                where &= Contains(_ROW.options, owner)
            sets = {"status": literal(after.value)}
            statement = Statement(self._table, where, [Clause(sets)], operation_id, _ROW.id)
            return Plan(statement, self._one)

        self._loop.run("drop", self._table_lock, attempt)

    def own(self, record: TubeRecord, owner: str) -> TubeRecord:
        """Bind a temporary tube to another session. One commit.

        Raises:
            TubeNotFoundError: It is no longer live.
        """
        return self.alter(record, lambda current: replace(current, owner=owner), "own")

    def current(self, record: TubeRecord) -> TubeRecord:
        """The newest record of a live tube.

        Raises:
            TubeNotFoundError: It is not live.
        """
        found = self.find(record.name)
        if found is None or found.id != record.id or found.status is not TubeStatus.LIVE:
            raise refusals.was_dropped(record.name)
        return found

    def require_dropping(self, record: TubeRecord) -> None:
        """Refuse a tube whose drop is done, or was undone.

        Raises:
            TubeNotFoundError: The drop is done, or was undone.
        """
        found = self.find(record.name)
        if found is None or (found.id, found.status) != (record.id, TubeStatus.DROPPING):
            msg = f"tube {record.name!r} is no longer dropping"
            raise TubeNotFoundError(msg)

    def alter(
        self,
        record: TubeRecord,
        change: Callable[[TubeRecord], TubeRecord],
        operation: str = "alter",
    ) -> TubeRecord:
        """Change the options of a live tube, or its pause. One commit, none if nothing changes.

        Args:
            record: The tube.
            change: Makes the new record from the newest one.
            operation: The name of the commit.

        Returns:
            The new record.

        Raises:
            TubeNotFoundError: It is not live.
        """

        def attempt() -> Plan[TubeRecord]:
            current = self.current(record)
            changed = change(current)
            text = _options_text(changed)
            changed = replace(changed, text=text)
            if changed == current:
                return Plan(None, lambda _: changed)
            operation_id = self._operation_id()
            where = all_of(
                _ROW.id == record.id,
                _ROW.status == TubeStatus.LIVE.value,
                _ROW.options == current.text,
                _ROW.id != operation_id,
            )
            sets = {"options": literal(text)}
            statement = Statement(self._table, where, [Clause(sets)], operation_id, _ROW.id)

            def finish(affected: Affected) -> TubeRecord:
                self._one(affected)
                return changed

            return Plan(statement, finish)

        return self._loop.run(operation, self._table_lock, attempt)

    @staticmethod
    def _one(affected: Affected) -> None:
        if affected.total != 1:
            raise Stale


def _excludes(of: Row, new: TubeRecord) -> Expression:
    """Whether a record has the name or the table of a new tube. A dropped tube still has its table."""
    has_name = Lower(of.name) == Lower(literal(new.name))
    has_table = Lower(of.table_name) == Lower(literal(new.table))
    return (has_name & (of.status != TubeStatus.DROPPED.value)) | has_table


def _record(found: Mapping[str, Any]) -> TubeRecord:
    # If the owner of a temporary tube was noted, it stands in the place of the option.
    stored = json.loads(found["options"])
    temporary = stored.get("temporary")
    owner = temporary if isinstance(temporary, str) else None
    return TubeRecord(
        found["name"],
        found["table_name"],
        found["id"],
        found["type"],
        TubeOptions.from_json(found["options"]),
        TubeStatus(found["status"]),
        found["created"],
        owner,
        bool(stored.get(_PAUSED)),
        found["options"],
    )


def _options_text(record: TubeRecord) -> str:
    options = json.loads(record.options.to_json())
    if record.owner is not None:
        options["temporary"] = record.owner
    if record.paused:
        options[_PAUSED] = True
    return json.dumps(options, sort_keys=True)
