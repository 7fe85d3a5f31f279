"""The page of a snapshot shows all texts escaped, also on a terminal, and is one file without scripts."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import pytest

import tubeq_spark.testing
from tubeq_spark import Health, Problem, SessionInfo, TubeMetrics, UtubeCounts, markup
from tubeq_spark.markup import Age, Html, fields, joined, printable, printable_json, table, tag
from tubeq_spark.model.reports import QueueMetrics
from tubeq_spark.observe import pages
from tubeq_spark.observe.snapshot import Flow, Snapshot, TubeDetails, TubeSnapshot, with_flows
from tubeq_spark.storage.statement import Commit

AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
AT_US = 1_767_323_045_000_000
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


def text_of(page: str) -> str:
    return " ".join(Texts(page).texts)


def snapshot(*problems: Problem, location: str = "/data/q", **tubes: TubeSnapshot) -> Snapshot:
    return Snapshot(location, "native", QueueMetrics(AT, {}, 0), tubes, Health(AT, problems))


def tube_page(of: TubeSnapshot, details: TubeDetails, **values: Any) -> str:
    usual: dict[str, Any] = {"state": None, "why": None, "at": AT}
    usual |= {"payloads": False, "text_of": str, "tasks": [], "limit": 50}
    return pages.tube(of, details, **usual | values)


def tube(name: str = "mail", **given: Any) -> TubeSnapshot:
    counts = {"done": 10, "ready": 1_200, "delayed": 2, "taken": 3, "buried": 4, "leases_ending": 0}
    ages = {
        "oldest_ready_age": 90.0,
        "oldest_put_age": 95.0,
        "unswept": 5,
        "unswept_age": 3600.0,
        "conflicts": 7,
    }
    stored_in = {"commits": 99, "last_commit": AT, "log_commits": None, "files": 12}
    values: dict[str, Any] = {"type": "fifo", "calls": {"put": 1_300}, "size_bytes": 3_400_000}
    return TubeSnapshot(name, TubeMetrics(**values | counts | ages | stored_in | given))


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "0s oldest ready"), (None, "none oldest ready")]
)
def test_oldest_ready_task_when_it_has_just_come_has_an_age(
    seconds: float | None, shown: str
) -> None:
    of = tube(oldest_ready_age=seconds)
    for page in (pages.overview(snapshot(mail=of), "q"), tube_page(of, TubeDetails())):
        assert shown in " ".join(text_of(page).split())


def test_overview_given_tubes_has_depth_ages_throughput_and_storage() -> None:
    moving = replace(tube(), flow=Flow(2.5, 0.25, 30.0))

    text = text_of(pages.overview(snapshot(mail=moving, empty=tube("empty")), "q"))

    for shown in ("/data/q", "1,200", "90s", "2.5", "0.25", "3,400,000", "2026-01-02T03:04:05Z"):
        assert shown in text
    for shown in ("60m", "No problem was found.", "all processes during the last 30s."):
        assert shown in text


def test_pages_given_hostile_values_show_them_as_text() -> None:
    evil = tube(HOSTILE, type=HOSTILE, calls={HOSTILE: 1})
    problem = Problem(HOSTILE, HOSTILE, HOSTILE)
    info = SessionInfo(UUID(int=7), HOSTILE, HOSTILE, 7, AT, None, 1, {HOSTILE: 1})
    found = replace(snapshot(problem, location=HOSTILE, x=evil), sessions=[info])

    commit = Commit(1, 0, HOSTILE, HOSTILE, 1, 0, None, None)
    counts = UtubeCounts(HOSTILE, 1, 2, 3, 4, AT)
    details = TubeDetails([commit], [counts], {HOSTILE: 1}, HOSTILE)
    task = tubeq_spark.testing.task(
        {HOSTILE: HOSTILE}, utube=HOSTILE, error=f"{HOSTILE}\n{HOSTILE}"
    )
    asked = {"state": "buried", "payloads": True, "tasks": [task], "why": HOSTILE}
    for made in (
        pages.overview(found, HOSTILE, {HOSTILE: details}),
        pages.overview(found, HOSTILE, every=5, live=True),
        tube_page(evil, details, **asked),
    ):
        page = Texts(made)
        assert "script" not in page.tags
        assert "\x1b" not in made
        assert "\u202e" not in made
        assert r"<script>alert(1)</script>\x1b[2J\u202e" in " ".join(page.texts)
        assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_document_when_opened_loads_nothing_and_may_run_nothing() -> None:
    found = snapshot(Problem("sweeper", "mail", "late"), mail=tube())
    page = pages.overview(found, "q")

    assert not re.search(r"https?://|url\(|@import|<(script|link|img|iframe)", page)
    assert "default-src 'none'" in pages.policy()
    assert "unsafe" not in pages.policy()
    assert 'http-equiv="refresh' not in page


def test_sessions_when_listed_have_where_they_are_what_they_hold_and_how_long() -> None:
    def info(number: int, seconds: float | None, **tubes: int) -> SessionInfo:
        until = None if seconds is None else AT + dt.timedelta(seconds=seconds)
        return SessionInfo(UUID(int=number), "m", "host-7", 4_321, AT, until, 1, tubes)

    sessions = [info(1, 30, mail=1_000, web=2), info(2, -60), info(3, None)]

    text = text_of(pages.overview(replace(snapshot(), sessions=sessions), "q"))

    for shown in ("mail: 1,000, web: 2", "30s", "ended 60s ago", "never", "4321"):
        assert shown in text
    assert "No active sessions" in pages.overview(snapshot(), "q")


def test_details_when_shown_have_subqueues_failures_and_conflicts() -> None:
    counts = [UtubeCounts("a", 1_000, 1, 2, 3, AT), UtubeCounts(None, 0, 0, 0, 1, AT)]
    commits = [Commit(number, AT_US, "take", "s", 1, 2, None, None) for number in range(3)]
    details = TubeDetails(commits, counts, {"ValueError": 1_200, "TypeError": 3}, "Task 7 is next.")

    later = AT + dt.timedelta(seconds=90)
    alone = tube_page(tube(), TubeDetails(subqueues=counts), at=later)
    page = pages.overview(snapshot(), "q", {"mail": details, "new": TubeDetails()})
    report = text_of(page)

    assert "The 2 with the most tasks; " in alone
    assert " a 1,000 1 2 3 90s 0 0 0 1 90s " in " ".join(text_of(alone).split())
    assert "None of them has tasks." in tube_page(tube(), TubeDetails(subqueues=[]))
    assert "Sub-queues" not in tube_page(tube(), TubeDetails())
    report = " ".join(report.split())
    assert "First ready task of mail Task 7 is next." in report
    assert "error tasks ValueError 1,200 TypeError 3 Sub-queues of mail" in report
    assert '<td>mail</td><td class="n">6</td><td class="n">3</td><td>2026-01-02T03:04:05' in page
    assert '<td>new</td><td class="n">0</td><td class="n">0</td><td></td>' in page
    assert "<td>take</td>" in tube_page(tube(), details)


def test_flows_when_looked_at_again_are_of_what_was_put_and_done_between() -> None:
    def measured(seconds: float, **tubes: TubeSnapshot) -> QueueMetrics:
        found = {name: of.metrics for name, of in tubes.items()}
        return QueueMetrics(AT + dt.timedelta(seconds=seconds), found, 0)

    before = measured(0, a=tube(done=10, ready=100), again=tube(done=5))
    now = {"a": tube(done=40, ready=110), "again": tube(done=0), "new": tube()}

    found = with_flows(measured(20, **now), before)

    assert found["a"].flow == Flow(added=2.0, done=1.5, seconds=20.0)
    assert (found["again"].flow, found["new"].flow) == (None, None)
    assert with_flows(measured(0, **now), before)["a"].flow is None
    assert with_flows(measured(20, **now), None)["a"].flow is None


def test_ages_are_in_the_unit_that_they_are_read_in() -> None:
    seconds = (0, 119, 120, 7_200, 200_000)
    assert [str(Age(each)) for each in seconds] == ["0s", "119s", "2m", "2h", "2d"]
    assert Age.of(None) is None
    assert [markup.shown(each) for each in (1_234, 0.25, 1 / 3, None, True)] == [
        "1,234",
        "0.25",
        "0.333",
        "",
        "True",
    ]


# -- HTML, and texts on a terminal --------------------------------------------------------------------


def test_tag_escapes_what_is_no_html() -> None:
    made = tag("a", "<i>'1'", href='"><script>', class_="x", hidden=None)

    assert made == '<a href="&quot;&gt;&lt;script&gt;" class="x">&lt;i&gt;&#x27;1&#x27;</a>'
    assert tag("p", tag("b", 1234567), None, 0.5, True) == "<p><b>1,234,567</b>0.5True</p>"
    assert joined(["<", Html("<br>"), tag("b")]) == "&lt;<br><b></b>"


def test_table_given_more_rows_than_its_limit_says_how_many_are_left_out() -> None:
    made = table(["<", "n"], [["<", 1], ["b", 2], ["c", 3]], limit=1)

    assert made.count("<tr>") == 2
    assert '<th scope="col">&lt;</th>' in made
    assert '<td>&lt;</td><td class="n">1</td>' in made
    assert made.endswith("<p>… and 2 more</p>")
    assert "more" not in table(["a"], [["b"]], limit=1)
    made = fields("<b>", [("a", "<"), ("n", None)])
    assert made.startswith("<table><caption>&lt;b&gt;</caption><tbody><tr>")
    assert '<th scope="row">a</th><td>&lt;</td>' in made


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é, 漢字 and 👩\u200d👧", "plain, é, 漢字 and 👩\u200d👧"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J\x7f\x00", "\\x9b2J\\x7f\\x00"),
        ("a\rb\x08", "a\\rb\\x08"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_text_when_it_controls_a_terminal_has_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown
    as_json = printable_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(as_json) == text
    assert printable(as_json) == as_json
    assert tag("i", text, title=text) == f'<i title="{shown}">{shown}</i>'
    lines = "a\tb\nc"
    assert (printable(lines), tag("i", lines)) == ("a\\tb\\nc", f"<i>{lines}</i>")
    assert printable("a\nb\x1b\t", "\n\t") == "a\nb\\x1b\t"
