"""Reads totals and notes of ended tasks from a log on local files, without an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.durability.log_names import commit_file, versions_of
from tubeq_spark.storage.ended import told_total, total
from tubeq_spark.storage.ended_log import EndedLog, notes_of, tube_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark.storage.ended_log import EndedNote

__all__ = ["first_note", "notes_in", "read_log"]

#: What no other commit says, or few: the others are not parsed.
_ENDED, _READ, _TOTAL = b" ended=", b" read=", b'"txn"'


def read_log(log: Path, tube: int) -> EndedLog:
    """What a log tells of a tube.

    Raises:
        OSError: It cannot be read.
    """
    names = [path.name for path in log.iterdir()]
    versions = versions_of(names)
    last = versions[-1] if versions else -1
    totals = _totals(log, names, versions)
    notes = notes_of(tube, _commits(log, versions))
    return EndedLog(totals.get(total(tube), 0), totals.get(told_total(tube), 0), notes, last)


def notes_in(log: Path, tube: int, last: int, known: EndedLog | None) -> list[EndedNote]:
    """The notes of a tube in a log up to a version.

    Args:
        log: The directory of the log.
        tube: The id of the tube.
        last: The version.
        known: What the log has told at an earlier version.

    Raises:
        OSError: It cannot be read.
    """
    if known is not None and known.version >= last:
        if known.version == last:
            return list(known.notes)
        # The table was made anew.
        known = None
    since = -1 if known is None else known.version
    versions = [v for v in versions_of(path.name for path in log.iterdir()) if since < v <= last]
    return notes_of(tube, _commits(log, versions), known)


def first_note(log: Path, before: int) -> int | None:
    """The first version before another one whose note nobody has added up; `None`: there is none."""
    versions = versions_of(path.name for path in log.iterdir())
    tubes = {tube_of(commit) for commit in _commits(log, [v for v in versions if v < before])}
    first = [
        note.version
        for tube in tubes
        if tube is not None
        for note in notes_of(tube, _commits(log, versions))
        if note.version < before
    ]
    return min(first, default=None)


def _commits(log: Path, versions: list[int]) -> Iterator[dict[str, Any]]:
    """The commits, the newest first; of those without a note no more than the version."""
    for version in reversed(versions):
        try:
            text = Path(commit_file(log, version)).read_bytes()
        except FileNotFoundError:
            # The log was shortened meanwhile: what lies before is added up.
            return
        said: dict[str, Any] = {}
        if _ENDED in text or _READ in text:
            actions = (json.loads(line) for line in text.splitlines() if line.strip())
            said = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        yield {**said, "version": version}


def _totals(log: Path, names: list[str], versions: list[int]) -> dict[str, int]:
    """The totals of all tubes; they only grow, so the greatest is the newest."""
    found: dict[str, int] = {}

    def take(transaction: dict[str, Any]) -> None:
        app, version = transaction["appId"], int(transaction["version"])
        found[app] = max(found.get(app, 0), version)

    checkpoints = sorted({name[:20] for name in names if ".checkpoint" in name and name[0] != "."})
    for name in names:
        if checkpoints and name.startswith(checkpoints[-1]) and name.endswith(".parquet"):
            from pyarrow.parquet import read_table  # noqa: PLC0415  what is new has none

            for transaction in (
                read_table(log / name, columns=["txn"]).column("txn").drop_null().to_pylist()
            ):
                take(transaction)
    for version in versions:
        if not checkpoints or version > int(checkpoints[-1]):
            text = Path(commit_file(log, version)).read_bytes()
            if _TOTAL in text:
                for line in text.splitlines():
                    if line.startswith(b'{"txn"'):
                        take(json.loads(line)["txn"])
    return found
