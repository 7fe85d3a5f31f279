"""Short runs of `python -m tests.power` on a real file system lose no more than the durability says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.power.cut import SHORT_LOG, PowerCut
from tests.power.disk import Disk, require_root
from tests.thorough import thorough

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SECONDS, SPARK_SECONDS = 3.0, 8.0
#: A busy machine does less.
VERBS = 20


@pytest.mark.processes
@pytest.mark.parametrize(
    ("durability", "seed", "log"),
    [
        ("commit", 1, SHORT_LOG),
        *thorough(("commit", 2, None), ("table", 3, SHORT_LOG), ("table", 4, None)),
    ],
)
def test_power_cut_when_processes_are_at_work_loses_no_more_than_the_durability_says(
    tmp_path: Path, durability: str, seed: int, log: tuple[int, float, int] | None
) -> None:
    require_root()
    with Disk(tmp_path) as disk:
        power = PowerCut(tmp_path, disk, seed=seed, durability=durability, log=log)
        cut = power.run(SECONDS)

    assert cut.findings == []
    assert cut.acknowledged >= VERBS


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.thorough
def test_power_cut_when_spark_is_at_work_as_well_loses_no_acknowledged_verb(
    tmp_path: Path, spark: SparkSession
) -> None:
    require_root()
    with Disk(tmp_path, megabytes=512) as disk:
        power = PowerCut(
            tmp_path, disk, seed=5, durability="commit", workers=2, log=SHORT_LOG, spark=spark
        )
        cut = power.run(SPARK_SECONDS)

    assert cut.findings == []
    assert cut.acknowledged >= VERBS
