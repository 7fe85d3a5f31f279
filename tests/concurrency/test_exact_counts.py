"""The count of done tasks stays exact on Spark, and natively after its part of the log is removed.

That stops, crashes and rivals count each task once is judged by the simulation.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.concurrency.support import PAST_TTR, World, ids_of
from tubeq_spark import PutItem
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.tidying import LocalRetention

if TYPE_CHECKING:
    from tubeq_spark import Queue


NATIVE = pytest.mark.parametrize("engine", ["native"], indirect=True, scope="module")
SPARK = pytest.mark.parametrize("engine", ["spark"], indirect=True, scope="module")


def done(queue: Queue, name: str = "shared") -> int:
    count: int = queue.statistics(name)["tasks"]["done"]
    return count


def due(world: World) -> None:
    """Two lives and a lease that have ended, beside a lease that lasts in the same segment."""
    items = [PutItem("a"), PutItem("b", ttr=10_000), PutItem("c", ttl=PAST_TTR)]
    world.rival.put_many([*items, PutItem("d", ttl=PAST_TTR, delay=1)])
    world.tube.take_many(2)
    world.clock.advance(PAST_TTR + 1)


@NATIVE
def test_done_when_the_log_is_shortened_and_all_moments_have_passed_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = done(world.rivals)
    world.tube.ack_many(world.taken("ab"))
    log = Path(world.place, world.tube.name, "_delta_log")
    table = DeltaTable(str(log.parent))
    table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 0 hours"})
    monkeypatch.setattr(tidying, "EVERY", 2)
    monkeypatch.setattr(LocalRetention, "SECONDS", -3600.0)
    monkeypatch.setattr(LocalRetention, "versions", 1)

    for letter in "abcd":
        world.tube.put(letter)
    DeltaTable(str(log.parent)).create_checkpoint()
    assert done(world.rivals) == before + 2
    if world.spark is None:
        assert len(list(log.glob("*.json"))) < 6
    assert done(world.open_queue()) == before + 2


@SPARK
@pytest.mark.thorough
def test_done_on_spark_counts_what_each_commit_ends_and_others_see_it_after_the_next_heartbeat(
    world: World,
) -> None:
    before = done(world.mine)
    ids = world.taken("abcde")
    world.tube.ack_many(ids[:2])
    world.tube.exchange(ack=ids[2:3], take=0)
    world.tube.delete(ids[3])
    world.tube.put("f")
    world.tube.exchange(ack=ids[4:], take=1)
    world.put("gh")
    world.tube.take_arrow(2).ack()
    due(world)
    world.mine.sweep()
    assert done(world.mine) == before + 9

    world.mine.cfg(ttr=PAST_TTR)
    assert done(world.rivals) == done(world.mine)


@SPARK
@pytest.mark.thorough
@pytest.mark.parametrize("options", [{"change_feed": True}, {"unique_for": 10_000}], ids=str)
def test_done_on_spark_counts_ended_tasks_whose_rows_stay_for_a_while(
    world: World, options: dict[str, Any]
) -> None:
    tube = world.mine.create_tube(f"stays_{next(iter(options))}", "fifottl", **options)
    tube.put_many([PutItem("a", ttl=5, unique="a"), PutItem("b", ttl=5), PutItem("c", unique="c")])
    tube.put_many([PutItem("d", unique="d"), PutItem("e")])
    world.clock.advance(6)
    world.mine.sweep()
    tube.ack(ids_of(tube.take_many(1))[0])
    tube.take_arrow(2).ack()

    assert done(world.mine, tube.name) == 5
