"""A table on an object store whose directory was removed and made anew, while a program had it open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.concurrency.lost_answers import OPTIONS
from tubeq_spark import QueueConfig
from tubeq_spark.storage.tables.schema import new_tube_table

if TYPE_CHECKING:
    from tests.concurrency.s3_store import Store

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.processes, pytest.mark.slow]


def remove(store: Store, directory: str) -> None:
    """Remove all that is in a directory of the bucket, as somebody by hand."""
    with store.client() as client:
        found = client.list_objects_v2(Bucket="bucket", Prefix=f"{directory}/")["Contents"]
        for each in found:
            client.delete_object(Bucket="bucket", Key=each["Key"])


def test_vacuum_when_the_table_was_removed_and_made_anew_removes_no_file_of_the_new_one(
    store: Store,
) -> None:
    location = "s3://bucket/anew"
    with store.open(location, options=OPTIONS) as queue:
        tube = queue.create_tube("work")
        tube.put("old")
        ctx = tube._ctx
        ctx.queue.engine.tables.vacuum(ctx.table.name)
        remove(store, "anew/work")
        with store.open(location, options=OPTIONS) as rivals:
            tables = rivals._context.engine.tables
            tables.create(new_tube_table(ctx.table.name, QueueConfig(), None, change_feed=False))
            assert rivals["work"].put("new") is not None
            retention = "delta.deletedFileRetentionDuration"
            assert tables.set_property(ctx.table.name, retention, "interval 0 hours")
        ctx.queue.engine.tables.vacuum(ctx.table.name)
    with store.open(location, options=OPTIONS) as later:
        task = later["work"].take(0)
        assert task is not None
        assert task.data == "new"
