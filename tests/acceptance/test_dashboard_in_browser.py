"""A browser shows the dashboard and the report, and runs nothing that a payload contains.

The tests need playwright and Chromium, which `.ci/nightly browser` installs.
"""

from __future__ import annotations

import datetime as dt
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.test_dashboard import SCRIPT, buried, served
from tubeq_spark import PutItem, Queue
from tubeq_spark.observe.pages import overview
from tubeq_spark.observe.snapshot import take_snapshot
from tubeq_spark.testing import ManualClock
from tubeq_spark.tube import details_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.nightly

EVIL = f"</code></td></table>{SCRIPT}<img src=x onerror=\"document.title='gotcha'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    reason = "NOT TESTED: the dashboard in a browser needs playwright, pip install '.[browser]'"
    api = pytest.importorskip("playwright.sync_api", reason=reason)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("NOT TESTED: the dashboard in a browser needs Chromium, and there is none")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(dt.datetime.now(dt.UTC))


@pytest.fixture
def queue(location: str, clock: ManualClock) -> Iterator[Queue]:
    with Queue(None, location, engine="native", clock=clock) as queue:
        yield queue


def look(browser: Any, url: str, found: list[str]) -> Any:
    """A page, also in dark and in a narrow window; nothing sticks out of that."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: found.append(message.text))
    page.on("dialog", lambda dialog: found.append(dialog.message))
    page.on("pageerror", lambda error: found.append(str(error)))
    page.goto(url)
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 400)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 1280, "height": 900})
    return page


def filled(queue: Queue, clock: ManualClock) -> None:
    """Some tubes with tasks in all states, and one whose sweeper does not run."""
    buried(queue, 3, data={"evil": EVIL})
    queue["mail"].put_many(["x"] * 40)
    failed = queue["mail"].take_many(5, per_utube=5)
    queue["mail"].release_many([task.task_id for task in failed], error=ValueError(EVIL))
    timed = queue.create_tube("a_rather_long_name_of_a_tube_32c", "fifottl", ttr=60)
    timed.put_many([PutItem(number, delay=5 * (number % 3)) for number in range(50)])
    timed.take_many(7)
    queue.create_tube("empty")
    clock.advance(400)


def test_dashboard_when_clicked_through_shows_all_and_runs_no_payload(
    browser: Any, queue: Queue, clock: ManualClock
) -> None:
    filled(queue, clock)
    found: list[str] = []
    with served(queue, clock) as site:
        page = look(browser, f"http://127.0.0.1:{site.port}/", found)
        assert page.locator("meta[http-equiv=refresh]").count() == 1
        assert "is a sweeper running?" in page.locator(".problem").first.inner_text()
        page.get_by_role("link", name="Stop refreshing").click()
        page.wait_for_url("**/?still=1")
        assert page.locator("meta[http-equiv=refresh]").count() == 0

        buried_part = page.locator("tr", has_text="mail").locator("rect.buried").first
        assert buried_part.bounding_box()["width"] > 2

        page.get_by_role("link", name="mail", exact=True).click()
        assert page.locator("h1").inner_text() == "mail"
        page.get_by_role("link", name="buried", exact=True).click()
        assert EVIL[:10] not in page.locator(".tasks").inner_text()
        page.get_by_role("link", name="Show the payloads").click()
        codes = page.locator("code").all_inner_texts()
        assert len(codes) == 3
        assert all("<script>" in code and r"\u001b[2J" in code for code in codes)
        page.locator(".tasks a").first.click()
        assert "is buried until somebody kicks it" in page.locator("body").inner_text()

        look(browser, page.url, found)
        assert page.title() == "mail: tubeq"
        page.get_by_role("link", name="all tubes").click()
        assert page.locator("h1").inner_text() == queue.location

    assert found == []


def test_report_when_opened_as_a_file_is_whole_and_runs_nothing(
    browser: Any, queue: Queue, clock: ManualClock, tmp_path: Path
) -> None:
    filled(queue, clock)
    file = tmp_path / "report.html"
    details = {name: details_of(queue[name], 200) for name in queue.tubes()}
    file.write_text(overview(take_snapshot(queue), "report", details), encoding="utf-8")
    found: list[str] = []

    page = look(browser, file.as_uri(), found)

    assert page.locator("h1").inner_text() == queue.location
    assert page.locator("section", has_text="Sub-queues of mail").locator("tbody tr").count() == 2
    assert "Failures of mail" in page.locator("body").inner_text()
    body = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    dark = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    assert body != dark  # the style is there, by the policy of the page
    assert found == []
