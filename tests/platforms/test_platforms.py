"""Driver programs on each platform share a queue and get each task once, also after one was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connect_server import connect_server
from tests.platforms.conftest import HIVE, SMALL
from tests.platforms.scenario import try_with

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.platforms.conftest import Cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(1_800)]
#: On each platform one test is thorough.
ONE_OR_TWO = pytest.mark.parametrize(
    "programs",
    [pytest.param(1, marks=pytest.mark.thorough), pytest.param(2, marks=pytest.mark.nightly)],
)


@ONE_OR_TWO
def test_clients_of_one_connect_server_get_each_task_once(programs: int, tmp_path: Path) -> None:
    with connect_server(tmp_path) as url:
        # A schema of the server's catalog, which lasts as long as the server.
        try_with(programs, "spark_catalog.clients", {"remote": url}, tmp_path)


@ONE_OR_TWO
def test_drivers_on_hdfs_get_each_task_once(programs: int, hdfs: str, tmp_path: Path) -> None:
    """Delta's log store refuses the second of two commits."""
    try_with(programs, f"{hdfs}/{programs}", SMALL, tmp_path)


@pytest.mark.thorough
def test_driver_whose_hive_catalog_is_its_own_gets_each_task_once(tmp_path: Path) -> None:
    # Derby makes the catalog's database in the working directory, for one program at a time.
    settings = HIVE | {"spark.sql.warehouse.dir": f"{tmp_path}/warehouse"}
    try_with(1, "spark_catalog.one", settings, tmp_path)


@pytest.mark.nightly
def test_drivers_that_share_a_hive_metastore_get_each_task_once(
    metastore: Mapping[str, str], tmp_path: Path
) -> None:
    try_with(2, "spark_catalog.two", metastore, tmp_path)


@pytest.mark.thorough
def test_drivers_on_a_cluster_get_each_task_of_a_path_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Each has an executor on one of two workers."""
    try_with(2, str(tmp_path / "queue"), cluster.settings, tmp_path)
