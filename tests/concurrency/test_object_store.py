"""On an emulated S3 a queue says who made it, and no process opens there a queue that Spark or another format made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from tubeq_spark import StoreError
from tubeq_spark.storage.location import Location
from tubeq_spark.storage.opened_location import OpenedLocation, require_ours
from tubeq_spark.storage.tables.schema import COMMITTER, FORMAT

if TYPE_CHECKING:
    from tests.concurrency.s3_store import Store

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_s3_when_two_commit_one_version_refuses_the_second(store: Store) -> None:
    """What the emulation must do for tests on it to mean anything."""
    rows = pa.table({"a": [1]})
    uri = "s3://bucket/plain"
    write_deltalake(uri, rows, storage_options=store.options)
    mine, theirs = (DeltaTable(uri, storage_options=store.options) for _ in range(2))
    theirs.delete("a = 1")

    with pytest.raises(CommitFailedError):
        mine.delete("a = 1")
    assert DeltaTable(uri, storage_options=store.options).version() == 1


# -- whose location it is -----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["native", "spark"])
@pytest.mark.parametrize("marks", [{}, {COMMITTER: "native"}, {FORMAT: "0", COMMITTER: "native"}])
def test_require_ours_when_the_format_is_another_refuses_in_one_sentence(
    engine: str, marks: dict[str, str]
) -> None:
    place = "s3://bucket/queue"
    with pytest.raises(StoreError) as refused:
        require_ours(marks, OpenedLocation(Location.parse(place), place, None), engine)
    assert str(refused.value) == (
        "s3://bucket/queue was made by another version of tubeq_spark, in a format that this one does not read: "
        "make a new queue at another place, and take the tasks of this one with the version that made it"
    )


def test_open_on_s3_when_native_made_it_is_noted_for_others_and_lets_native_in_again(
    store: Store,
) -> None:
    location = "s3://bucket/noted"
    with store.open(location) as queue:
        queue.create_tube("work").put("mine")
    registry = DeltaTable(f"{location}/_tubeq_tubes", storage_options=store.options)
    assert registry.metadata().configuration[COMMITTER] == "native"
    with store.open(location) as queue:
        assert queue.statistics("work")["tasks"]["total"] == 1


def test_open_on_s3_when_spark_made_it_is_refused_and_writes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = "s3://bucket/theirs"
    with monkeypatch.context() as patched:
        patched.setattr("tubeq_spark.storage.native.engine.NATIVE", "spark")
        store.open(location).close()
    with pytest.raises(StoreError, match="made by Spark"):
        store.open(location)
    registry = DeltaTable(f"{location}/_tubeq_tubes", storage_options=store.options)
    assert registry.version() == 0
