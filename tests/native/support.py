"""Makes the tables of a location without Spark, and builds their queries and statements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark import Queue
from tubeq_spark.config import QueueConfig
from tubeq_spark.model.takes import NewLease
from tubeq_spark.model.tube_types import OrderPosition
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.native.writer import Writer
from tubeq_spark.storage.query import Select, named
from tubeq_spark.storage.rows import GateIncrements, insert_schema
from tubeq_spark.storage.statement import Note, new_operation_id
from tubeq_spark.storage.tables import schema
from tubeq_spark.storage.tables.tube_reader import TubeReader
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.storage.tables.tube_writer import TubeWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.log.log_reader import Base
    from tubeq_spark.storage.log.next_version import Change
    from tubeq_spark.storage.native.plain_table import PlainTable
    from tubeq_spark.storage.statement import Affected, Statement

NOTE = Note("test", "s-1")
NOW = 1_800_000_000_000_000
OWNER = "owner/1"


class PausedWriter(Writer):
    """Lets a rival commit between a decision and its commit."""

    rival: Callable[[], object] | None = None

    def commit(self, table: PlainTable, base: Base, change: Change) -> None:
        rival, self.rival = self.rival, None
        if rival is not None:
            rival()
        super().commit(table, base, change)


class Place:
    """One process at a location of one tube."""

    def __init__(self, root: Path, order: tuple[str, ...] = ("task_id",)) -> None:
        """Use what is there.

        Args:
            root: The directory of the tables.
            order: Columns that give the order of tasks.
        """
        self.engine = NativeEngine()
        self.engine.writer = self.writer = PausedWriter(self.engine._handles.files)
        #: The directory of the tube's log.
        self.log = root / "tube" / "_delta_log"
        #: The operation id of the last statement that was run.
        self.newest = 0
        self.tube, self.registered, self.sessions_table = (
            path_table(str(root / name)) for name in ("tube", "tubes", "sessions")
        )
        self.table = TubeTable(self.tube, 1, order)
        self.tasks = TubeReader(self.engine, self.table)  # type: ignore[arg-type]
        self.statements = TubeWriter(self.table)

    def create(self, *, payload: str | None = None, change_feed: bool = False) -> Place:
        """Create all tables."""
        config = QueueConfig()
        for new in (
            schema.new_tube_table(self.tube, config, payload, change_feed=change_feed),
            schema.new_registry(self.registered, config, "native"),
            schema.new_sessions(self.sessions_table, config),
        ):
            self.engine.tables.create(new)
        return self

    def run(self, statement: Statement) -> Affected:
        self.newest = new_operation_id()
        note = replace(NOTE, tasks=statement.tasks, operation_id=self.newest)
        return self.engine.execute(statement, note)

    def put(self, segment: int, ids: Sequence[int], **columns: Any) -> Affected:
        return self.run(self.statements.put(new_rows(segment, ids, **columns), len(ids), [segment]))

    def take(self, chosen: Mapping[int, Sequence[int]], to: int) -> Affected:
        """Take tasks, by their ids in each segment."""
        rows = [(segment, task_id) for segment, ids in chosen.items() for task_id in ids]
        tasks = pa.table(
            {
                "segment": pa.array([segment for segment, _ in rows], pa.int64()),
                "task_id": pa.array([task_id for _, task_id in rows], pa.int64()),
                "utube": pa.nulls(len(rows), pa.string()),
                "pri": pa.array([99] * len(rows), pa.int64()),
            }
        )
        numbers = pa.array([to] * len(rows), pa.int64())
        lease = NewLease(OWNER, NOW)
        return self.run(self.statements.take(tasks, numbers, numbers, lease, GateIncrements(), ()))

    def ready(self, limit: int, where: Expression | None = None) -> list[int]:
        """The ids of the first tasks that match a condition. By default it matches ready tasks."""
        where = self.table.is_ready(NOW) if where is None else where
        found = self.tasks.first(named("segment", "task_id"), where, limit)
        ids: list[int] = found.column("task_id").to_pylist()
        return ids

    def stored(self, columns: str = "segment, task_id, state") -> list[tuple[Any, ...]]:
        """The rows of the tube, in the order of their ids."""
        names = columns.split(", ")
        keys = named(*names, "task_id", "segment")
        found = self.engine.rows(Select(self.tube, keys, order=("task_id", "segment")))
        return [tuple(row[name] for name in names) for row in found]

    def version(self, table: str) -> int:
        return self.engine.tables.newest(table).version


def opened(place: Path | str, **settings: Any) -> Queue:
    """A queue without Spark."""
    return Queue(None, place, engine="native", **settings)


def new_rows(segment: int, ids: Sequence[int], **columns: Any) -> pa.Table:
    """Rows to put: plain ones, but for some columns, each one value or one for each row."""
    plain: dict[str, Any] = {
        "segment": segment,
        "state": "r",
        "pri": 0,
        "utube": None,
        "data": "{}",
        "created": NOW,
        "ttl": None,
        "ttr": 60_000_000,
        "next_event": None,
        "expires_at": None,
        "unique": None,
        "rank": 0,
        "trace": None,
    } | columns
    fields = insert_schema(None)
    arrays = []
    for name in fields.names:
        value = list(ids) if name == "task_id" else plain[name]
        values = value if isinstance(value, list) else [value] * len(ids)
        arrays.append(pa.array(values, fields.field(name).type))
    return pa.Table.from_arrays(arrays, schema=fields)


def at(task_id: int, pri: int = 0) -> OrderPosition:
    """A position in the order."""
    return OrderPosition(pri, task_id)
