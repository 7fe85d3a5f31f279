from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest
from loopback import FAULTS, TreeHandler, serve

from tubeq_spark.jobs.crawler import command
from tubeq_spark.jobs.crawler.fetch import (
    PAGE_SCHEMA,
    Limits,
    Outcome,
    Page,
    fetch,
    fetcher,
    load_robots,
)
from tubeq_spark.jobs.crawler.tables import FETCH_COLUMNS
from tubeq_spark.jobs.crawler.urls import Scope, host_of, links_of, normalise, parse_robots
from tubeq_spark.programs import Stop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BASE = "http://example.org/dir/page.html"
ANY = parse_robots("")


class TestNormalise:
    @pytest.mark.parametrize(
        ("link", "expected"),
        [
            ("http://example.org", "http://example.org/"),
            ("HTTP://Example.ORG:80/A", "http://example.org/A"),
            ("https://example.org:443/", "https://example.org/"),
            ("http://example.org:8080/", "http://example.org:8080/"),
            ("http://example.org/a#part", "http://example.org/a"),
            ("http://example.org/a?", "http://example.org/a"),
            ("http://example.org/a?x=1&y=%2f#z", "http://example.org/a?x=1&y=%2F"),
            ("http://example.org/a/../b/./c", "http://example.org/b/c"),
            ("http://example.org/a/%2e%2E/b", "http://example.org/b"),
            ("http://example.org/%7euser/%e4", "http://example.org/~user/%E4"),
            ("http://example.org/a b", "http://example.org/a%20b"),
            ("http://example.org/ü", "http://example.org/%C3%BC"),
            ("http://bücher.example/", "http://xn--bcher-kva.example/"),
            ("http://[::1]:80/", "http://[::1]/"),
            ("  http://example.org/a\n b ", "http://example.org/a%20b"),
            ("../up", "http://example.org/up"),
            ("/", "http://example.org/"),
            ("?q=1", "http://example.org/dir/page.html?q=1"),
            ("", BASE),
            ("#part", BASE),
            ("//other.example/x", "http://other.example/x"),
        ],
    )
    def test_gives_one_form(self, link: str, expected: str) -> None:
        assert normalise(link, BASE) == expected

    @pytest.mark.parametrize(
        "link",
        [
            "mailto:someone@example.org",
            "javascript:void(0)",
            "ftp://example.org/",
            "data:text/html,x",
            "http://user:password@example.org/",
            "http://[::1",
            "http://example.org:port/",
            "http://two words/",
            "http://example.org/\x00",
            "http://example.org/" + "a" * 2_048,
            "http://example.org/" + "ü" * 1_000,
        ],
    )
    def test_refuses_what_is_no_page(self, link: str) -> None:
        assert normalise(link, BASE) is None

    @pytest.mark.parametrize("link", ["", "relative", "//example.org/", "/path"])
    def test_needs_a_base_for_a_relative_link(self, link: str) -> None:
        assert normalise(link) is None

    @pytest.mark.parametrize("link", ["http://h/%7e%2f/a b?c=ü&d", "http://h:8/x/../y?#z"])
    def test_is_idempotent(self, link: str) -> None:
        once = normalise(link)

        assert once is not None
        assert normalise(once) == once

    def test_names_the_host_with_its_port(self) -> None:
        assert host_of("http://example.org:8080/x") == "example.org:8080"
        assert host_of("http://example.org/x") == "example.org"


class TestLinks:
    def test_come_once_each_in_page_order(self) -> None:
        html = b'<a href="b">1</a><map><area href="/c"></map><a href="b#x">2</a><a href="a">3</a>'

        assert links_of(html, BASE) == [
            "http://example.org/dir/b",
            "http://example.org/c",
            "http://example.org/dir/a",
        ]

    def test_are_only_those_of_pages(self) -> None:
        html = b"""<a name="here">no link</a><a href="mailto:a@b">mail</a><img src="x.png">
            <link href="style.css"><a href="HTTP://EXAMPLE.ORG/x">page</a>"""

        assert links_of(html, BASE) == ["http://example.org/x"]

    @pytest.mark.parametrize(
        ("base", "expected"),
        [
            ("/root/", "http://example.org/root/b"),
            ("http://other.example/", "http://other.example/b"),
            ("mailto:nobody", "http://example.org/dir/b"),
        ],
    )
    def test_honour_the_base_of_the_page(self, base: str, expected: str) -> None:
        html = f'<head><base href="{base}"></head><a href="b">b</a>'.encode()

        assert links_of(html, BASE) == [expected]

    def test_marked_nofollow_are_left_out(self) -> None:
        html = b'<a rel="noopener nofollow" href="a">a</a><a rel="next" href="b">b</a>'

        assert links_of(html, BASE) == ["http://example.org/dir/b"]

    @pytest.mark.parametrize("content", ["nofollow", "noindex, NoFollow", "none"])
    def test_of_a_nofollow_page_are_none(self, content: str) -> None:
        html = f'<meta name="Robots" content="{content}"><a href="b">b</a>'.encode()

        assert links_of(html, BASE) == []

    def test_of_an_indexable_page_are_followed(self) -> None:
        html = b'<meta name="robots" content="noindex"><meta charset="utf-8"><a href="b">b</a>'

        assert links_of(html, BASE) == ["http://example.org/dir/b"]

    @pytest.mark.parametrize(
        ("charset", "html"),
        [
            ("iso-8859-1", '<a href="ü">x</a>'.encode("latin-1")),
            (None, '<a href="ü">x</a>'.encode()),
            ("no-such-charset", '<a href="ü">x</a>'.encode()),
        ],
    )
    def test_are_decoded(self, charset: str | None, html: bytes) -> None:
        assert links_of(html, BASE, charset) == ["http://example.org/dir/%C3%BC"]

    @pytest.mark.parametrize("html", [b"", b"\x00\xff\xfe<a", b"<![foo[", b"<a href", b"<" * 9_000])
    def test_of_garbage_are_none(self, html: bytes) -> None:
        assert links_of(html, BASE) == []

    def test_of_a_page_that_was_cut_off_are_those_before_the_cut(self) -> None:
        assert links_of(b'<a href="b">b</a><a href="c', BASE) == ["http://example.org/dir/b"]

    def test_survive_deep_nesting(self) -> None:
        html = b"<a href='b'>" * 5_000

        assert set(links_of(html, BASE)) <= {"http://example.org/dir/b"}


class TestScope:
    def scope(self, text: str, **options: Any) -> Scope:
        return Scope({"example.org": parse_robots(text)}, "tubeq-crawl/1", **options)

    def test_is_the_hosts_given(self) -> None:
        scope = self.scope("")

        assert scope.covers("http://example.org/")
        assert scope.covers("https://example.org/")
        assert not scope.covers("http://example.org:8080/")
        assert not scope.covers("http://sub.example.org/")

    @pytest.mark.parametrize(
        ("text", "allowed"),
        [
            ("", True),
            ("# nothing\n", True),
            ("User-agent: *\nDisallow:", True),
            ("User-agent: *\nDisallow: /", False),
            ("User-agent: *\nDisallow: /private", False),
            ("user-AGENT: TUBEQ-crawl\ndisallow: /private", False),
            ("User-agent: other\nDisallow: /", True),
            ("User-agent: *\nDisallow: /\n\nUser-agent: tubeq-crawl\nDisallow: /x", True),
            ("User-agent: *\nAllow: /private/page\nDisallow: /private", True),
            ("Disallow: /", True),
            ("<html>not found</html>", True),
            ("\ufeffUser-agent: *\r\nDisallow: /private\r\n", False),
        ],
    )
    def test_follows_robots_txt(self, text: str, *, allowed: bool) -> None:
        assert self.scope(text).covers("http://example.org/private/page") is allowed

    def test_knows_no_rules_before_they_were_had(self) -> None:
        scope = Scope({"example.org": None}, "tubeq-crawl/1")

        assert scope.covers(BASE)
        assert not scope.knows_rules_for(BASE)
        assert not scope.knows_rules_for("http://other.example/")

    @pytest.mark.parametrize(("depth", "followed"), [(0, 1), (1, 1), (2, 0), (3, 0)])
    def test_ends_at_its_depth(self, depth: int, followed: int) -> None:
        scope = self.scope("", max_depth=2)

        assert len(scope.followed([BASE, "http://other.example/"], depth)) == followed


class TestFetch:
    def fetch(
        self,
        answer: Callable[[httpx.Request], httpx.Response],
        limits: Limits | None = None,
        scope: Scope | None = None,
    ) -> Page:
        scope = scope or Scope({"example.org": ANY}, "tubeq-crawl/1")
        task = {"task_id": 7, "url": BASE, "depth": 1, "attempt": 2}
        with httpx.Client(transport=httpx.MockTransport(answer)) as client:
            return fetch(client, task, scope, limits or Limits())

    def respond(self, status: int, **options: Any) -> Callable[[httpx.Request], httpx.Response]:
        return lambda _: httpx.Response(status, **options)

    def test_stores_a_page_with_its_links(self) -> None:
        html = '<a href="next">n</a><a href="http://other.example/">elsewhere</a>'
        page = self.fetch(self.respond(200, html=html))

        assert (page.task_id, page.depth, page.attempt) == (7, 1, 2)
        assert (page.outcome, page.status, page.error) == (Outcome.FETCHED, 200, None)
        assert (page.content_type, page.bytes) == ("text/html", len(html))
        assert page.links == ["http://example.org/dir/next"]

    def test_parses_nothing_but_html(self) -> None:
        page = self.fetch(self.respond(200, text='<a href="next">n</a>'))

        assert page.outcome == Outcome.FETCHED
        assert page.content_type == "text/plain"
        assert page.bytes > 0
        assert page.links == []

    def test_does_without_a_content_type(self) -> None:
        page = self.fetch(self.respond(200, content=b"?"))

        assert (page.outcome, page.content_type, page.bytes) == (Outcome.FETCHED, "", 1)

    def test_reads_no_more_than_allowed(self) -> None:
        read = Counter[str]()

        def body() -> Any:
            while True:
                read["chunks"] += 1
                yield b"x" * 100

        page = self.fetch(self.respond(200, content=body()), Limits(body_bytes=250))

        assert (page.outcome, page.bytes, page.truncated) == (Outcome.FETCHED, 250, True)
        assert read["chunks"] == 3

    def test_is_not_truncated_at_exactly_the_limit(self) -> None:
        page = self.fetch(self.respond(200, content=b"x" * 250), Limits(body_bytes=250))

        assert (page.bytes, page.truncated) == (250, False)

    def test_fails_when_the_page_takes_too_long(self) -> None:
        def drip() -> Any:
            yield b"x"
            yield b"x"

        page = self.fetch(self.respond(200, content=drip()), Limits(seconds=1e-9))

        assert page.outcome == Outcome.FAILED
        assert page.error == "ReadTimeout: the page took longer than it may"

    def test_caps_the_links(self) -> None:
        html = "".join(f'<a href="{number}">x</a>' for number in range(10))

        assert len(self.fetch(self.respond(200, html=html), Limits(links=3)).links) == 3

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_stores_a_redirect_as_a_link(self, status: int) -> None:
        page = self.fetch(self.respond(status, headers={"location": "/there"}))

        assert (page.outcome, page.status) == (Outcome.FETCHED, status)
        assert page.links == ["http://example.org/there"]

    @pytest.mark.parametrize("target", ["http://other.example/", "http://["])
    def test_follows_no_redirect_out_of_scope(self, target: str) -> None:
        page = self.fetch(self.respond(302, headers={"location": target}))

        assert (page.outcome, page.links) == (Outcome.FETCHED, [])

    @pytest.mark.parametrize("status", [302, 304, 400, 401, 403, 404, 410])
    def test_is_refused_for_good(self, status: int) -> None:
        page = self.fetch(self.respond(status, html='<a href="x">x</a>'))

        assert (page.outcome, page.status, page.links) == (Outcome.REFUSED, status, [])
        assert page.error is not None
        assert page.error.startswith(str(status))

    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 599])
    def test_may_go_better_next_time(self, status: int) -> None:
        assert self.fetch(self.respond(status)).outcome == Outcome.FAILED

    @pytest.mark.parametrize(
        "error", [httpx.ConnectError("no"), httpx.ReadTimeout("no"), ValueError("of a parser")]
    )
    def test_turns_errors_into_pages(self, error: Exception) -> None:
        def fail(request: httpx.Request) -> httpx.Response:
            raise error

        page = self.fetch(fail)

        assert (page.outcome, page.status) == (Outcome.FAILED, None)
        assert page.error == f"{type(error).__name__}: {error}"

    @pytest.mark.parametrize(
        ("robots", "outcome"),
        [
            (parse_robots("User-agent: *\nDisallow: /"), Outcome.REFUSED),
            (None, Outcome.FAILED),
        ],
    )
    def test_asks_nobody_against_the_rules(self, robots: Any, outcome: Outcome) -> None:
        asked: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            return httpx.Response(200)

        page = self.fetch(answer, scope=Scope({"example.org": robots}, "tubeq-crawl/1"))

        assert page.outcome == outcome
        assert page.error is not None
        assert asked == []


class TestPartition:
    def test_is_fetched_whole(self, tmp_path: Path) -> None:
        for number in range(150):
            (tmp_path / f"{number}.txt").write_text("x" * number)
        with serve([tmp_path]) as [root]:
            tasks = [
                {"task_id": number, "url": f"{root}{number}.txt", "depth": 1, "attempt": 1}
                for number in range(150)
            ]
            batches = [
                pa.RecordBatch.from_pylist(tasks[:100]),
                pa.RecordBatch.from_pylist(tasks[100:]),
            ]
            scope = Scope({host_of(root): ANY}, "tubeq-crawl/1")
            fetched = list(fetcher(scope, Limits())(iter(batches)))

        assert all(batch.schema == PAGE_SCHEMA for batch in fetched)
        rows = [row for batch in fetched for row in batch.to_pylist()]
        assert [(row["task_id"], row["bytes"], row["outcome"]) for row in rows] == [
            (number, number, "fetched") for number in range(150)
        ]

    def test_may_be_empty(self) -> None:
        assert list(fetcher(Scope({}, "tubeq-crawl/1"), Limits())(iter([]))) == []

    def test_returns_the_columns_that_the_table_has(self) -> None:
        assert [column.split()[0] for column in FETCH_COLUMNS.split(", ")] == PAGE_SCHEMA.names


class TestRobotsFile:
    class Handler(TreeHandler):
        status = 200

        def do_GET(self) -> None:  # noqa: N802
            if self.path == "/robots.txt":
                self.send_response(type(self).status)
                body = b"User-agent: *\nDisallow: /private"
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

    @pytest.mark.parametrize(
        ("status", "private"), [(200, False), (404, True), (403, True), (500, None), (429, None)]
    )
    def test_rules_by_its_status(
        self, tmp_path: Path, status: int, *, private: bool | None
    ) -> None:
        handler = type("Handler", (self.Handler,), {"status": status})
        with serve([tmp_path], handler=handler) as [root]:
            rules = load_robots({"h": root}, "tubeq-crawl/1", Limits())["h"]

        assert (rules and rules.can_fetch("tubeq-crawl/1", f"{root}private")) is private
        assert rules is None or rules.can_fetch("tubeq-crawl/1", f"{root}public")

    def test_of_a_host_that_is_away_is_unknown(self, tmp_path: Path) -> None:
        with serve([tmp_path]) as [root]:
            pass

        assert load_robots({"h": root}, "tubeq-crawl/1", Limits(seconds=1)) == {"h": None}


class TestLoopback:
    def test_serves_each_tree_under_a_root_of_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "file.txt").write_text("hello")
        with serve([tmp_path, tmp_path / "a"]) as roots:
            assert len({host_of(root) for root in roots}) == 2
            assert links_of(httpx.get(roots[0]).content, roots[0]) == [f"{roots[0]}a/"]
            assert httpx.get(f"{roots[1]}file.txt").text == "hello"

    def test_fails_as_announced(self, tmp_path: Path) -> None:
        with serve([tmp_path]) as [root]:
            index = root + FAULTS.lstrip("/")
            *flaky, broken = links_of(httpx.get(index).content, index)

            assert [httpx.get(url).status_code for url in flaky] == [503] * len(flaky)
            assert [httpx.get(url).status_code for url in flaky] == [200] * len(flaky)
            assert [httpx.get(broken).status_code for _ in range(3)] == [500] * 3


class TestStop:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_is_a_request_first(self, number: signal.Signals, code: int) -> None:
        notices: list[str] = []
        before = signal.getsignal(number)
        with Stop(notices.append) as stop:
            assert not stop()
            signal.raise_signal(number)

            assert stop()
        assert stop.exit_code == code
        assert len(notices) == 1
        assert signal.getsignal(number) is before

    def test_insists_the_second_time(self) -> None:
        with Stop(lambda _: None):
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    def test_ends_well_without_a_signal(self) -> None:
        with Stop(lambda _: None) as stop:
            pass

        assert stop.exit_code == 0


class TestCommandLine:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["http://example.org/"],
            ["--location", "/x", "--max-pages", "0"],
            ["--location", "/x", "--timeout", "nan"],
            ["--location", "/x", "--batch-size", "many"],
        ],
    )
    def test_refuses_bad_options(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit, match="2"):
            command.main(arguments)

        assert "usage: crawl.py" in capsys.readouterr().err

    def test_refuses_a_seed_that_is_no_url(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        seeds = tmp_path / "seeds.txt"
        seeds.write_text("# comment\n\nhttp://example.org/\nexample.org\n")

        assert command.main(["--location", "/x", "--seeds", str(seeds)]) == 2
        assert capsys.readouterr().err == "crawl.py: 'example.org' is no http or https URL\n"

    def test_says_which_file_is_missing(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert command.main(["--location", "/x", "--seeds", "/no/such/file"]) == 2
        assert "/no/such/file" in capsys.readouterr().err
