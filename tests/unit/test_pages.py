"""The page of a snapshot: all that it says is escaped, and it is one file without scripts."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import pytest

from tubeq_spark import Health, Problem, SessionInfo, TubeMetrics, UtubeCounts
from tubeq_spark.markup import joined
from tubeq_spark.observe.pages import (
    document,
    now,
    overview,
    policy,
    size,
    tube_details,
    tube_now,
)
from tubeq_spark.observe.snapshot import Flow, Snapshot, TubeDetails, TubeSnapshot, flows
from tubeq_spark.storage.note import Commit

AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\"'&"


class Texts(HTMLParser):
    """What a browser would show, and the tags that it would make."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def metrics(**given: Any) -> TubeMetrics:
    return TubeMetrics(
        **{
            "type": "fifo",
            "ready": 1_200,
            "delayed": 2,
            "taken": 3,
            "buried": 4,
            "oldest_ready_age": 90.0,
            "leases_ending": 0,
            "unswept": 5,
            "unswept_age": 3600.0,
            "conflicts": 7,
            "calls": {"put": 1_300, "ack": 0},
            "commits": 99,
            "last_commit": AT,
            "log_commits": None,
            "files": 12,
            "size_bytes": 3_400_000,
        }
        | given
    )


def snapshot(*problems: Problem, location: str = "/data/q", **tubes: TubeSnapshot) -> Snapshot:
    return Snapshot(location, "native", AT, tubes, Health(AT, problems))


def tube(name: str = "mail", *, done: int = 10, stored: int = 1_209, **given: Any) -> TubeSnapshot:
    return TubeSnapshot(name, metrics(**given), done, stored)


def test_overview_given_tubes_has_depth_ages_throughput_and_storage() -> None:
    moving = TubeSnapshot("mail", metrics(), 10, 1_209, Flow(2.5, 0.25, 30.0))

    page = Texts(document("q", overview(snapshot(mail=moving, empty=tube("empty")))))

    text = " ".join(page.texts)
    for shown in (
        "/data/q",
        "1,200",
        "90 s",
        "2.5",
        "0.2",
        "3 MB",
        "2026-01-02 03:04:05",
        "60 min",
    ):
        assert shown in text
    assert "No problem was found." in text
    assert "the last 30 s, by all processes" in text


def test_pages_given_hostile_values_show_them_as_text() -> None:
    evil = tube(HOSTILE, type=HOSTILE, calls={HOSTILE: 1})
    problem = Problem(HOSTILE, HOSTILE, HOSTILE)
    info = SessionInfo(UUID(int=7), HOSTILE, HOSTILE, 7, None, None, 1, {HOSTILE: 1})
    found = replace(snapshot(problem, location=HOSTILE, x=evil), sessions=[info])

    commit = Commit(1, 0, HOSTILE, HOSTILE, 1, 0, None, None)
    counts = UtubeCounts(HOSTILE, 1, 2, 3, 4, AT)
    details = TubeDetails([commit], [counts], {HOSTILE: 1}, HOSTILE)
    both = joined([tube_now(evil), now(details, AT), tube_details(evil, [commit])])
    reported = overview(found, details={HOSTILE: details})
    for body in (reported, overview(found, lambda name: name), both):
        made = document(HOSTILE, body, refresh=5)
        page = Texts(made)
        assert "script" not in page.tags
        assert "\x1b" not in made
        assert "\u202e" not in made
        assert r"<script>alert(1)</script>\x1b[2J\u202e" in " ".join(page.texts)
        assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_document_when_opened_loads_nothing_and_may_run_nothing() -> None:
    page = document("q", overview(snapshot(Problem("sweeper", "mail", "late"), mail=tube())))

    assert not re.search(r"https?://|url\(|@import|<(script|link|img|iframe)", page)
    assert "default-src 'none'" in policy()
    assert "unsafe" not in policy()
    assert "refresh" not in page


def test_sessions_when_listed_have_where_they_are_what_they_hold_and_how_long() -> None:
    def info(number: int, seconds: float | None, **tubes: int) -> SessionInfo:
        until = None if seconds is None else AT + dt.timedelta(seconds=seconds)
        return SessionInfo(UUID(int=number), "m", "host-7", 4_321, AT, until, 1, tubes)

    found = replace(
        snapshot(), sessions=[info(1, 30, mail=1_000, web=2), info(2, -60), info(3, None)]
    )

    text = " ".join(Texts(overview(found)).texts)

    for shown in ("1,000 of mail, 2 of web", "30 s left", "ended 60 s ago", "without end", "4321"):
        assert shown in text
    assert "No session" in overview(snapshot())


def test_subqueues_when_listed_have_their_tasks_and_the_age_of_the_oldest() -> None:
    counts = [UtubeCounts("a", 1_000, 1, 2, 3, AT), UtubeCounts(None, 0, 0, 0, 1, AT)]

    made = now(TubeDetails(subqueues=counts), AT + dt.timedelta(seconds=90))
    text = " ".join(Texts(made).texts)

    assert "The 2 with the most tasks. sub-queue ready taken" in text
    assert "a 1,000 1 2 3 90 s tasks without one 0 0 0 1 90 s" in text
    assert "None of them has tasks." in now(TubeDetails(subqueues=[]), AT)
    assert now(TubeDetails(), AT) == ""


def test_report_when_made_names_the_tube_of_each_part() -> None:
    details = TubeDetails((), [], {"ValueError": 1_200, "TypeError": 3}, "Task 7 is next.")

    text = " ".join(Texts(overview(snapshot(), details={"mail": details})).texts)

    assert "First ready task of mail Task 7 is next." in text
    assert "Failures of mail" in text
    assert "error tasks ValueError 1,200 TypeError 3 Sub-queues of mail" in text


def test_flows_when_looked_at_again_are_of_what_was_put_and_done_between() -> None:
    before = snapshot(a=tube("a", done=10, stored=100), again=tube("again", done=5))
    now = {
        "a": tube("a", done=40, stored=110),
        "again": tube("again", done=0),
        "new": tube("new"),
    }

    found = flows(now, AT + dt.timedelta(seconds=20), before)

    assert found["a"].flow == Flow(added=2.0, done=1.5, seconds=20.0)
    assert (found["again"].flow, found["new"].flow) == (None, None)
    assert flows(now, AT, before)["a"].flow is None


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1_000, "1 KB"), (2_500_000, "2 MB"), (3e12, "3 TB")]
)
def test_size_is_in_the_unit_that_it_is_read_in(count: float, shown: str) -> None:
    assert size(count) == shown
