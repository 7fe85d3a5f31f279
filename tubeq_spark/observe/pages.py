"""HTML of a snapshot: one page without scripts, for `tubeq report` and `tubeq dashboard`."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from tubeq_spark.clock import from_us, to_us
from tubeq_spark.markup import Html, joined, table, tag, with_code
from tubeq_spark.observe.minutes import COUNTED, DAY

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tubeq_spark.model.reports import TubeMetrics, UtubeCounts
    from tubeq_spark.observe.health import Health
    from tubeq_spark.observe.minutes import Minutes
    from tubeq_spark.observe.snapshot import Flow, Snapshot, TubeDetails, TubeSnapshot
    from tubeq_spark.storage.statement import Commit

STATES = ("ready", "taken", "delayed", "buried")
#: The most sessions in a list; those that are open longest come first.
_SESSIONS = 100
#: The most kinds of errors in a list.
_KINDS = 20
#: For each unit of an age: the number of seconds up to which it is used, its name, and its seconds.
_UNITS = ((120, "s", 1), (7_200, "min", 60), (172_800, "h", 3_600), (float("inf"), "d", 86_400))


# -- values ---------------------------------------------------------------------------------------


def age(seconds: float | None) -> str:
    """A duration in a suitable unit; empty for `None`."""
    if seconds is None:
        return ""
    unit, length = next((unit, length) for end, unit, length in _UNITS if seconds < end)
    return f"{seconds / length:,.0f} {unit}"


def size(count: float) -> str:
    """A number of bytes in a suitable unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1_000:
            return f"{count:,.0f} {unit}"
        count /= 1_000
    return f"{count:,.0f} TB"


def moment(at: dt.datetime | None) -> str:
    """A moment to the second, in UTC; empty for `None`."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def _rate(number: float) -> str:
    return f"{number:,.1f}"


# -- the page -------------------------------------------------------------------------------------


@cache
def _style() -> str:
    return files("tubeq_spark.observe").joinpath("style.css").read_text(encoding="utf-8")


@cache
def policy() -> str:
    """The content security policy of a page: it may use its own style, and send forms to its own server."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'"


def document(title: str, *parts: object, refresh: float | None = None) -> str:
    """A whole page.

    Args:
        title: The title of the window.
        *parts: The contents.
        refresh: Seconds after which a browser loads it again.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="refresh", content=f"{refresh:g}") if refresh else None,
        tag("title", title),
        tag("style", Html(_style())),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', *parts), lang='en')}\n"


def section(title: str, *parts: object) -> Html:
    """A part of a page with a heading."""
    return tag("section", tag("h2", title), *parts)


def cards(pairs: Iterable[tuple[str, object]]) -> Html:
    """The most important numbers, as cards."""
    made = [tag("div", tag("b", value), tag("span", name), class_="card") for name, value in pairs]
    return tag("div", *made, class_="cards")


def depth(metrics: TubeMetrics) -> Html:
    """A bar of the tasks by state."""
    rects, x = [], 0.0
    for state in STATES:
        width = 100 * getattr(metrics, state) / max(1, metrics.total)
        rects.append(
            tag("rect", x=f"{x:.1f}", y="0", width=f"{width:.1f}", height="8", class_=state)
        )
        x += width
    said = ", ".join(f"{getattr(metrics, state):,} {state}" for state in STATES)
    return _drawing("bar", (100, 8), rects, said, said)


def _drawing(
    kind: str, extent: tuple[int, int], shapes: Sequence[Html], title: str, label: str
) -> Html:
    """A picture that is stretched to its place.

    Args:
        kind: Its class in the style sheet.
        extent: Width and height, in the units of the shapes.
        shapes: What it shows.
        title: The text below the pointer.
        label: The text for those who do not see it.
    """
    return tag(
        "svg",
        tag("title", title),
        *shapes,
        class_=kind,
        viewBox=f"0 0 {extent[0]} {extent[1]}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _legend(names: Iterable[str]) -> Html:
    """What the colors of bars and lines mean."""
    parts: list[object] = []
    for name in names:
        rect = tag("rect", width="8", height="8", class_=name)
        parts += [tag("svg", rect, class_="swatch", viewBox="0 0 8 8"), f" {name} "]
    return joined(parts)


# -- a queue --------------------------------------------------------------------------------------


def overview(
    snapshot: Snapshot,
    link: Callable[[str], str] | None = None,
    details: Mapping[str, TubeDetails] | None = None,
) -> Html:
    """The page about a queue.

    Args:
        snapshot: The queue.
        link: Returns the address of a tube's page by its name; `None` in a report, which has no other pages.
        details: The details of tubes, for a report.
    """
    tubes = list(snapshot.tubes.values())
    found: list[tuple[str, object]] = [(state, snapshot.total(state)) for state in STATES]
    found += [("oldest ready", age(snapshot.oldest) or "none"), ("tubes", len(tubes))]
    found.append(("problems", len(snapshot.health.problems)))
    return joined(
        [
            tag("h1", snapshot.location),
            tag("p", f"{moment(snapshot.at)} UTC, {snapshot.engine} engine", class_="dim"),
            cards(found),
            section("Health", *_problems(snapshot.health)),
            section(
                "Tubes",
                _wide(_depths(tubes, link)),
                tag("p", _legend(STATES), _measured(tubes), class_="dim"),
            ),
            section("Sessions", *_sessions(snapshot)),
            section("Storage", _wide(_storage(tubes))),
            None if details is None else section("Conflicts", _wide(_conflicts(details))),
            *[now(each, snapshot.at, name) for name, each in (details or {}).items()],
        ]
    )


def _conflicts(details: Mapping[str, TubeDetails]) -> Html:
    rows = [
        [
            name,
            sum(commit.conflicts or 0 for commit in each.commits),
            len(each.commits),
            moment(from_us(each.commits[-1].at_us)) if each.commits else "",
        ]
        for name, each in details.items()
    ]
    return table(["tube", "conflicts", "in commits", "since (UTC)"], rows, class_="numbers narrow")


def _sessions(snapshot: Snapshot) -> list[Html]:
    if not snapshot.sessions:
        return [tag("p", "No active sessions.", class_="dim")]
    rows = [
        [
            str(info.uuid),
            info.host,
            str(info.pid),
            moment(info.since),
            _left(info.until, snapshot.at),
            ", ".join(f"{count:,} of {name}" for name, count in info.tubes.items()),
        ]
        for info in snapshot.sessions
    ]
    heads = ["session", "host", "process", "since (UTC)", "lease", "holds"]
    return [_wide(table(heads, rows, limit=_SESSIONS, class_="sessions"))]


def _left(until: dt.datetime | None, now: dt.datetime) -> str:
    if until is None:
        return "without end"
    seconds = (until - now).total_seconds()
    return f"{age(seconds)} left" if seconds > 0 else f"ended {age(-seconds)} ago"


def _wide(shown: Html) -> Html:
    """A part of a page that scrolls by itself in a narrow window."""
    return tag("div", shown, class_="wide")


def _problems(health: Health) -> list[Html]:
    if health.ok:
        return [tag("p", "No problem was found.", class_="sound")]
    return [
        tag(
            "p",
            tag(
                "strong",
                problem.kind if problem.tube is None else f"{problem.kind}, {problem.tube}",
            ),
            ": ",
            with_code(problem.message),
            class_="problem",
        )
        for problem in health.problems
    ]


def _depths(tubes: Sequence[TubeSnapshot], link: Callable[[str], str] | None) -> Html:
    heads = ["tube", "", *STATES, "done", "oldest ready", "added/s", "done/s", "leases ending"]
    rows = [
        [
            _name(tube, link),
            depth(tube.metrics),
            *[getattr(tube.metrics, state) for state in STATES],
            tube.done,
            age(tube.metrics.oldest_ready_age),
            *_rates(tube.flow),
            tube.metrics.leases_ending,
        ]
        for tube in tubes
    ]
    return table(heads, rows, class_="numbers tubes")


def _name(tube: TubeSnapshot, link: Callable[[str], str] | None) -> Html:
    name = tube.name if link is None else tag("a", tube.name, href=link(tube.name))
    return joined([name, " ", tag("span", tube.metrics.type, class_="dim"), *_paused(tube)])


def _paused(tube: TubeSnapshot) -> list[object]:
    return [" ", tag("strong", "paused", class_="problem")] if tube.metrics.paused else []


def _rates(flow: Flow | None) -> list[str]:
    return ["", ""] if flow is None else [_rate(flow.added), _rate(flow.done)]


def _measured(tubes: Sequence[TubeSnapshot]) -> str:
    seconds = [tube.flow.seconds for tube in tubes if tube.flow is not None]
    if not seconds:
        return "Throughput appears after the next refresh."
    return f"Throughput is that of the last {age(max(seconds))}, by all processes."


def _storage(tubes: Sequence[TubeSnapshot]) -> Html:
    heads = [
        "tube",
        "files",
        "size",
        "commits",
        "last commit (UTC)",
        "since a checkpoint",
        "unswept",
        "for",
    ]
    rows = [
        [
            tube.name,
            tube.metrics.files,
            size(tube.metrics.size_bytes),
            tube.metrics.commits,
            moment(tube.metrics.last_commit),
            tube.metrics.log_commits,
            tube.metrics.unswept,
            age(tube.metrics.unswept_age),
        ]
        for tube in tubes
    ]
    return table(heads, rows, class_="numbers")


# -- a tube ---------------------------------------------------------------------------------------


def tube_now(tube: TubeSnapshot) -> Html:
    """One tube's tasks by state, ages and throughput."""
    metrics, flow = tube.metrics, tube.flow
    found: list[tuple[str, object]] = [(state, getattr(metrics, state)) for state in STATES]
    found += [("done", tube.done), ("oldest ready", age(metrics.oldest_ready_age) or "none")]
    if flow is not None:
        found += [("added/s", _rate(flow.added)), ("done/s", _rate(flow.done))]
    kind = tag("p", tag("span", metrics.type, class_="dim"), *_paused(tube))
    return joined([tag("h1", tube.name), kind, cards(found)])


def now(details: TubeDetails, at: dt.datetime, of: str | None = None) -> Html:
    """What has happened in a tube, why its tasks wait, its failed tasks and its sub-queues.

    Args:
        details: The tube.
        at: The moment.
        of: Its name for headings; `None` on its own page.
    """
    in_which = "" if of is None else f" of {of}"
    found = {
        "Tasks added, done and failed": _over_time(details.minutes, at)
        if details.minutes.version >= 0
        else None,
        "First ready task": None if details.first is None else [tag("p", details.first)],
        "Failures": _failures(details.failures) if details.failures else None,
        "Sub-queues": None if details.subqueues is None else _subqueues(details.subqueues, at),
    }
    return joined(
        section(f"{title}{in_which}", *parts) for title, parts in found.items() if parts is not None
    )


def _over_time(minutes: Minutes, at: dt.datetime) -> list[Html]:
    """Pictures of the tasks that were added, done and failed in the last hour and in the last day."""
    hour = _picture("The last hour, by the minute", minutes.periods(to_us(at), 60, 1))
    day = _picture("The last day, by 15 minutes", minutes.periods(to_us(at), DAY // 15, 15))
    said = (
        "A failed task was released or buried. The numbers come from the commits that the log still has, and from "
        "those that the dashboard has shown before."
    )
    return [hour, day, tag("p", _legend(COUNTED), class_="dim"), tag("p", said, class_="dim")]


def _picture(title: str, periods: Sequence[Mapping[str, int]]) -> Html:
    most = max(max(each.values(), default=0) for each in periods)
    said = ", ".join(f"{sum(each[name] for each in periods):,} {name}" for name in COUNTED)
    lines = []
    for name in COUNTED:
        heights = [30 - 28 * each[name] / max(1, most) for each in periods]
        points = " ".join(f"{x},{height:.1f}" for x, height in enumerate(heights))
        lines.append(tag("polyline", points=points, class_=name))
    drawn = _drawing("picture", (len(periods) - 1, 31), lines, said, f"{title}: {said}")
    text = f"{title}: {said}. Highest point: {most:,}."
    return tag("figure", tag("figcaption", text), drawn)


def _failures(failures: Mapping[str, int]) -> list[Html]:
    rows = [[kind, tasks] for kind, tasks in failures.items()]
    said = "Tasks that are stored, by the kind of their last error."
    shown = table(["error", "tasks"], rows, limit=_KINDS, class_="numbers narrow")
    return [tag("p", said, class_="dim"), _wide(shown)]


def _subqueues(counts: Sequence[UtubeCounts], at: dt.datetime) -> list[Html]:
    if not counts:
        return [tag("p", "None of them has tasks.", class_="dim")]
    rows = [
        [
            "tasks without one" if each.utube is None else each.utube,
            *[getattr(each, state) for state in STATES],
            age((at - each.oldest).total_seconds()),
        ]
        for each in counts
    ]
    said = f"The {len(rows)} with the most tasks."
    shown = table(["sub-queue", *STATES, "oldest"], rows, class_="numbers")
    return [tag("p", said, class_="dim"), _wide(shown)]


def tube_details(tube: TubeSnapshot, commits: Sequence[Commit]) -> Html:
    """One tube's calls, storage and newest commits."""
    calls = [[name, count] for name, count in tube.metrics.calls.items() if count]
    return joined(
        [
            section("Calls", table(["verb", "tasks"], calls, class_="numbers narrow")),
            section("Storage", _wide(_storage([tube]))),
            section("Commits", *_commits(commits)),
        ]
    )


def _commits(commits: Sequence[Commit]) -> list[Html]:
    rows = [
        [
            moment(from_us(commit.at_us)),
            commit.operation or commit.statement,
            commit.tasks,
            commit.conflicts,
            commit.session,
        ]
        for commit in commits
    ]
    heads = ["at (UTC)", "verb", "tasks", "conflicts", "session"]
    said = f"The newest {len(rows)}; conflicts are attempts that lost to other commits before."
    return [tag("p", said, class_="dim"), _wide(table(heads, rows, class_="commits"))]
