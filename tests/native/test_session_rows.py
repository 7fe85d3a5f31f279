"""Sessions that nobody sweeps leave few files, and all of their counts and rows."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tubeq_spark import Queue, QueueConfig
from tubeq_spark.admin import sweeper
from tubeq_spark.model.membership import Member
from tubeq_spark.observe import health
from tubeq_spark.storage.tables.sessions import bucket_of

if TYPE_CHECKING:
    from pathlib import Path


#: So many files set off a compaction, and sessions leave three times as many as there are of them.
FILES, SESSIONS = 70, 60
#: Sessions that end without a close, in how many buckets, and how many files set off a merge.
DEAD, BUCKETS_OF_DEAD, FEW = 20, 4, 8


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A location with a tube."""
    with Queue(None, str(tmp_path), engine="native") as queue:
        queue.create_tube("work")
    return str(tmp_path)


def files(location: str) -> int:
    return len(DeltaTable(f"{location}/_tubeq_sessions").file_uris())


def test_sessions_when_nobody_sweeps_leave_few_files_and_all_counts(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "_FILES", FILES)
    monkeypatch.setattr(sweeper, "_SELDOM", 1)

    for number in range(SESSIONS):
        with Queue(None, location, engine="native") as queue:
            queue["work"].put(number)

    # The last session may have left some.
    assert files(location) <= FILES + 3
    with Queue(None, location, engine="native") as queue:
        statistics = queue.statistics("work")
        assert (statistics["calls"]["put"], statistics["tasks"]["ready"]) == (SESSIONS, SESSIONS)
        assert [task.data for task in queue["work"].take_many(SESSIONS)] == list(range(SESSIONS))


def test_health_when_sessions_have_left_many_files_says_so(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_SESSION_FILES", 4)
    for _ in range(3):
        with Queue(None, location, engine="native") as queue:
            queue["work"].put("a")
    with Queue(None, location, engine="native", config=QueueConfig(fold_heartbeats=1)) as queue:
        (problem,) = queue.health(drift=10**9).problems
        assert (problem.kind, problem.tube) == ("sweeper", None)
        assert "files of sessions" in problem.message
        queue.sweep()
        assert queue.health(drift=10**9).ok


def died(queue: Queue, count: int) -> None:
    """Let sessions of few buckets end without a close, one after the other; some are marked as dead."""
    sessions = queue._context.sessions
    ids = (str(uuid.uuid4()) for _ in itertools.count())
    few = itertools.islice((each for each in ids if bucket_of(each) < BUCKETS_OF_DEAD), count)
    for number, session in enumerate(few):
        sessions.beat(Member(session, f"{session}/m", 1, 1, True, number, {"put": 1}), number)
        if number % 3 == 0:
            assert sessions.mark_dead(session, 1, 10**9, 0)


def test_sessions_when_they_end_without_a_close_leave_few_files_and_all_rows(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "_FILES", FEW)
    with Queue(None, location, engine="native") as queue:
        died(queue, DEAD)
        before, calls = queue._context.sessions.views(), queue._context.sessions.calls("nobody", 0)
        assert files(location) > DEAD

        monkeypatch.setattr(sweeper, "_SELDOM", 1)
        # The heart does it when it starts, and is waited for.
        queue["work"].put("a")
        queue["work"].take(0)
        queue._context.session.stop()

        assert files(location) <= BUCKETS_OF_DEAD + 2
        after = queue._context.sessions.views()
        assert {name: after[name] for name in before} == before
        assert len(before) == DEAD
        assert [
            each for each in queue._context.sessions.calls("nobody", 0) if each in calls
        ] == calls
        version = queue._context.lapsed._version()
        sweeper.compact_rows_at_times(queue._context)
        assert queue._context.lapsed._version() == version
