"""Reads totals and notes of ended tasks from a log on local files, without an engine."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.durability.log_names import checkpoints_in, commit_file, versions_of
from tubeq_spark.storage.ended import told_total, total
from tubeq_spark.storage.ended_log import EndedLog, notes_of, tube_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark.storage.ended_log import EndedNote

__all__ = ["first_note", "notes_in", "read_log"]

#: What no other commit says, or few: the others are not parsed.
_ENDED, _READ, _TOTAL = b" ended=", b" read=", b'{"txn"'

#: How often a log is read again that was shortened meanwhile.
_TRIES = 5


def read_log(log: Path, tube: int) -> EndedLog:
    """The totals and notes of a tube in a log.

    Raises:
        OSError: It cannot be read.
    """
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):
            return _read(log, tube)
    return _read(log, tube)


def _read(log: Path, tube: int) -> EndedLog:
    names = [path.name for path in log.iterdir()]
    versions = versions_of(names)
    last = versions[-1] if versions else -1
    totals = _totals(log, names, versions)
    notes = notes_of(tube, _commits(log, versions))
    native, _ = totals.get(total(tube), (0, None))
    return EndedLog(native, *totals.get(told_total(tube), (0, None)), notes, last)


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
        # The table was created again.
        known = None
    since = -1 if known is None else known.version
    versions = [v for v in versions_of(path.name for path in log.iterdir()) if since < v <= last]
    return notes_of(tube, _commits(log, versions), known)


def first_note(log: Path, before: int) -> int | None:
    """The first version with a note that no sweep has added up; `None` if none has."""
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
    """The commits, the newest first; only the version of those without a note."""
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


def _totals(log: Path, names: list[str], versions: list[int]) -> dict[str, tuple[int, int | None]]:
    """The totals of all tubes with their times; they only grow, so the greatest is the newest."""
    found: dict[str, tuple[int, int | None]] = {}
    checkpoints = sorted(name for name, file in checkpoints_in(names).items() if file.is_parquet)
    last = checkpoints[-1][:20] if checkpoints else None
    for transaction in itertools.chain(
        *(_checkpointed(log / name) for name in checkpoints if name[:20] == last),
        *(_committed(log, v) for v in versions if last is None or v > int(last)),
    ):
        app, version = transaction["appId"], int(transaction["version"])
        if version >= found.get(app, (0, None))[0]:
            found[app] = (version, transaction.get("lastUpdated"))
    return found


def _checkpointed(file: Path) -> list[dict[str, Any]]:
    from pyarrow.parquet import read_table  # noqa: PLC0415  what is new has none

    found: list[dict[str, Any] | None] = read_table(file, columns=["txn"]).column("txn").to_pylist()
    return [transaction for transaction in found if transaction is not None]


def _committed(log: Path, version: int) -> list[dict[str, Any]]:
    lines = Path(commit_file(log, version)).read_bytes().splitlines()
    return [json.loads(line)["txn"] for line in lines if line.startswith(_TOTAL)]
