"""What a benchmark found: tables to read, and JSON."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import tubeq_spark
from bench.measure import VERBS
from bench.plan import Form, Session
from bench.subqueues import as_dict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from bench.run import Aged, Compared
    from bench.subqueues import Drained

__all__ = ["Results", "show", "versions"]

_RATIO = 1.3
#: Tasks in a second that a batch of 100,000 shall reach.
_RATES = {"put": 200_000.0, "take": 50_000.0, "ack": 150_000.0}
_RATES_OF = 100_000
_WIDE = 160


@dataclass(slots=True)
class Results:
    """Everything that was found, as JSON has it."""

    versions: dict[str, str] = field(default_factory=dict)
    #: Whether it was stopped before all was measured.
    stopped: bool = False
    series: list[dict[str, Any]] = field(default_factory=list)
    age: dict[str, Any] | None = None
    drained: list[dict[str, Any]] = field(default_factory=list)

    def add(self, found: Compared) -> None:
        """Add a comparison of the queue with the floor."""
        verbs = {
            verb: {
                "queue": found.queue.as_dict(verb),
                "floor": found.floor.as_dict(verb),
                "ratio": round(found.queue.ratio_to(found.floor, verb), 3),
            }
            for verb in VERBS
        }
        self.series.append(
            {
                "session": str(found.session),
                "form": str(found.series.form),
                "batch": found.series.batch,
                "rounds": found.series.rounds,
                "commits": {"queue": found.queue.all_commits, "floor": found.floor.all_commits},
                "verbs": verbs,
            }
        )

    def add_age(self, found: Aged) -> None:
        """Add a comparison of an aged tube with fresh ones."""
        self.age = {
            "commits": found.commits,
            "verbs": {
                verb: {
                    "fresh": found.fresh.as_dict(verb),
                    "aged": found.aged.as_dict(verb),
                    "ratio": round(found.aged.ratio_to(found.fresh, verb), 3),
                }
                for verb in VERBS
            },
        }

    def add_drained(self, found: Drained) -> None:
        """Add consumers that have emptied sub-queues."""
        self.drained.append(as_dict(found))

    def as_dict(self) -> dict[str, Any]:
        """What `--json` writes."""
        return {
            "versions": self.versions,
            "stopped": self.stopped,
            "cores": os.cpu_count(),
            "series": self.series,
            "age": self.age,
            "utubes": self.drained,
            "targets": list(self.targets()),
        }

    def targets(self) -> Iterator[dict[str, Any]]:
        """What was aimed at, as far as it was measured."""
        for found in self.series:
            if found["session"] != Session.RECOMMENDED:
                continue
            for verb, of_verb in found["verbs"].items():
                if found["batch"] == 1:
                    yield _target(f"{verb} of 1, queue / floor", of_verb["ratio"], _RATIO)
                elif (found["form"], found["batch"]) == (Form.FRAMES, _RATES_OF):
                    rate = of_verb["queue"]["tasks_per_s"]
                    yield _target(
                        f"{verb} of {_RATES_OF:,}, tasks/s", rate, _RATES[verb], least=True
                    )
        if self.age is not None:
            for verb, of_verb in self.age["verbs"].items():
                name = f"{verb} of 1, after {self.age['commits']} commits / fresh"
                yield _target(name, of_verb["ratio"], _RATIO)
        for found in self.drained:
            if found["wanted_s"] is not None:
                name = f"take + ack of {_load(found)}, {found['type']}, {found['storage_mode']}, s"
                yield _target(name, statistics.median(found["take_ack_s"]), found["wanted_s"])


def versions(spark: SparkSession) -> dict[str, str]:
    """The versions of everything that has a say in the numbers."""
    java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')")
    return {
        "tubeq_spark": tubeq_spark.__version__,
        "python": platform.python_version(),
        "java": str(java.collect()[0][0]),
        "spark": spark.version,
        "delta": _delta_version(),
    }


def _delta_version() -> str:
    try:
        return importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # a cluster brings its own


def _target(name: str, value: float, wanted: float, *, least: bool = False) -> dict[str, Any]:
    met = value >= wanted if least else value <= wanted
    bound = "least" if least else "most"
    return {"name": name, "value": value, bound: wanted, "met": met}


# -- to read ----------------------------------------------------------------------------------


def show(results: Results, stream: TextIO) -> None:
    """Write everything as tables, with rich when it is installed."""
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    stopped = "; stopped before all was measured" if results.stopped else ""
    stream.write(f"{versions}, {os.cpu_count()} cores; seconds are medians{stopped}\n")
    if results.series:
        _table(stream, "The queue beside the bare Delta statements (floor)", _series_rows(results))
    if results.age is not None:
        title = f"One task on a tube after {results.age['commits']:,} commits, and on a fresh one"
        _table(stream, title, _age_rows(results.age))
    if results.drained:
        title = "Consumers that empty sub-queues, and the reference implementation (seconds)"
        _table(stream, title, _drained_rows(results.drained))
    targets = list(results.targets())
    if targets:
        _table(stream, "Targets, for an idle machine with 2 cores", _target_rows(targets))


def _series_rows(results: Results) -> list[list[str]]:
    head = ["session", "batch", "verb", "n", "queue s", "p90", "tasks/s", "commits"]
    rows = [[*head, "floor s", "p90", "tasks/s", "commits", "queue / floor"]]
    for found in results.series:
        for verb, of_verb in found["verbs"].items():
            queue, floor = of_verb["queue"], of_verb["floor"]
            batch = f"{found['batch']:,} {found['form']}"
            rows.append(
                [found["session"], batch, verb, str(queue["n"])]
                + [cell for side in (queue, floor) for cell in _cells(side)]
                + [f"{of_verb['ratio']:.2f}"]
            )
    return rows


def _cells(side: dict[str, Any]) -> list[str]:
    return [
        f"{side['median_s']:.3f}",
        f"{side['p90_s']:.3f}",
        f"{side['tasks_per_s']:,.0f}"
        if side["tasks_per_s"] >= 10
        else f"{side['tasks_per_s']:.1f}",
        str(side["commits"]),
    ]


def _age_rows(age: dict[str, Any]) -> list[list[str]]:
    rows = [["verb", "n", "fresh s", "p90", "aged s", "p90", "aged / fresh"]]
    for verb, of_verb in age["verbs"].items():
        fresh, aged = of_verb["fresh"], of_verb["aged"]
        times = [side[key] for side in (fresh, aged) for key in ("median_s", "p90_s")]
        cells = [f"{seconds:.3f}" for seconds in times]
        rows.append([verb, str(fresh["n"]), *cells, f"{of_verb['ratio']:.2f}"])
    return rows


def _load(found: dict[str, Any]) -> str:
    return f"{found['utubes']:,} x {found['tasks_each']:,}"


def _drained_rows(drained: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [["tasks", "type", "storage mode", "n", "put", "take + ack", "tasks/s", "README", "log"]]
    for found in drained:
        seconds = statistics.median(found["take_ack_s"])
        times = [statistics.median(found["put_s"]), seconds]
        theirs = [found["published_s"], found["logged_s"]]
        rows.append(
            [_load(found), found["type"], found["storage_mode"], str(len(found["put_s"]))]
            + [f"{time:.2f}" for time in times]
            + [f"{found['utubes'] * found['tasks_each'] / seconds:,.0f}"]
            + ["" if time is None else f"{time:.2f}" for time in theirs]
        )
    return rows


def _target_rows(targets: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [["target", "wanted", "found", ""]]
    for target in targets:
        least = "least" in target
        wanted = f"at least {target['least']:,.0f}" if least else f"at most {target['most']}"
        value = f"{target['value']:,.0f}" if least else f"{target['value']:.2f}"
        rows.append([target["name"], wanted, value, "met" if target["met"] else "missed"])
    return rows


def _table(stream: TextIO, title: str, rows: Sequence[Sequence[str]]) -> None:
    stream.write("\n")
    try:
        from rich.console import Console  # noqa: PLC0415  nice to have
        from rich.table import Table  # noqa: PLC0415
    except ImportError:
        stream.write(f"{title}\n{_plain(rows)}\n")
        return
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(rows[0]):
        right = number > 0 and rows[-1][number][:1].isdigit()
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*row)
    # A file or a pipe has no width: nothing shall be cut off there.
    console = Console(file=stream, width=None if stream.isatty() else _WIDE)
    console.print(table)


def _plain(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
