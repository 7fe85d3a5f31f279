"""A tube with aging gives ranks to the rows of frames, knows none once aging has ended, and none above 64 bits.

That verbs go by (created + pri * aging, id) is judged by the simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tubeq_spark import InvalidOptionError, PutItem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.acceptance.support import NewTube
    from tubeq_spark import Tube
    from tubeq_spark.testing import ManualClock

#: Seconds of waiting that weigh as much as one priority.
AGING = 10.0


def one_by_one(tube: Tube) -> Iterator[Any]:
    while (task := tube.take(timeout=0)) is not None:
        tube.ack(task.task_id)
        yield task.data


@pytest.mark.thorough
@pytest.mark.frames
def test_put_df_when_a_tube_has_aging_gives_the_ranks_of_put_many(
    spark: SparkSession, new_tube: NewTube
) -> None:
    tube = new_tube("utubettl", aging=0.3, pri=7)
    pris = [None, 0, 1, 12_345, 2_147_483_647]
    frame = spark.createDataFrame(
        [("0", pri, "u") for pri in pris], "data STRING, pri INT, utube STRING"
    )

    tube.put_df(frame.coalesce(1))
    tube.put_many([PutItem(0, pri=pri) for pri in pris])

    rows = tube._ctx.reader.of(tube._ctx.table.mine())
    ranks = [row.rank for row in sorted(rows, key=lambda row: row.task_id)]
    assert sorted(map(str, ranks[: len(pris)])) == sorted(map(str, ranks[len(pris) :]))
    with tube.take_df(3, per_utube=3) as batch:
        assert batch.count == 3
        # One sub-queue gives all three.
        assert {row.pri for row in batch.df.collect()} == {0, 1, 7}


def test_aging_when_it_ends_with_the_tube_empty_leaves_the_order_by_priority(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", aging=AGING)
    tube.put("ranked", pri=1)
    with pytest.raises(InvalidOptionError, match="aging"):
        tube.alter(aging=None)
    assert [*one_by_one(tube)] == ["ranked"]

    tube.alter(aging=None)
    tube.put("old", pri=1)
    with pytest.raises(InvalidOptionError, match="aging"):
        tube.alter(aging=5)
    clock.advance(100)
    tube.put("new", pri=0)

    assert [*one_by_one(tube)] == ["new", "old"]


def test_rank_when_it_is_no_number_of_64_bits_is_the_greatest(new_tube: NewTube) -> None:
    tube, most = new_tube("fifottl", aging=1e18), 2**31 - 1

    tube.put_many([PutItem(1, pri=most), PutItem(2, pri=1), PutItem(3, pri=0)])
    tube.put_arrow(pa.table({"data": ["4", "5"], "pri": pa.array([most, 0], pa.int32())}))

    assert [*one_by_one(tube)] == [3, 5, 2, 1, 4]
