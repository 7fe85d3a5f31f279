"""All readers agree on our logs in short runs of `python -m tests.log_fuzz`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.log_fuzz.sequence import run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 12), (2, 12), pytest.param(3, 40, marks=pytest.mark.thorough)]
)
def test_readers_when_the_queue_and_the_library_act_on_a_tube_agree(
    tmp_path: Path, seed: int, steps: int
) -> None:
    outcome = run(tmp_path, seed, steps)
    assert outcome.findings == []
    assert outcome.compared >= steps // 2


@pytest.mark.thorough
def test_readers_when_spark_acts_on_a_tube_as_well_agree(
    spark: SparkSession, tmp_path: Path
) -> None:
    outcome = run(tmp_path, 505, 12, every=4, spark=spark)
    assert outcome.findings == []
