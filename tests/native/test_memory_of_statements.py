"""How much memory the native engine says that a statement needs: what decides whether Spark runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark import Queue
from tubeq_spark.model.changes import Every, GiveBack
from tubeq_spark.storage.statement import Append, SettleRow

if TYPE_CHECKING:
    from pathlib import Path


def test_memory_for_when_a_statement_reads_rows_grows_with_those_of_its_partitions(
    tmp_path: Path,
) -> None:
    with Queue(None, tmp_path, engine="native") as queue:
        tube = queue.create_tube("work", "fifottl")
        first = tube.put_many(["a"] * 100)[0]
        more = tube.put_many(["a"] * 300)[0]
        ctx, engine = tube._ctx, queue._context.engine
        segments = [ctx.reader.by_ids([task.task_id])[0].segment for task in (first, more)]

        def settles(*segments: int) -> int:
            rows = [SettleRow(segment, None) for segment in segments]
            return engine.memory_for(ctx.writer.settle(rows, [(Every(), GiveBack(-1))]))

        few, many = settles(segments[0]), settles(segments[1])

        assert 100 * 500 < few < 300 * 500 < many
        assert settles(*segments) == few + many


def test_memory_for_when_a_statement_reads_no_rows_is_0(tmp_path: Path) -> None:
    with Queue(None, tmp_path, engine="native") as queue:
        tube = queue.create_tube("work", "fifottl")
        task = tube.put_many(["a"] * 100)[0]
        ctx, engine = tube._ctx, queue._context.engine
        segment = ctx.reader.by_ids([task.task_id])[0].segment

        assert engine.memory_for(ctx.writer.delete_segments([segment])) == 0
        assert engine.memory_for(Append(ctx.table.name, None)) == 0  # type: ignore[arg-type]
