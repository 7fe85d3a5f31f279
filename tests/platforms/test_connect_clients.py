"""Programs that are clients of one Spark Connect server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connect_server import connect_server
from tests.platforms.scenario import try_with

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize(
    "clients",
    [pytest.param(1, marks=pytest.mark.thorough), pytest.param(2, marks=pytest.mark.nightly)],
)
def test_clients_of_one_server_of_which_one_is_killed_get_each_task_once(
    clients: int, tmp_path: Path
) -> None:
    with connect_server(tmp_path) as url:
        # A schema of the server's catalog, which lasts as long as the server.
        try_with(clients, "spark_catalog.clients", {"remote": url}, tmp_path)
