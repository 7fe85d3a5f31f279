"""What a benchmark found, as tables to read."""

from __future__ import annotations

import os
import statistics
from typing import TYPE_CHECKING, Any, TextIO

from bench.goals import goals
from bench.measure import quartiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peers.run import Beside
    from bench.results import Results
    from bench.stores.run import OnStore

__all__ = ["show"]

_WIDE = 200


def show(results: Results, stream: TextIO) -> None:
    """Write everything as tables, with rich when it is installed."""
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    load = " to ".join(str(load) for load in results.load)
    stopped = "; stopped before all was measured" if results.stopped else ""
    stream.write(
        f"{versions}, {os.cpu_count()} cores, load {load}; seconds are medians, in brackets quartiles"
        f"{stopped}\n"
    )
    if results.series:
        _table(stream, "The queue beside the bare calls (floor)", _series_rows(results))
    if results.age:
        _table(stream, "One task on an old tube, and on a fresh one", _age_rows(results.age))
    if results.drained:
        title = "Consumers that empty sub-queues, and the reference implementation (seconds)"
        _table(stream, title, _drained_rows(results.drained))
    if results.verbs:
        title = "Other verbs on one task, native"
        _table(stream, title, _verb_rows(results.verbs))
    if results.processes is not None:
        _table(stream, "Processes that share a tube", _process_rows(results.processes))
    if results.start is not None:
        _table(stream, "A call of tubeq put", _start_rows(results.start))
    if results.peers is not None:
        _show_peers(results.peers, stream)
    if results.stores is not None:
        _show_stores(results.stores, stream)
    found = list(goals(results))
    if found:
        _table(stream, "Targets, for an idle machine with 2 cores", _goal_rows(found))


def _show_peers(peers: Beside, stream: TextIO) -> None:
    if peers.queues:
        abouts = [[found["queue"], found["about"]] for found in peers.queues]
        _table(stream, "The queues that are measured side by side", [["queue", ""], *abouts])
    if peers.rates or peers.batches:
        rows = _rate_rows([*peers.rates, *peers.batches])
        _table(stream, "Tasks a second of queues side by side", rows)
    if peers.takes:
        _table(stream, "A take of one task, by how many wait", _take_rows(peers.takes))
    stream.writelines(f"{sentence}\n" for sentence in peers.skipped)


def _show_stores(stores: OnStore, stream: TextIO) -> None:
    if stores.skipped is not None:
        stream.write(f"{stores.skipped}\n")
    if stores.calls:
        rows = [["call", "n", "s", "", "requests in sequence", "at most", "in all"]]
        for one in stores.calls:
            numbers = (one[name] for name in ("in_sequence", "most_in_sequence", "requests"))
            rows.append(
                [one["call"], str(one["n"]), *_times(one), *(f"{number:g}" for number in numbers)]
            )
        _table(stream, f"Calls on {stores.store}, each request 50 ms late", rows)
    if stores.together:
        names = (
            "per_second",
            "least",
            "most",
            "conflicts",
            "requests",
            "median_s",
            "longest_s",
        )
        rows = [
            [
                "each does",
                "processes",
                "tasks/s",
                "fewest",
                "most",
                "conflicts a commit",
                "requests a task",
                "a round takes s",
                "the longest",
            ]
        ]
        for one in stores.together:
            numbers = (one[name] for name in names)
            rows.append([one["how"], str(one["processes"]), *(f"{number:g}" for number in numbers)])
        _table(stream, f"Workers on {stores.store}, each request 50 ms late", rows)


def _rate_rows(found: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [["load", "queue", "a call is for", "n", "tasks/s", "", "tasks a commit"]]
    for one in found:
        low, high = one["quartiles"]
        call = "a batch" if one["in_batches"] else "one task"
        about = [one["load"], one["queue"], call, str(one["n"])]
        rate = [f"{one['tasks_per_s']:,.0f}", f"({low:,.0f} to {high:,.0f})"]
        rows.append([*about, *rate, f"{one['tasks_per_commit']:,.4g}"])
    return rows


def _take_rows(takes: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [["queue", "waiting", "n", "s", "", "to the fewest"]]
    for one in takes:
        about = [one["queue"], f"{one['waiting']:,}", str(one["n"])]
        rows.append([*about, *_times(one), f"{one['ratio']:.2f}"])
    return rows


def _series_rows(results: Results) -> list[list[str]]:
    measured = ("s", "", "cpu ms", "tasks/s", "commits")
    head = ["engine", "batch", "verb", "n"]
    head += [
        f"{side} s" if name == "s" else name for side in ("queue", "floor") for name in measured
    ]
    rows = [[*head, "queue / floor", "cpu"]]
    for found in results.series:
        engine = " ".join(filter(None, (found["engine"], found["session"])))
        for verb, of_verb in found["verbs"].items():
            queue, floor = of_verb["queue"], of_verb["floor"]
            batch = f"{found['batch']:,} {found['form']}"
            rows.append(
                [engine, batch, verb, str(queue["n"])]
                + [cell for side in (queue, floor) for cell in _cells(side, of_verb)]
                + _ratios(of_verb)
            )
    return rows


def _cells(side: dict[str, Any], of_verb: dict[str, Any]) -> list[str]:
    rate = side["tasks_per_s"]
    cpu = "" if of_verb["cpu_ratio"] is None else f"{side['cpu_s'] * 1_000:.1f}"
    rates = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
    return [*_times(side), cpu, rates, str(side["commits"])]


def _ratios(of_verb: dict[str, Any]) -> list[str]:
    ratios = (of_verb["ratio"], of_verb["cpu_ratio"])
    return ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]


def _times(side: dict[str, Any]) -> list[str]:
    low, high = side["quartiles_s"]
    return [_short(side["median_s"]), f"({_short(low)} to {_short(high)})"]


def _short(seconds: float) -> str:
    """Seconds by three places that say something, or so."""
    return (
        f"{seconds:.4f}" if seconds < 0.1 else f"{seconds:.3f}" if seconds < 1 else f"{seconds:.2f}"
    )


def _age_rows(ages: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [["engine", "commits", "tasks", "files", "log", "verb", "n"]]
    rows[0] += ["fresh s", "", "aged s", "", "aged / fresh", "cpu"]
    for age in ages:
        log = "" if age["log_files"] is None else f"{age['log_files']:,}"
        about = [age["engine"], f"{age['commits']:,}", f"{age['done']:,}", str(age["files"]), log]
        for verb, of_verb in age["verbs"].items():
            fresh, aged = of_verb["fresh"], of_verb["aged"]
            cells = [verb, str(fresh["n"]), *_times(fresh), *_times(aged)]
            rows.append([*about, *cells, *_ratios(of_verb)])
    return rows


def _drained_rows(drained: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [["engine", "tasks", "type", "storage mode", "n", "put", "take + ack", "from", "to"]]
    rows[0] += ["tasks/s", "README", "log"]
    for found in drained:
        taken = found["take_ack_s"]
        seconds = statistics.median(taken)
        times = [statistics.median(found["put_s"]), seconds, min(taken), max(taken)]
        theirs = [found["published_s"], found["logged_s"]]
        load = f"{found['utubes']:,} x {found['tasks_each']:,}"
        rows.append(
            [found["engine"], load, found["type"], found["storage_mode"], str(len(taken))]
            + [f"{time:.2f}" for time in times]
            + [f"{found['utubes'] * found['tasks_each'] / seconds:,.0f}"]
            + ["" if time is None else f"{time:.2f}" for time in theirs]
        )
    return rows


def _verb_rows(verbs: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [["verb", "n", "s", "", "cpu ms", "commits"]]
    for found in verbs:
        commits = "" if found["commits"] is None else str(found["commits"])
        cpu = "" if found["cpu_s"] is None else f"{found['cpu_s'] * 1_000:.1f}"
        rows.append([found["verb"], str(found["n"]), *_times(found), cpu, commits])
    return rows


def _process_rows(shared: dict[str, Any]) -> list[list[str]]:
    rows = [["processes", "n", "tasks/s", "", "cpu ms of a task", "fewest", "most", "to one"]]
    for name, ratio in (("alone", 1.0), ("together", shared["ratio"])):
        rounds = shared[name]
        rates = [one["per_second"] for one in rounds]
        low, high = quartiles(rates)
        cpu = statistics.median(one["cpu_s"] for one in rounds) * 1_000
        row = [str(rounds[0]["processes"]), str(len(rounds)), f"{statistics.median(rates):.1f}"]
        row += [f"({low:.1f} to {high:.1f})", f"{cpu:.1f}"]
        row += [str(min(one["least"] for one in rounds)), str(max(one["most"] for one in rounds))]
        rows.append([*row, f"{ratio:.2f}"])
    return rows


def _start_rows(start: dict[str, Any]) -> list[list[str]]:
    head = ["n", "tubeq put s", "", "import deltalake s", "", "to that"]
    n = str(start["put"]["n"])
    return [head, [n, *_times(start["put"]), *_times(start["floor"]), f"{start['ratio']:.2f}"]]


def _goal_rows(found: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [["target", "wanted", "found", ""]]
    for goal in found:
        least = "least" in goal
        wanted = f"at least {goal['least']:,}" if least else f"at most {goal['most']}"
        value = f"{goal['value']:,.0f}" if goal["value"] >= 1_000 else f"{goal['value']:.3f}"
        rows.append([goal["name"], wanted, value, "met" if goal["met"] else "missed"])
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
