"""Runs the programs that share a simulated table, and proves what the table promises to each of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError
from pyarrow.parquet import ParquetFile

from tests.simulation.line import Change
from tubeq_spark.errors import CommitUnknownError, TubeqError
from tubeq_spark.storage.durability.background import at_once
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.log.actions import DamagedFileError
from tubeq_spark.storage.log.next_version import Change as Commit
from tubeq_spark.storage.log.snapshot import Shape, Snapshot, with_property
from tubeq_spark.storage.statement import Note, is_of, total_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.simulation.line import Line, Version
    from tests.simulation.sim_store import Process
    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.native.plain_table import PlainTable

#: The columns of the table, and the hours for which commits and removed files are kept.
SCHEMA = pa.schema({"segment": pa.int64(), "task_id": pa.int64(), "data": pa.string()})
HOURS = 2
#: The segments of the table.
_SEGMENTS = 4


def shape_of(table_id: str) -> Shape:
    """The columns and properties of the table."""
    kept = f"interval {HOURS} hours"
    kinds = {"segment": "long", "task_id": "long", "data": "string"}
    columns = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in kinds.items()
    ]
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": ["segment"],
        "configuration": {
            "delta.logRetentionDuration": kept,
            "delta.deletedFileRetentionDuration": kept,
            "delta.dataSkippingStatsColumns": "task_id",
        },
        "createdTime": 0,
    }
    return Shape.parse(metadata, {"minReaderVersion": 1, "minWriterVersion": 2})


def creation() -> bytes:
    """The first commit of the table, by another program."""
    shape = shape_of("other")
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 0, "operation": "CREATE TABLE", "engineInfo": "other"}},
        {"protocol": shape.protocol},
        {"metaData": shape.metadata},
    ]
    return "".join(f"{json.dumps(action)}\n" for action in actions).encode()


@dataclass(frozen=True, slots=True)
class Basis:
    """What a change rests on: it may follow only versions in which all this is the same.

    Attributes:
        version: The version on which it was decided, as it was committed.
        segment: The segment that was read; `None` if none was.
        app: The application id whose version was read, if any.
    """

    version: Version
    segment: int | None = None
    app: str | None = None

    def holds(self, later: Version) -> bool:
        """Whether the change may follow a version."""
        before, segment, app = self.version, self.segment, self.app
        return (
            later.properties == before.properties
            and (segment is None or later.within(segment) == before.within(segment))
            and (app is None or later.transactions.get(app) == before.transactions.get(app))
        )

    def holds_by(self, later: Snapshot) -> bool:
        """The same, for a version as a program knows it."""
        app, segment = self.app, self.segment
        paths = {f.path for f in later.within({} if segment is None else {"segment": [segment]})}
        return (
            dict(later.shape.properties) == self.version.properties
            and (segment is None or paths == self.version.within(segment))
            and (app is None or later.version_under(app) == self.version.transactions.get(app))
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a program wants to change after it has read a version."""

    rows: pa.Table | None = None
    gone: Sequence[DataFile] = ()
    segment: int | None = None
    once: tuple[str, int] | None = None
    total: tuple[str, int] | None = None
    shape: Shape | None = None


@dataclass(slots=True)
class Program:
    """A program that uses the table.

    Attributes:
        process: Its process.
        opened: Opens a table object for a process.
        line: The versions of the table.
        ids: The ids of all rows that any program has tried to write.
        table: Its table object.
        is_busy: Whether it is in the middle of an act.
        made: The newest version that it has made.
        done: The number of appends under its own application id that it knows to be done.
        held: A version that it has read before, and when.
    """

    process: Process
    opened: Callable[[Process], PlainTable]
    line: Line
    ids: list[int]
    table: PlainTable = field(init=False)
    is_busy: bool = False
    made: int = 0
    done: int = 0
    held: tuple[Snapshot, float] | None = None

    def __post_init__(self) -> None:
        """Open the table."""
        self.reopen()

    def reopen(self) -> None:
        """Begin with a new table object, which knows nothing."""
        self.table, self.held = self.opened(self.process), None

    # -- acts ------------------------------------------------------------------------------------

    def append(self) -> None:
        """Append rows, whatever others do meanwhile."""
        rows = self._rows(self._segment())
        self._write("append", lambda _: _Plan(rows))

    def append_alone(self) -> None:
        """Append rows to a segment if nobody changes it meanwhile."""
        segment = self._segment()
        self._write("gated append", lambda _: _Plan(self._rows(segment), segment=segment))

    def replace(self) -> None:
        """Replace a file of a segment, as a take does."""
        segment, began = self._segment(), self.process.world.now

        def decide(base: Snapshot) -> _Plan | None:
            files = base.within({"segment": [segment]})
            if not files:
                return None
            file = self._rng.choice(files)
            found = self._read_files([file], began)
            if not found:
                return None
            columns = {**found[0].to_pydict(), "segment": [segment] * found[0].num_rows}
            rows = pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
            return _Plan(rows, [file], segment)

        self._write("replace", decide)

    def remove(self) -> None:
        """Remove a segment, as an ack does, perhaps by a version that was read a moment ago."""
        segment = self._segment()

        def decide(base: Snapshot) -> _Plan | None:
            gone = base.within({"segment": [segment]})
            return _Plan(None, gone, segment) if gone else None

        self._write("remove", decide, as_known=self._rng.random() < 0.5)

    def append_once(self) -> None:
        """Append under the next number of an application id, unless that was done before."""
        app, number = f"app-{self.process.name}", self.done + 1

        def decide(base: Snapshot) -> _Plan | None:
            is_done = (base.version_under(app) or 0) >= number
            return None if is_done else _Plan(self._rows(self._segment()), once=(app, number))

        if self._write("once", decide):
            self.done += 1

    def count(self) -> None:
        """Raise a total that all programs share."""
        app, segment = total_of(1), self._segment()
        self._write(
            "total",
            lambda base: _Plan(
                self._rows(segment), total=(app, (base.version_under(app) or 0) + 1)
            ),
        )

    def alter(self) -> None:
        """Set a property of the table."""
        value = str(self.process.world.now)

        def decide(base: Snapshot) -> _Plan:
            return _Plan(shape=with_property(base.shape, "tubeq.altered", value))

        self._write("alter", decide)

    def create(self) -> None:
        """Create the table if it does not exist."""
        try:
            self.table.newest()
        except (TableNotFoundError, EngineError) as error:
            if not getattr(error, "missing", True):
                raise
            shape = shape_of(str(len(self.line.changes)))
            change, commit = self._begun("create", _Plan(shape=shape), lambda _: False)
            self._commit(lambda: self.table.create(Snapshot.before(shape), commit), change)

    def vacuum(self) -> None:
        """Remove the old part of the log, and the files that no kept version needs."""
        with self.table.deciding() as base:
            self.table.vacuum(base.snapshot)

    def read(self) -> None:
        """Read the newest version, and some of its files."""
        since, began = self.line.last.number, self.process.world.now
        seen = self.table.newest()
        self.line.check_seen(seen, since)
        self.held = seen, began
        self.read_held()

    def read_held(self) -> None:
        """Read some files of a version that was read before."""
        if self.held is not None:
            seen, began = self.held
            files = list(seen.files.values())
            self._read_files(self._rng.sample(files, min(len(files), 2)), began)

    def checkpoint(self) -> None:
        """Write a checkpoint for other readers."""
        with self.table.deciding() as base:
            at_once(lambda: self.table.tidying.write_checkpoint(base.snapshot))
            self.table.forget()
            self.line.check_seen(self.table.newest(), base.snapshot.version)

    def read_history(self) -> None:
        """Read the newest commits, and compare them with what was committed."""
        for info in self.table.history(self._rng.randint(1, 30)):
            self.line.check_told(info["version"], info.get("userMetadata") or "")

    def forget(self) -> None:
        """Read the whole log again the next time."""
        self.table.forget()

    # -- parts of them ---------------------------------------------------------------------------

    @property
    def _rng(self) -> Random:
        return self.process.world.rng

    def _segment(self) -> int:
        return self._rng.randint(1, _SEGMENTS)

    def _rows(self, segment: int) -> pa.Table:
        """New rows for a segment."""
        count = self._rng.randint(1, 3)
        ids = [len(self.ids) + 1 + place for place in range(count)]
        self.ids += ids
        columns = {"segment": [segment] * count, "task_id": ids, "data": ["x"] * count}
        return pa.table(columns, schema=SCHEMA)

    def _read_files(self, files: Sequence[DataFile], since: float) -> list[pa.Table]:
        """Read files of a version that is held since a time, unless it is so old that they may be gone."""
        try:
            return [
                ParquetFile(self.table.store.open_file(file.path, file.size)).read(
                    use_threads=False
                )
                for file in files
            ]
        except FileNotFoundError as error:
            age = self.process.world.now - since
            self.line.require(age > HOURS * 3600, f"after {age:.0f} s a file is missing: {error}")
            return []

    def _write(
        self, kind: str, decide: Callable[[Snapshot], _Plan | None], *, as_known: bool = False
    ) -> bool:
        """Decide on a change, and commit it; false if it is not known to be committed."""
        since = self.line.last.number
        with self.table.deciding(as_known=as_known) as base:
            self.line.check_seen(base.snapshot, self.made if as_known else since)
            plan = decide(base.snapshot)
            if plan is None:
                return True
            app = (plan.once or plan.total or (None,))[0]
            basis = Basis(self.line.versions[base.snapshot.version], plan.segment, app)
            change, commit = self._begun(kind, plan, basis.holds)
            commit = replace(commit, on=_rebased(commit, basis))
            self._commit(lambda: self.table.commit(base, commit), change)
        return change.outcome == "done"

    def _begun(
        self, kind: str, plan: _Plan, holds: Callable[[Version], bool]
    ) -> tuple[Change, Commit]:
        """A new change, and its commit."""
        change = Change(len(self.line.changes) + 1, kind, holds)
        self.line.changes[change.number] = change
        note = Note("put", "s", operation_id=change.number)
        commit = Commit(note, plan.rows, plan.gone, plan.once, plan.total, shape=plan.shape)
        return change, commit

    def _commit(self, commit: Callable[[], object], change: Change) -> None:
        world = self.process.world
        try:
            commit()
            change.outcome = "done"
        except CommitUnknownError:
            pass
        except EngineError as error:
            change.outcome = self._find_in_history(change, error.outcome)
        except DamagedFileError:
            raise
        except (TubeqError, OSError):
            change.outcome = "nothing"
        finally:
            world.note(self.process.name, f"change {change.number}: {change.outcome}")
        self.line.check_change(change)
        self.made = max([self.made, *change.versions])

    def _find_in_history(self, change: Change, outcome: Outcome) -> str:
        """The outcome of a change for which the engine has no plain answer: the history may know it."""
        if outcome in (Outcome.CONFLICT, Outcome.STALE):
            return "nothing"
        try:
            infos = list(self.table.history(10))
        except (TubeqError, OSError):
            return "unknown"
        if any(is_of(info, change.number) for info in infos):
            return "done"
        return "unknown" if outcome is Outcome.LOST else "nothing"


def _rebased(commit: Commit, basis: Basis) -> Callable[[Snapshot], Commit | None]:
    """The same commit for later versions, while all that it rests on is the same."""

    def on(later: Snapshot) -> Commit | None:
        return replace(commit, on=on) if basis.holds_by(later) else None

    return on
