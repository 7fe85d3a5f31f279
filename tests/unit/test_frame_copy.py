"""Which plans are read twice as they are: lines of `explain`, as Spark 4 prints them."""

from __future__ import annotations

import pytest

from tubeq_spark.storage.spark.put_files import is_steady

SCAN = "+- FileScan parquet [data#1] Batched: true, Location: InMemoryFileIndex(1 paths)"


@pytest.mark.parametrize(
    ("exchanges", "expected"),
    [
        ([], True),
        (["Exchange RoundRobinPartitioning(4), REPARTITION_BY_NUM, [plan_id=7]"], True),
        (["Exchange hashpartitioning(utube#2, 4), REPARTITION_BY_NUM, [plan_id=7]"], True),
        (["Exchange SinglePartition, ENSURE_REQUIREMENTS, [plan_id=7]"], True),
        (["Exchange rangepartitioning(n#2 ASC, 4), REPARTITION_BY_NUM, [plan_id=7]"], False),
        (["Exchange rangepartitioning(n#2 ASC, 2), ENSURE_REQUIREMENTS, [plan_id=7]"], False),
        (["Exchange hashpartitioning(n#2, 2), ENSURE_REQUIREMENTS, [plan_id=7]"], False),
        (["Exchange hashpartitioning(n#2, 200), REPARTITION_BY_COL, [plan_id=7]"], False),
        (["BroadcastExchange HashedRelationBroadcastMode(List(n#2)), [plan_id=7]"], False),
        (["PhotonShuffleExchangeSink hashpartitioning(n#2, 2)"], False),
        (
            [
                "Exchange RoundRobinPartitioning(4), REPARTITION_BY_NUM, [plan_id=8]",
                "Exchange rangepartitioning(n#2 ASC, 2), ENSURE_REQUIREMENTS, [plan_id=7]",
            ],
            False,
        ),
    ],
)
def test_plan_is_steady_when_its_exchanges_need_no_sample_and_nothing_merges_them(
    exchanges: list[str], *, expected: bool
) -> None:
    lines = ["== Physical Plan ==", "*(1) Project [data#1]", *[f"+- {e}" for e in exchanges], SCAN]

    assert is_steady("\n".join(lines)) is expected
