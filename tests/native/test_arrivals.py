"""A verb that waits notices commits of other processes by the names in the log."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import Queue, QueueConfig
from tubeq_spark.storage.durability.synced_log import Arrivals, SyncedLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Seconds between two looks of a wait that hears of nothing: longer than the test.
NEVER = 3_600.0
#: Seconds for a process to begin and put; a wait that hears of it takes a fraction.
PATIENCE = 60.0

OTHER = """
import sys
from tubeq_spark import Queue
with Queue(None, sys.argv[1], engine="native") as queue:
    tube = queue["work"]
    {does}
"""


def other_process(place: Path, does: str) -> None:
    command = [sys.executable, "-c", OTHER.format(does=does), str(place)]
    subprocess.run(command, check=True, capture_output=True, text=True)


def opened(place: Path, **settings: object) -> Queue:
    config = QueueConfig(poll_first=NEVER, poll_most=NEVER, **settings)  # type: ignore[arg-type]
    return Queue(None, str(place), engine="native", config=config)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("kind", "does"),
    [("fifo", "tube.put('a')"), ("utube", "tube.put('a', utube='x')"), ("fifottl", "tube.kick()")],
)
def test_take_that_waits_finds_what_another_process_makes_ready(
    tmp_path: Path, kind: str, does: str
) -> None:
    with opened(tmp_path) as queue:
        tube = queue.create_tube("work", kind)
        if "kick" in does:
            tube.bury(tube.put("a").task_id)
        other = threading.Thread(target=other_process, args=(tmp_path, does))
        other.start()
        task = tube.take(PATIENCE)
        other.join()
        assert task.data == "a"


def test_arrivals_when_the_log_was_shortened_beyond_them_are_counted_again(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    for version in (0, 1):
        (log / f"{version:020}.json").write_text("{}\n")
    arrivals = Arrivals(SyncedLog(tmp_path), ())
    assert arrivals.count() == 0
    # As for a process that was suspended meanwhile.
    for version in (0, 1):
        (log / f"{version:020}.json").unlink()
    for version in (7, 8):
        (log / f"{version:020}.json").write_text("{}\n")
    missed = arrivals.count()
    assert missed > 0
    (log / f"{9:020}.json").write_text("{}\n")
    assert arrivals.count() == arrivals.count() == missed + 1


def test_arrivals_count_commits_but_for_those_that_change_nothing_that_is_waited_for(
    tmp_path: Path,
) -> None:
    log = tmp_path / "work" / "_delta_log"
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue.create_tube("work", "fifottl")
        tube.put_many(["a", "b"])
        arrivals = Arrivals(SyncedLog(log.parent), {"take", "ack"})

        def counted(verb: Callable[[], object]) -> int:
            before = arrivals.count()
            verb()
            return arrivals.count() - before

        assert arrivals.count() == 0
        first, second = tube.take_many(2)
        assert arrivals.count() == 0
        assert counted(lambda: tube.ack(first.task_id)) == 0
        assert counted(lambda: tube.release(second.task_id)) == 1
        assert counted(lambda: [tube.put("c"), tube.put("d")]) == 2
        # What another tool has committed may be anything.
        (log / f"{len(list(log.glob('0*.json'))):020}.json").write_text("{}\n")
        assert arrivals.count() == 4
    assert Arrivals(SyncedLog(tmp_path / "nowhere"), ()).count() == 0
