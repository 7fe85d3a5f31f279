"""Other readers find sub-queues of long and rare names by the statistics of our files."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.other_readers import FINDS, NAMES
from tubeq_spark import Queue


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """The table of a tube with a file for each sub-queue, and one for all of them."""
    place = tmp_path_factory.mktemp("readers")
    with Queue(None, str(place), engine="native") as queue:
        tube = queue.create_tube("hosts", "utube")
        for name in NAMES:
            tube.put("alone", utube=name)
        tube.put("without")
        several = [*NAMES, None] * 2
        tube.put_arrow(pa.table({"data": ['"many"'] * len(several), "utube": several}))
    return DeltaTable(place / "hosts")


@pytest.mark.parametrize("reader", FINDS)
def test_sub_queue_of_a_long_or_rare_name_is_found_by_others(
    hosts: DeltaTable, reader: str
) -> None:
    found = {
        name: sorted(FINDS[reader](hosts, "utube", name).column("data").to_pylist())
        for name in NAMES
    }
    assert found == {name: ['"alone"', '"many"', '"many"'] for name in NAMES}
