"""A location where only the native engine may commit, opened by a program with a Spark session."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import Queue, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark import Tube

#: Verbs that commit by Spark.
VERBS: dict[str, Callable[[Queue, Tube, DataFrame], object]] = {
    "create_tube with a feed": lambda queue, _, __: queue.create_tube("fed", change_feed=True),
}


@pytest.fixture(scope="module")
def queue(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """As on S3: the engines' commits do not see each other, and the native one has made the location."""
    place = tmp_path_factory.mktemp("native")
    # Imported while that is patched, it would keep what it has imported.
    importlib.import_module("tubeq_spark.storage.spark.open_location")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "tubeq_spark.storage.opened_location.allows_one_engine_only", lambda _: True
        )
        with Queue(spark, f"file:{place}", engine="native", storage_options={}) as queue:
            queue.create_tube("work").put("a")
            yield queue


@pytest.mark.parametrize("verb", VERBS)
def test_verb_that_commits_by_spark_where_the_native_engine_does_is_refused_and_writes_nothing(
    spark: SparkSession, queue: Queue, verb: str
) -> None:
    tube, frame = queue["work"], spark.sql("SELECT '\"b\"' AS data")
    tables, name = queue._context.engine.tables, tube._ctx.table.name
    version = tables.version(name)

    with pytest.raises(
        StoreError, match="would overwrite each other; open it with engine='native'"
    ):
        VERBS[verb](queue, tube, frame)

    assert tables.version(name) == version
    assert queue.tubes() == ["work"]


def test_frame_of_a_tube_where_the_native_engine_commits_is_read_all_the_same(queue: Queue) -> None:
    assert queue["work"].df().count() == 1


def test_row_verbs_where_the_native_engine_commits_are_done_beside_a_session(queue: Queue) -> None:
    task = queue["work"].put("c")
    queue["work"].delete(task.task_id)
    assert queue.statistics("work")["tasks"]["total"] == 1
