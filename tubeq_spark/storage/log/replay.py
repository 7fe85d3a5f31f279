"""Reads the commits that a log still has, one after the other, with the rows of the files that each removed and added."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.arrow.columns import empty, repeated
from tubeq_spark.storage.log.actions import Actions, DamagedCommitError, DataFile, info_in, parsed
from tubeq_spark.storage.log.log_files import LogFiles, checkpoint_name, commit_name
from tubeq_spark.storage.log.reading import BEGINNING, LogFacts
from tubeq_spark.storage.statement import Note, note_in, text_with_note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tubeq_spark.storage.store.store import Store

_US_PER_MS = 1_000


class CutError(Exception):
    """A part of a log, or a data file, cannot be read; the message says which.

    Attributes:
        version: The version at which this was found.
        is_damage: Whether it should be there: no later version has removed it.
    """

    def __init__(self, version: int, message: str, *, is_damage: bool = True) -> None:
        """Fail at a version."""
        super().__init__(message)
        self.version, self.is_damage = version, is_damage


@dataclass(frozen=True, slots=True)
class Replayed:
    """One commit.

    Attributes:
        version: Its version.
        at_us: Its time, by the clock of the program that committed.
        read: The version on which it was made; `None` if it does not say so.
        note: Its note; `None` if it was made by another program, or by Delta.
        statement: Delta's name of the operation.
        before: The rows of the files that it removed.
        after: The rows of the files that it added.
        totals: The versions of the application ids that it wrote.
    """

    version: int
    at_us: int
    read: int | None
    note: Note | None
    statement: str
    before: pa.Table
    after: pa.Table
    totals: Mapping[str, int] = field(default_factory=dict)


class Replay:
    """The states of one table, from a checkpoint or the first commit on, one commit after the other."""

    def __init__(self, store: Store, schema: pa.Schema, partition: str | None = None) -> None:
        """List the log.

        Args:
            store: The files of the table.
            schema: The columns to read, with the types in which they are wanted. A moment is a number of microseconds.
            partition: The column among them by which the table is partitioned; `None` if it is not.

        Raises:
            OSError: The storage refuses to list the log.
        """
        self._store, self._schema, self._partition = store, schema, partition
        self._facts = LogFacts.listed(LogFiles(store))
        #: The rows of the files of the version that was read last.
        self._rows: dict[str, pa.Table] = {}

    def starts(self) -> Sequence[int]:
        """The versions from which commits can be read: checkpoints, and `BEGINNING` if there is the first commit.

        After a copy the only one is the checkpoint of the newest version.
        """
        follow = {*self._facts.versions, max(self._facts.versions, default=BEGINNING) + 1}
        starts = {BEGINNING, *self._facts.checkpoints}
        return sorted(start for start in starts if start + 1 in follow)

    def moment(self, version: int) -> int:
        """When the commit of a version was made, in microseconds."""
        return _moment(version, _info(version, self._text(version)))

    def begin(self, start: int) -> tuple[pa.Table, Mapping[str, int]]:
        """The rows of a version, with which `commits` goes on, and the versions of its application ids.

        Raises:
            CutError: It cannot be read.
        """
        self._rows.clear()
        if start == BEGINNING:
            return empty(self._schema), {}
        state = self._facts.checkpoint(start)
        if state is None:
            message = self._facts.bad_checkpoints.get(checkpoint_name(start), "is gone")
            raise CutError(start, f"the checkpoint of version {start} {message}")
        return self._added(start, state), _totals(state)

    def commits(self, start: int) -> Iterator[Replayed]:
        """The commits after a version of `begin`, up to the newest one.

        Raises:
            CutError: A commit, or a data file that it has added, cannot be read.
        """
        last = max(self._facts.versions)
        for version in range(start + 1, last + 1):
            text = self._text(version)
            try:
                contents = parsed(text)
            except DamagedCommitError as error:
                raise CutError(version, f"version {version} {error}") from error
            gone = contents.removes
            before = [self._rows.pop(path) for path in gone if path in self._rows]
            after = self._added(version, contents)
            info = _info(version, text)
            yield Replayed(
                version,
                _moment(version, info),
                info.get("readVersion"),
                note_in(text_with_note(info)),
                str(info.get("operation", "")),
                pa.concat_tables([empty(self._schema), *before]),
                after,
                _totals(contents),
            )

    def _text(self, version: int) -> bytes:
        try:
            return self._facts.log.read(commit_name(version))
        except FileNotFoundError as error:
            raise CutError(version, f"version {version} is gone") from error

    def _added(self, version: int, contents: Actions) -> pa.Table:
        """The rows of the files that a commit or a checkpoint adds."""
        new = {path: self._read(version, file) for path, file in contents.adds.items()}
        self._rows |= new
        return pa.concat_tables([empty(self._schema), *new.values()])

    def _read(self, version: int, file: DataFile) -> pa.Table:
        """The rows of a data file."""
        path = file.path
        if file.unknown:
            raise CutError(version, f"{file.unknown}, which only Spark reads")
        try:
            with self._store.open_file(path, file.size) as opened:
                content = pq.ParquetFile(opened)
                there = [name for name in self._schema.names if name in content.schema_arrow.names]
                rows = content.read(columns=there)
        except FileNotFoundError as error:
            is_old = self._is_removed(path, version)
            why = "was removed, because no newer version needs it" if is_old else "is missing"
            raise CutError(version, f"the data file {path} {why}", is_damage=not is_old) from error
        except (pa.ArrowException, OSError) as error:
            why = f"the data file {path} cannot be read: {reason_of(error)}"
            raise CutError(version, why) from error
        columns = [
            repeated(file.partition[wanted.name], wanted.type, rows.num_rows)
            if wanted.name == self._partition
            else _as_wanted(rows, wanted)
            for wanted in self._schema
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _is_removed(self, path: str, version: int) -> bool:
        """Whether a version after this one has removed a data file."""
        later = (self._facts.commit(each) for each in self._facts.versions if each > version)
        return any(commit is not None and path in commit.removes for commit in later)


def _info(version: int, text: bytes) -> Mapping[str, Any]:
    """The `commitInfo` of a commit."""
    try:
        return info_in(text)
    except ValueError as error:
        raise CutError(version, f"version {version} cannot be read") from error


def _moment(version: int, info: Mapping[str, Any]) -> int:
    """When the commit with this `commitInfo` was made, in microseconds."""
    try:
        return int(info["timestamp"]) * _US_PER_MS
    except (ValueError, KeyError) as error:
        raise CutError(version, f"version {version} has no time") from error


def _totals(contents: Actions) -> dict[str, int]:
    """The versions of the application ids in a commit or a checkpoint."""
    return {app: version for app, (version, _) in contents.transactions.items()}


def _as_wanted(rows: pa.Table, wanted: pa.Field) -> pa.ChunkedArray | pa.Array:
    """A column in the wanted type; NULLs if the file does not have it."""
    if wanted.name not in rows.column_names:
        return pa.nulls(rows.num_rows, wanted.type)
    column = rows.column(wanted.name)
    if pa.types.is_timestamp(column.type) and wanted.type == pa.int64():
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.cast(wanted.type)
