"""A commit of ours adds files that somebody else wrote below a table, and VACUUM and sweeps remove stray ones."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.parquet import write_table

from tests.native.support import NOTE, new_rows
from tests.native.test_durability import Syncs
from tubeq_spark import Queue, QueueConfig, StoreError, Tube
from tubeq_spark.storage.arrow.columns import empty
from tubeq_spark.storage.arrow.statement import Matching
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.statement import Affected, PutIdentity, Statement, WrittenRows
from tubeq_spark.storage.store import local_files

if TYPE_CHECKING:
    from collections.abc import Iterator

SEGMENTS, ROWS = 3, 6
#: Seconds after which dead files are removed.
LONG_AGO = 3 * 3600.0


@dataclass
class Written:
    """A tube whose table gets files of others."""

    queue: Queue
    tube: Tube

    @property
    def engine(self) -> NativeEngine:
        engine = self.tube._ctx.queue.engine
        assert isinstance(engine, NativeEngine)
        return engine

    @property
    def name(self) -> str:
        return self.tube._ctx.table.name

    @property
    def place(self) -> Path:
        return Path(path_of(self.name) or "")

    def write(self, first: int, segments: int = SEGMENTS) -> WrittenRows:
        """Write rows as Spark does: Parquet files in a directory of their own."""
        directories = self.engine.put_directories
        shape, directory = directories.shape(self.name), directories.new_name()
        store = self.engine._handles.table(self.name).store
        for n in range(first, first + segments):
            ids = [n, n + segments]
            rows = new_rows(n, ids, data=[str(each) for each in ids])
            sink = pa.BufferOutputStream()
            statement = self.tube._ctx.writer.append(rows, len(ids), None)
            whole_rows = Matching(statement, ()).applied(empty(shape.schema)).inserted
            write_table(whole_rows.drop_columns(["segment"]), sink)
            store.put(f"{directory}/segment={n}/part-0.parquet", sink.getvalue().to_pybytes())
        return directories.read(self.name, directory, shape)

    def append(self, rows: WrittenRows, key: str | None = None) -> Statement:
        """The commit that adds them."""
        none = new_rows(0, [])
        identity = None if key is None else PutIdentity.of_key(key)
        return replace(self.tube._ctx.writer.append(none, rows.size, identity), written=rows)

    def commit(self, rows: WrittenRows, key: str | None = None) -> Affected:
        return self.engine.execute(self.append(rows, key), NOTE)

    def stored(self) -> list[int]:
        """The ids of the tasks, which two readers agree on."""
        table = DeltaTable(str(self.place)).to_pyarrow_table(columns=["task_id"])
        found = sorted(i for i in table["task_id"].to_pylist() if i is not None)
        total = self.queue.statistics(self.tube.name)["tasks"]["total"]
        assert total == len(found)
        return found

    def files(self, rows: WrittenRows) -> int:
        """The number of files in the directory of a put."""
        return len([*(self.place / rows.directory).rglob("*.parquet")])

    def make_older(self, *puts: WrittenRows) -> None:
        then = time.time() - LONG_AGO
        for rows in puts:
            directory = self.place / rows.directory
            for path in (*directory.rglob("*"), directory):
                os.utime(path, (then, then))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Written]:
    """A tube."""
    with Queue(None, str(tmp_path / "queue"), engine="native") as queue:
        yield Written(queue, queue.create_tube("work"))


def test_append_of_written_rows_adds_their_files_in_one_commit(table: Written) -> None:
    rows = table.write(100)
    version = table.engine.tables.version(table.name) or 0
    assert table.stored() == []

    assert table.commit(rows) == Affected(inserted=ROWS)

    assert table.engine.tables.version(table.name) == version + 1
    assert table.stored() == list(range(100, 100 + ROWS))
    assert table.files(rows) == SEGMENTS
    assert [task.data for task in table.tube.take_many(ROWS)] == [*range(100, 100 + ROWS)]


def test_discard_of_written_rows_removes_them_but_not_what_the_table_has(table: Written) -> None:
    kept, gone = table.write(100), table.write(200)
    table.commit(kept)

    for rows in (kept, gone):
        table.engine.put_directories.discard(table.name, rows.directory)

    assert table.files(kept) == SEGMENTS
    assert table.files(gone) == 0
    assert table.stored() == list(range(100, 100 + ROWS))


def test_vacuum_removes_written_rows_that_no_version_has_once_they_are_old(table: Written) -> None:
    kept, gone = table.write(100), table.write(200)
    table.commit(kept)
    table.engine.tables.vacuum(table.name)
    assert table.files(gone) == SEGMENTS

    table.make_older(kept, gone)
    table.engine.tables.vacuum(table.name)

    assert table.files(gone) == 0
    assert table.files(kept) == SEGMENTS
    assert table.stored() == list(range(100, 100 + ROWS))


def test_read_of_written_rows_when_a_file_is_no_parquet_refuses_them(table: Written) -> None:
    store = table.engine._handles.table(table.name).store
    store.put("put-x/segment=1/part-0.parquet", b"PAR1 this is none PAR1")
    directories = table.engine.put_directories
    with pytest.raises(StoreError, match="cannot be read, nothing was put"):
        directories.read(table.name, "put-x", directories.shape(table.name))


@pytest.mark.parametrize("segments", [1, 60])
def test_append_of_written_rows_at_commit_syncs_them_before_the_commit_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segments: int
) -> None:
    location, config = tmp_path / "queue", QueueConfig(durability="commit")
    with Queue(None, str(location), engine="native", config=config) as queue:
        table = Written(queue, queue.create_tube("work"))
        table.tube.put("a")
        rows = table.write(100, segments)
        syncs = Syncs(location, monkeypatch)

        def commit() -> None:
            table.commit(rows)
            queue["work"]._ctx.table_lock.sync_commit()

        found = syncs.of(commit)
        names = [name for kind, name in syncs.found if kind == "directory"]
    if segments == 1:
        assert found == ["data", "segment", "table", "table", "commit", "log"]
        assert names[:3] == [
            f"work/{rows.files[0].path.rsplit('/', 1)[0]}",
            f"work/{rows.directory}",
            "work",
        ]
    else:
        assert found == ["file_system", "commit", "log"]


def test_directories_of_stopped_puts_are_removed_by_a_sweep(table: Written) -> None:
    kept, gone, new = table.write(100), table.write(200), table.write(300)
    table.commit(kept)
    for each in (kept, gone, new):
        (table.place / each.directory / "_temporary/0").mkdir(parents=True)
    table.make_older(kept, gone)

    with local_files.without_empty_directories(table.name):
        for file in (table.place / gone.directory).rglob("*.parquet"):
            file.unlink()

    left = {path.name for path in table.place.glob("put-*")}
    assert left == {kept.directory, new.directory}
    assert not (table.place / kept.directory / "_temporary").exists()
    assert (table.place / new.directory / "_temporary").exists()
    assert table.stored() == list(range(100, 100 + ROWS))
