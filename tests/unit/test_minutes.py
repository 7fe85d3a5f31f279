"""Commits are counted by the minute, each once, and the pictures of a tube show these counts."""

from __future__ import annotations

import datetime as dt
from typing import Any

from tests.unit.test_pages import tube, tube_page
from tubeq_spark.clock import to_us
from tubeq_spark.observe.minutes import Minutes
from tubeq_spark.observe.snapshot import TubeDetails
from tubeq_spark.storage.statement import Affected, Commit

AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def commit(version: int, operation: str | None, tasks: int, *, ago: float = 0, **of: Any) -> Commit:
    """A commit some minutes before `AT`."""
    at_us = to_us(AT) - round(ago * 60_000_000)
    return Commit(version, at_us, operation, "s", tasks, 0, "WRITE", of.get("affected"))


def test_minutes_when_commits_are_read_again_count_each_once() -> None:
    minutes = Minutes()
    first = [commit(2, "put", 5, ago=1), commit(1, "put", 7, ago=59)]
    minutes.add(first)

    minutes.add([commit(3, "ack", 4), *first])

    hour = minutes.periods(to_us(AT), 60, 1)
    assert len(hour) == 60
    assert hour[0] == {"added": 7}
    assert hour[58] == {"added": 5}
    assert hour[59] == {"done": 4}
    assert sum(sum(each.values()) for each in hour) == 16


def test_minutes_by_verb_count_added_done_and_failed_tasks() -> None:
    minutes = Minutes()
    minutes.add(
        [
            commit(7, None, 9),
            commit(6, "compact", 9),
            commit(5, "exchange", 5, affected=Affected(0, 3, 2)),
            commit(4, "bury", 1),
            commit(3, "release", 2),
            commit(2, "take", 9),
            commit(1, "urgent", 1),
        ]
    )

    assert minutes.periods(to_us(AT), 1, 1) == [{"added": 1, "failed": 3, "done": 2}]


def test_minutes_of_a_tube_that_was_created_again_begin_anew() -> None:
    minutes = Minutes()
    minutes.add([commit(90, "put", 5)])

    minutes.add([commit(1, "put", 2)])

    assert minutes.periods(to_us(AT), 1, 1) == [{"added": 2}]


def test_minutes_older_than_a_day_are_forgotten() -> None:
    minutes = Minutes()
    for number in range(2_000):
        minutes.add([commit(number, "put", 1, ago=2_000 - number)])

    assert sum(each["added"] for each in minutes.periods(to_us(AT), 3_000, 1)) == 1_440


def test_picture_shows_sums_and_the_highest_minute() -> None:
    minutes = Minutes()
    minutes.add([commit(3, "put", 5), commit(2, "bury", 1, ago=20), commit(1, "put", 40, ago=200)])

    text = tube_page(tube(), TubeDetails(minutes=minutes))

    assert "The last hour, by the minute: 5 added, 0 done, 1 failed. Highest point: 5." in text
    assert "The last day, by 15 minutes: 45 added, 0 done, 1 failed. Highest point: 40." in text
    assert text.count("<polyline") == 6
