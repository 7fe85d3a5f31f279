"""`tubeq dashboard` and `tubeq report` show the queue, and change nothing.

What a browser makes of the pages is in `test_dashboard_in_browser.py`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import signal
import socket
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import uvicorn

from tests.acceptance.command_line import invoke
from tests.programs import started
from tubeq_spark import Queue
from tubeq_spark.cli.call import Outside
from tubeq_spark.cli.dashboard_app import make_app
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer.testing import Result

SCRIPT = "<script>document.title='gotcha'</script>\x1b[2J"
SHOWN = "&lt;script&gt;document.title=&#x27;gotcha&#x27;&lt;/script&gt;"


class Site:
    """A dashboard that runs, as a client sees it that sends what it likes."""

    def __init__(self, port: int, clock: ManualClock) -> None:
        self.port = port
        self.clock = clock
        self.headers: dict[str, str] = {}

    def get(self, path: str = "/", **headers: str) -> tuple[int, str]:
        """The page at a path, as it is by now."""
        self.clock.advance(2)
        answer = httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=headers, timeout=60)
        self.headers = dict(answer.headers)
        return answer.status_code, answer.text


@contextmanager
def served(queue: Queue, clock: ManualClock) -> Iterator[Site]:
    """A dashboard, served for a block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            make_app(queue, clock), log_config=None, access_log=False, lifespan="off"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield Site(listener.getsockname()[1], clock)
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(dt.datetime.now(dt.UTC))  # as the storage has it


@pytest.fixture
def queue(location: str, clock: ManualClock) -> Iterator[Queue]:
    with Queue(None, location, engine="native", clock=clock) as queue:
        yield queue


@pytest.fixture
def site(queue: Queue, clock: ManualClock) -> Iterator[Site]:
    with served(queue, clock) as site:
        yield site


def buried(queue: Queue, count: int = 3, data: object = SCRIPT) -> None:
    """A tube `mail` with so many buried tasks."""
    tube = queue.create_tube("mail", "utubettl")
    tube.put_many([data] * count, utube=SCRIPT)
    for _ in range(count):
        task = tube.take(0)
        tube.bury(task.task_id)


def commits(location: str) -> set[str]:
    return {str(file) for file in Path(location).glob("*/_delta_log/*.json")}


def test_pages_when_read_show_the_queue_and_commit_nothing(
    queue: Queue, site: Site, location: str, clock: ManualClock
) -> None:
    buried(queue)
    queue["mail"].put_many(["x"] * 4)
    held = queue.create_tube("held")
    held.put_many([1, 2])
    held.take_many(2)
    before = commits(location)

    status, page = site.get()
    headers = site.headers
    clock.advance(28)  # and two by each look
    _, tube = site.get("/tube/mail")

    assert status == 200
    assert commits(location) == before
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "frame-ancestors 'none'" in policy
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert location in page
    assert '<a href="/tube/mail">mail</a>' in page
    assert "<b>4</b><span>ready</span>" in page
    assert "<b>3</b><span>buried</span>" in page
    assert "No problem was found." in page
    assert str(queue.session_uuid) in page
    assert '<td class="n">2</td><td>held: 2</td>' in page
    assert "<b>32s</b><span>oldest ready</span>" in tube
    assert '<td>bury</td><td class="n">3</td>' in tube
    assert "The 2 with the most tasks;" in tube
    assert '<td></td><td class="n">4</td><td class="n">0</td>' in tube
    assert "Sub-queues" not in site.get("/tube/held")[1]
    assert f'<td>put</td><td class="n">4</td><td class="n">0</td><td>{queue.session_uuid}' in tube
    assert "<form" not in tube


def test_throughput_when_looked_at_again_is_that_of_all_processes(
    queue: Queue, site: Site, location: str, clock: ManualClock
) -> None:
    queue.create_tube("mail").put_many([1] * 10)
    assert "Throughput appears after the next refresh" in site.get()[1]
    with Queue(None, location, engine="native", clock=clock) as other:
        other["mail"].put_many([1] * 16)
        other["mail"].take_arrow(8).ack()
        clock.advance(6)  # and two by the next look

        page = site.get()[1]

    assert "Throughput counts all processes during the last 8s." in page
    assert "<td>2.0</td><td>1.0</td>" in page


def test_payloads_and_errors_when_not_asked_for_are_not_there_and_else_are_text(
    queue: Queue, site: Site
) -> None:
    buried(queue, data={"evil": SCRIPT, "long": "x" * 10_000})
    failed = queue["mail"].put("x")
    queue["mail"].bury(failed.task_id, error=f"it is {SCRIPT} and \x1b[31m red")

    pages = [site.get(path)[1] for path in ("/", "/tube/mail", "/tube/mail?state=buried")]
    status, asked = site.get("/tube/mail?state=buried&payloads=1")

    assert status == 200
    assert not any("evil" in page or " red" in page for page in pages)
    assert "Show the payloads" in pages[2]
    assert pages[2].count(SHOWN) == 4  # the sub-queue, of each task and in the list of these
    assert asked.count("evil") == 3
    assert asked.count(SHOWN) == 8
    assert asked.count("… (10,") == 3
    assert " red" in asked
    for page in (*pages, asked):
        assert "<script" not in page
        assert "\x1b" not in page


def test_task_when_asked_why_it_waits_says_so_as_text_and_one_that_is_gone_too(
    queue: Queue, site: Site
) -> None:
    buried(queue)
    first, second = queue["mail"].put_many(["x", "y"], utube=SCRIPT)

    page = site.get(f"/tube/mail?state=ready&why={second.task_id}")[1]
    queue["mail"].delete(second.task_id)
    gone = site.get(f"/tube/mail?state=ready&why={second.task_id}")[1]

    assert f'<a href="?state=ready&amp;why={first.task_id}">{first.task_id}</a>' in page
    assert "waits: 1 task of its sub-queue &quot;&lt;script&gt;" in page
    assert "comes before it.</p>" in page
    assert f"task {second.task_id} not found" in gone
    assert "is next: the next take gets it.</p>" in gone  # the first one
    assert site.get(f"/tube/mail?state=ready&why={'9' * 5_000}")[0] == 200


def test_page_of_what_is_not_there_says_so_as_text(queue: Queue, site: Site) -> None:
    queue.create_tube("mail")

    for path in ("/tube/%3Cscript%3Ex", "/tube/mail/kick", "/nothing", "/tube/a%2Fb"):
        status, page = site.get(path)
        assert status == 404
        assert "<script" not in page
    assert site.get("/tube/mail?state=%3Cb%3E&payloads=x")[0] == 200


def test_request_for_another_host_is_refused_and_through_a_tunnel_answered(
    queue: Queue, site: Site
) -> None:
    buried(queue)

    for host in ("evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "localhost@evil", ""):
        status, page = site.get("/", Host=host)
        assert status in (400, 403), host
        assert "mail" not in page
    for host in ("localhost:9999", "127.0.0.1", "[::1]:8333"):
        assert site.get("/", Host=host)[0] == 200, host


def test_errors_in_lists_show_their_kind_and_fold_their_traceback(queue: Queue, site: Site) -> None:
    (task,) = queue.create_tube("mail", "fifo").put_many(["x"])
    queue["mail"].bury(task, error="ValueError: no address\n  File a\n  File b")

    listed = site.get("/tube/mail?state=buried")[1]
    asked = site.get("/tube/mail?state=buried&payloads=1")[1]

    assert "<td>ValueError</td>" in listed
    assert "no address" not in listed
    assert "<summary>ValueError: no address</summary><code>  File a\n  File b</code>" in asked


def test_page_when_storage_fails_says_so_and_looks_again(
    queue: Queue, site: Site, location: str
) -> None:
    queue.create_tube("mail")
    Path(location).rename(f"{location}-away")

    status, page = site.get()
    assert status == 500
    assert "no queue at" in page
    assert 'http-equiv="refresh"' in page
    Path(f"{location}-away").rename(location)
    assert site.get()[0] == 200


def report(location: str, file: Path, clock: ManualClock, *options: str) -> Result:
    """Write a report."""
    arguments = ("--engine=native", "--location", location, "report", "--html", str(file))
    return invoke(*arguments, *options, outside=Outside(clock=clock))


def test_report_when_written_is_one_file_of_what_the_dashboard_shows(
    queue: Queue, location: str, tmp_path: Path, clock: ManualClock
) -> None:
    buried(queue, data="secret")
    queue["mail"].put_many(["secret"] * 4)
    taken = queue["mail"].take_many(3, per_utube=3)
    for task, error in zip(taken, (ValueError("secret"), "secret", "secret"), strict=True):
        queue["mail"].release(task.task_id, error=error)
    before = commits(location)
    made = len(list(Path(location, "mail", "_delta_log").glob("*.json")))
    file = tmp_path / "report.html"

    started = clock.now()
    assert report(location, file, clock).stdout == f"wrote {file}\n"
    page = file.read_text(encoding="utf-8")

    assert (clock.now() - started).total_seconds() == 2
    assert commits(location) == before
    assert "secret" not in page
    assert not re.search(r"<a |<script|https?://", page)
    for shown in (
        "<b>3</b><span>buried</span>",
        "Throughput counts all processes during the last 2s.",
        f'<td>mail</td><td class="n">0</td><td class="n">{made}</td>',
        "is next: the next take gets it.</p>",
        '<td>ValueError</td><td class="n">1</td>',
        f'<td>{SHOWN}\\x1b[2J</td><td class="n">0</td>',
        '<td></td><td class="n">4</td>',
    ):
        assert shown in page
    told = report(location, file, clock, "--json", "--over=0").stdout
    assert json.loads(told) == {"file": str(file), "problems": 0}
    assert "Throughput appears after the next refresh" in file.read_text(encoding="utf-8")
    nowhere = report(location, tmp_path / "no" / "report.html", clock)
    assert (nowhere.exit_code, nowhere.stdout, nowhere.stderr.count("\n")) == (2, "", 1)


def test_tube_of_which_a_file_is_gone_is_a_problem_and_hides_no_other(
    queue: Queue, location: str, tmp_path: Path, clock: ManualClock
) -> None:
    buried(queue)
    queue.create_tube("broken").put("a")
    for file in Path(location, "broken").rglob("*.parquet"):
        file.unlink()
    file = tmp_path / "report.html"

    assert report(location, file, clock).exit_code == 0

    page = file.read_text(encoding="utf-8")
    assert "<strong>damage, broken</strong>" in page
    assert "<b>3</b><span>buried</span>" in page
    with (
        Queue(None, location, engine="native", clock=clock) as other,
        served(other, clock) as site,
    ):
        status, page = site.get()
        assert (status, page.count("damage, broken")) == (200, 1)
        assert site.get("/tube/mail")[0] == 200
        assert site.get("/tube/broken")[0] == 200


@pytest.mark.processes
def test_dashboard_when_started_prints_where_it_is_and_ends_by_a_signal(
    queue: Queue, location: str
) -> None:
    buried(queue, 1)
    command = ("--engine=native", "--location", location, "dashboard")
    with started("-m", "tubeq_spark.cli", *command, "--port=0") as process:
        url = process.stdout.readline().strip()
        port = int(url.removeprefix("http://127.0.0.1:").removesuffix("/"))
        site = Site(port, ManualClock())
        assert site.get()[0] == 200
        assert listens_on_loopback_only(port)
        taken = invoke(*command, f"--port={port}")
        assert taken.exit_code == 3
        assert "in use" in taken.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def listens_on_loopback_only(port: int) -> bool:
    """By the system's table of sockets, where it has one."""
    table = Path("/proc/net/tcp")
    if not table.exists() or os.name != "posix":
        return True
    lines = [line.split() for line in table.read_text("utf-8").splitlines()[1:]]
    found = {local for _, local, _, state, *_ in lines if state == "0A"}
    return {each for each in found if each.endswith(f":{port:04X}")} == {f"0100007F:{port:04X}"}


def test_dashboard_without_its_packages_names_the_extra(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    done = invoke("--engine=native", "--location", queue.location, "dashboard", "--port=0")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("tubeq: uvicorn is not installed: pip install")
