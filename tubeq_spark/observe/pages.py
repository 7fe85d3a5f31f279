"""HTML of a snapshot: pages without scripts, for `tubeq report` and `tubeq dashboard`; `templates/` has their text.

Templates escape each value as `markup` does.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tubeq_spark.clock import from_us, to_us
from tubeq_spark.markup import Age, as_html, table, with_code
from tubeq_spark.model.failures import kind_of
from tubeq_spark.observe import columns
from tubeq_spark.observe.columns import STATES, value_of
from tubeq_spark.observe.minutes import COUNTED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tubeq_spark.markup import Html
    from tubeq_spark.observe.columns import Columns
    from tubeq_spark.observe.snapshot import Snapshot, TubeDetails, TubeSnapshot

#: The most sessions, sub-queues or commits of a list.
_LISTED = 100
#: The most characters of a payload or an error.
_CUT = 2_000
#: The columns of the tubes, beside their names and bars.
_TUBES: Columns = {
    **columns.of_tubes("ready taken delayed buried oldest done added/s done/s"),
    "leases ending": "metrics.leases_ending",
}
_STORAGE: Columns = {
    **columns.of_tubes("tube unswept since commits log files bytes"),
    "last commit": "metrics.last_commit",
}
#: Conflicts in the newest commits of tubes, by names and `TubeDetails`.
_CONFLICTS: Columns = {
    "tube": itemgetter(0),
    "conflicts": lambda row: sum(commit.conflicts or 0 for commit in row[1].commits),
    "in commits": lambda row: len(row[1].commits),
    "since": lambda row: from_us(row[1].commits[-1].at_us) if row[1].commits else None,
}


@cache
def _style() -> str:
    return files("tubeq_spark.observe").joinpath("style.css").read_text(encoding="utf-8")


@cache
def policy() -> str:
    """The content security policy of a page: it may use its own style, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'none'; base-uri 'none'"


@cache
def _templates() -> Environment:
    made = Environment(
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else as_html(value),
        loader=PackageLoader("tubeq_spark.observe"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {"cut": _cut, "kind_of": kind_of, "with_code": with_code}
    made.globals |= {
        "COMMITS": columns.COMMITS,
        "CONFLICTS": _CONFLICTS,
        "COUNTED": COUNTED,
        "STATES": STATES,
        "STORAGE": _STORAGE,
        "TUBES": _TUBES,
        "drawing": _drawing,
        "listed": _listed,
        "minutes": lambda found, at, *periods: found.minutes.periods(to_us(at), *periods),
        "policy": policy,
        "sessions": columns.sessions,
        "style": _style,
        "table": table,
        "utubes": columns.utubes,
        "value_of": value_of,
    }
    return made


def page(template: str, title: str, *, refresh: float | None = None, **values: Any) -> str:
    """A whole page.

    Args:
        template: The name of its template; `page` has nothing but the title.
        title: The title of the window.
        refresh: Seconds after which a browser loads it again.
        **values: The values of the template.
    """
    found = _templates().get_template(f"{template}.html")
    return found.render(title=title, refresh=refresh, **values)


def overview(
    snapshot: Snapshot,
    title: str,
    details: Mapping[str, TubeDetails] | None = None,
    *,
    every: float | None = None,
    live: bool | None = None,
) -> str:
    """The page about a queue.

    Args:
        snapshot: The queue.
        title: The title of the window.
        details: The details of tubes, for a report.
        every: Seconds after which a browser loads a live page again.
        live: Whether it does; `None` in a report, which has no other pages.
    """
    totals: list[tuple[str, object]] = [(state, snapshot.total(state)) for state in STATES]
    totals += [("oldest ready", _age(snapshot.oldest)), ("tubes", len(snapshot.tubes))]
    totals.append(("problems", len(snapshot.health.problems)))
    seconds = [tube.flow.seconds for tube in snapshot.tubes.values() if tube.flow is not None]
    return page(
        "overview",
        title,
        refresh=every if live else None,
        snapshot=snapshot,
        totals=totals,
        of_tubes=details or {},
        seconds=Age(max(seconds)) if seconds else None,
        every=every,
        live=live,
    )


def tube(found: TubeSnapshot, details: TubeDetails, **values: Any) -> str:
    """The page about a tube. `values` are what the page shows of its tasks."""
    metrics, flow = found.metrics, found.flow
    numbers: list[tuple[str, object]] = [(state, getattr(metrics, state)) for state in STATES]
    numbers += [("done", metrics.done), ("oldest ready", _age(metrics.oldest_ready_age))]
    if flow is not None:
        numbers += [("added/s", flow.added), ("done/s", flow.done)]
    calls = [(name, count) for name, count in metrics.calls.items() if count]
    values |= {"tube": found, "found": details, "numbers": numbers, "calls": calls}
    return page("tube", f"{found.name}: tubeq", **values)


def _age(seconds: float | None) -> object:
    return "none" if seconds is None else Age(seconds)


def _cut(text: str) -> str:
    return text if len(text) <= _CUT else f"{text[:_CUT]}… ({len(text):,} characters)"


def _listed(of: Columns, rows: Collection[Any], class_: str) -> Html:
    """A table of rows."""
    cells = [[value_of(row, column) for column in of.values()] for row in rows]
    return table([*of], cells, limit=_LISTED, class_=class_)


def _drawing(periods: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """What a picture of counts over time shows: the points of each line, the highest count, and the sums."""
    highest = max(max(each.values(), default=0) for each in periods)
    lines = {}
    for name in COUNTED:
        heights = [30 - 28 * each[name] / max(1, highest) for each in periods]
        lines[name] = " ".join(f"{x},{height:.1f}" for x, height in enumerate(heights))
    text = ", ".join(f"{sum(each[name] for each in periods):,} {name}" for name in COUNTED)
    return {"lines": lines, "highest": highest, "text": text}
