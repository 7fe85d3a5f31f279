"""put_df: a DataFrame of any size becomes tasks in one commit, and is never collected.

Steps: one counting pass (rows and bad values of each partition), a check that the tube still
exists, reserve ids, one append (with a key, or as a batch of a stream, under Delta's transaction
id). `storage/spark/put_frame_rows` has the SQL that counts and numbers the rows. The append does not read the
tombstone of a drop that commits between the check and the append. Its rows are then dropped with
the tube, as if they had been put just before. So are rows that Spark puts after a drop that was stopped before it
changed the registry.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.errors import CommitUnknownError, ConflictError, StoreError, TubeqError
from tubeq_spark.payloads.put_table import JSON, check_columns
from tubeq_spark.storage.arrow.columns import empty
from tubeq_spark.storage.rows import PutsSeen, insert_schema
from tubeq_spark.storage.spark.conflicts import raised_message
from tubeq_spark.storage.spark.put_frame_checks import arrow_fields, as_stored, checks_of
from tubeq_spark.storage.spark.put_frame_rows import (
    OVERRUN,
    CountedFrame,
    bucket_of,
    count_rows,
    first_of_keys,
    frame_rows,
    read_alike,
)
from tubeq_spark.verbs.put import NewRows
from tubeq_spark.verbs.put_rows import Added, put_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tubeq_spark.model.ids import Numbering
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.spark.put_frame_rows import PutFiles
    from tubeq_spark.storage.statement import PutIdentity, WrittenRows

_OTHER_ROWS = "df yielded other rows when written than when counted; write it to a table first"


def count_frame(ctx: TubeContext, df: DataFrame, trace: str | None = None) -> CountedFrame:
    """Check and count the rows in one pass. If the plan has a shuffle, another pass copies them first.

    A refusal reads the rows once more, to find a bad value for the message.

    Raises:
        InvalidOptionError: A column or a value is bad.
        StoreError: There is no Spark session.
    """
    queue, driver, typed = ctx.queue, ctx.tube_type, ctx.codec.payload
    columns = typed or JSON
    payload = [part.name for part in columns]
    with queue.require_spark().operating("put", ctx.table.name):
        check_columns("df", arrow_fields(df), columns, driver.put_options, driver.name)
        df = read_alike(df)
        if typed is None:
            # Of a text with a collation not all checks can be made, and no table of a tube stores one.
            df = as_stored(df, columns)
        bucket = bucket_of(df, payload) if driver.subqueues else "0"
        frame = CountedFrame(df, payload, trace, bucket)
        frame = count_rows(frame, queue.config.largest_payload, checks_of(df, typed))
        return replace(frame, df=as_stored(df, columns))


def put_frame(ctx: TubeContext, frame: CountedFrame, identity: PutIdentity | None) -> Added:
    """Put counted rows, or none if the capacity is too small for all."""
    try:
        return _FramePut(ctx, frame, identity).run()
    except StoreError as error:
        if error.__cause__ is None or raised_message(error.__cause__) != OVERRUN:
            raise
        raise StoreError(_OTHER_ROWS) from error


class _UnwrittenError(Exception):
    """The rows of a put must be written to files first, without the table's lock."""

    def __init__(self, frame: CountedFrame, numbering: Numbering, files: PutFiles) -> None:
        super().__init__()
        self.frame, self.numbering, self.files = frame, numbering, files


class _FramePut:
    """One put of a DataFrame.

    Its rows are written by a statement of Spark, or, where Spark must not commit, to files that the native engine
    commits.
    """

    def __init__(self, ctx: TubeContext, frame: CountedFrame, identity: PutIdentity | None) -> None:
        self._ctx, self._frame, self._identity = ctx, frame, identity
        self._files = ctx.queue.put_files
        #: A number of the gate, and the rows whose keys were free then.
        self._new: tuple[int, CountedFrame] | None = None
        #: The rows that were written last.
        self._written: tuple[CountedFrame, Numbering, WrittenRows] | None = None

    def run(self) -> Added:
        """Put the rows, and write them to files whenever an attempt needs other files.

        Raises:
            ConflictError: Other commits changed the rows to put, or the table, in each attempt.
        """
        call = (self._ctx, self._choose, self._identity)
        try:
            for _ in range(self._ctx.queue.config.attempts + 1):
                try:
                    added = put_rows(*call, has_keys=self._frame.has_keys, appends=True)
                except _UnwrittenError as unwritten:
                    self._write(unwritten)
                    continue
                if not added.result.count:
                    self._discard()
                return added
            msg = "put: others committed first while the rows were written; nothing was put"
            raise ConflictError(msg)
        except CommitUnknownError:
            # The files may be part of the table, so they must stay.
            raise
        except TubeqError:
            self._discard()
            raise

    def _choose(self, seen: PutsSeen | None) -> NewRows[Added] | None:
        ctx, frame = self._ctx, self._frame
        if seen is not None and frame.has_keys:
            if ctx.put_gate.has_ended_key(ctx.queue.now_us()):
                return None
            if self._new is None or self._new[0] != seen.number:
                self._new = seen.number, _with_new_keys(ctx, frame)
            frame = self._new[1]
        buckets = frame.buckets
        if self._files is not None and self._written is not None:
            of, numbering, rows = self._written
            if of is frame and self._files.directories.fit(ctx.table.name, rows):
                none = empty(insert_schema(ctx.codec.arrow_type))
                return NewRows(buckets, lambda _: none, Added.of, numbering=numbering, written=rows)
        return NewRows(buckets, lambda numbering: self._rows(frame, numbering), Added.of)

    def _rows(self, frame: CountedFrame, numbering: Numbering) -> DataFrame:
        if self._files is not None:
            raise _UnwrittenError(frame, numbering, self._files)
        return frame_rows(self._ctx.table, self._ctx.record.options, frame, numbering)

    def _write(self, unwritten: _UnwrittenError) -> None:
        self._discard()
        ctx, frame, numbering = self._ctx, unwritten.frame, unwritten.numbering
        numbered = frame_rows(ctx.table, ctx.record.options, frame, numbering)
        rows = unwritten.files.write(ctx.table.name, numbered, ctx.writer.stored)
        self._written = frame, numbering, rows
        keys = 0 if numbering.key_segment is None else frame.keys
        if rows.size != frame.total + keys:
            raise StoreError(_OTHER_ROWS)

    def _discard(self) -> None:
        """Remove the files that were written last."""
        written, self._written = self._written, None
        if written is not None and self._files is not None:
            self._files.directories.discard(self._ctx.table.name, written[2].directory)


def _with_new_keys(ctx: TubeContext, frame: CountedFrame) -> CountedFrame:
    """The rows without a key, and the first row with each key that no stored task has.

    They are evaluated once, because the stored keys must be those of this moment.
    """
    stored = ctx.frames.keys(frame.df.sparkSession, ctx.queue.now_us())
    frame = replace(frame, df=read_alike(first_of_keys(frame, stored)))
    return count_rows(frame, ctx.queue.config.largest_payload)
