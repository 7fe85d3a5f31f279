"""A queue in a schema of a Hive catalog, which Spark's own jars of Hive make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.platforms.conftest import HIVE
from tests.platforms.scenario import try_with

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.thorough
def test_driver_whose_hive_catalog_is_its_own_gets_each_task_once(tmp_path: Path) -> None:
    # Derby makes the catalog's database in the working directory, for one program at a time.
    settings = HIVE | {"spark.sql.warehouse.dir": f"{tmp_path}/warehouse"}
    try_with(1, "spark_catalog.one", settings, tmp_path)


@pytest.mark.nightly
def test_drivers_that_share_a_hive_metastore_of_which_one_is_killed_get_each_task_once(
    metastore: Mapping[str, str], tmp_path: Path
) -> None:
    try_with(2, "spark_catalog.two", metastore, tmp_path)
