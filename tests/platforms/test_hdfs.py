"""A queue on HDFS: Delta's log store refuses the second of two commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.platforms.conftest import SMALL
from tests.platforms.scenario import try_with

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.thorough
def test_driver_on_hdfs_gets_each_task_once(hdfs: str, tmp_path: Path) -> None:
    try_with(1, f"{hdfs}/one", SMALL, tmp_path)


@pytest.mark.nightly
def test_drivers_on_hdfs_of_which_one_is_killed_get_each_task_once(
    hdfs: str, tmp_path: Path
) -> None:
    try_with(2, f"{hdfs}/two", SMALL, tmp_path)
