"""The registry: the tubes of the location, with their ids, types and options."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import TubeMovedError
from tubeq_spark.model import validation
from tubeq_spark.model.options import TubeOptions
from tubeq_spark.model.validation import no_queue
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.engine import is_missing_table
from tubeq_spark.storage.expression import all_of, any_of, at, like, literal, lower, micros, row
from tubeq_spark.storage.location import TUBES, path_of
from tubeq_spark.storage.query import Select, count_if, greatest, named
from tubeq_spark.storage.statement import Affected, Clause, Statement
from tubeq_spark.storage.tables.system_table import SystemTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.storage.expression import Expression, Row

_ROW, _T = row(), row("t")
#: The key, among the stored options, of a paused tube.
_PAUSED = "paused"
#: The key of the location to which a tube was moved.
_MOVED_TO = "moved_to"
#: The status of a tube that may be used, and of all others.
_LIVE, _DROPPED = "live", "dropped"


@dataclass(frozen=True, slots=True)
class TubeRecord:
    """The record of a tube in the registry.

    Attributes:
        name: Its name, as it was created.
        table: The name of its table, which no other tube of this location ever has.
        id: Its id, which no other tube of this location ever has.
        type: The name of its driver.
        options: Its options.
        created_us: The moment at which it was registered.
        owner: The session and epoch with which a temporary tube ends; `None` if they were not noted.
        is_paused: Whether a program has paused it.
        is_live: Whether it was not dropped.
        moved_to: The location to which it was copied and where it is used now; `None` if it is used here.
        text: Its options as they are stored.
        paused: Whether takes find nothing: it is paused, or used at another place.
    """

    name: str
    table: str
    id: int
    type: str
    options: TubeOptions
    created_us: int
    owner: str | None = None
    is_paused: bool = False
    is_live: bool = True
    moved_to: str | None = None
    text: str = field(default="", compare=False)
    paused: bool = field(init=False)

    def __post_init__(self) -> None:
        """Compute what follows from the other values."""
        object.__setattr__(self, "paused", self.is_paused or self.moved_to is not None)

    def require_here(self) -> None:
        """Refuse to change this tube while it is used at another place.

        Raises:
            TubeMovedError: It was moved.
        """
        if self.moved_to is not None:
            raise TubeMovedError(
                f"tube {self.name!r} was moved to {self.moved_to}: use the queue there; "
                "`Tube.resume` opens this one again"
            )


class Registry(SystemTable):
    """Reads and writes `_tubeq_tubes`."""

    def records(self) -> list[TubeRecord]:
        """All tubes that are not dropped.

        Raises:
            QueueNotFoundError: The registry was removed.
        """
        return self._read(_ROW.status == _LIVE)

    def with_dropped(self) -> list[TubeRecord]:
        """All tubes, including dropped ones; errors as for `records`."""
        return self._read()

    def _read(self, *where: Expression) -> list[TubeRecord]:
        columns = named("name", "table_name", "id", "type", "options", "status")
        columns["created"] = micros(_ROW.created)
        try:
            rows = self._engine.rows(Select(self._table, columns, all_of(*where)))
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
            TubeNotFoundError: No tube has this name.
        """
        record = self.find(name)
        if record is None or record.name != name:
            raise validation.no_tube(name)
        return record

    def add(self, new: TubeRecord) -> TubeRecord | None:
        """Register a live tube under a new id. One commit.

        Args:
            new: The tube; its id is ignored.

        Returns:
            The tube; `None` if its name is in use, a tube has ever had its table, or a tube was moved to another
            place. Then nothing was written.
        """
        text = _options_text(new)
        columns = {"last": greatest(_ROW.id), "taken": count_if(_excludes(_ROW, new))}

        def attempt() -> Plan[TubeRecord | None]:
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
                "status": literal(_LIVE),
                "created": at(new.created_us),
            }
            # The statement inserts nothing if a program has registered the name, the table or the id since the read.
            statement = Statement(
                self._table,
                inserts=[Clause(record)],
                where=any_of(_excludes(_T, new), _T.id >= number),
                by="id",
            )

            def finish(affected: Affected) -> TubeRecord:
                self._one_inserted(affected)
                return replace(new, id=number, options=TubeOptions.from_json(text), text=text)

            return Plan(statement, finish)

        return self._loop.run("create_tube", self._table_lock, attempt)

    def current(self, record: TubeRecord) -> TubeRecord:
        """The newest record of a live tube.

        Raises:
            TubeNotFoundError: It is not live.
        """
        found = self.find(record.name)
        if found is None or found.id != record.id:
            raise validation.was_dropped(record.name)
        return found

    def alter(
        self,
        record: TubeRecord,
        change: Callable[[TubeRecord], TubeRecord],
        operation: str = "alter",
    ) -> TubeRecord:
        """Change a live tube, or drop it. One commit, none if nothing changes.

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
            where = all_of(
                _T.id == record.id,
                _T.status == _LIVE,
                _T.options == current.text,
            )
            status = _LIVE if changed.is_live else _DROPPED
            sets = {"options": literal(text), "status": literal(status)}
            statement = Statement(self._table, [Clause(sets)], where=where, by="id")

            def finish(affected: Affected) -> TubeRecord:
                if affected.total != 1:
                    raise Stale
                return changed

            return Plan(statement, finish)

        return self._loop.run(operation, self._table_lock, attempt)


def _excludes(of: Row, new: TubeRecord) -> Expression:
    """Whether a record has the name or the table of a new tube, or says that the queue is used at another place.

    A dropped tube still has its table.
    """
    has_name = lower(of.name) == lower(literal(new.name))
    has_table = lower(of.table_name) == lower(literal(new.table))
    was_moved = like(of.options, f'%"{_MOVED_TO}": "%'.replace("_", r"\_"))
    return ((has_name | was_moved) & (of.status == _LIVE)) | has_table


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
        found["created"],
        owner,
        bool(stored.get(_PAUSED)),
        found["status"] == _LIVE,
        stored.get(_MOVED_TO),
        found["options"],
    )


def _options_text(record: TubeRecord) -> str:
    options = json.loads(record.options.to_json())
    if record.owner is not None:
        options["temporary"] = record.owner
    if record.is_paused:
        options[_PAUSED] = True
    if record.moved_to is not None:
        options[_MOVED_TO] = record.moved_to
    return json.dumps(options, sort_keys=True)
