"""Driver programs that share a Spark standalone cluster of two workers: each has an executor on one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.platforms.scenario import try_with

if TYPE_CHECKING:
    from pathlib import Path

    from tests.platforms.conftest import Cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.thorough
def test_drivers_on_a_cluster_of_which_one_is_killed_get_each_task_of_a_path_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    try_with(2, str(tmp_path / "queue"), cluster.settings, tmp_path)
