"""The totals of ended tasks and the notes of Spark in the log of a tube's table.

A note of a commit of Spark counts until a sweep has added it to the total of the notes. The commit
of the sweep says up to which version it has read the notes. That may be a version before its own,
because others commit meanwhile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.commit_note import PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["RENEWALS", "EndedLog", "EndedNote", "notes_of", "said_read", "tube_of"]

#: In the log the total of notes is multiplied by this. The difference makes room for writing the same total
#: once more with a greater number, and a later moment: one that Spark has written is forgotten in the end.
RENEWALS = 1 << 10
_ENDED = re.compile(PATTERN + r" ended=(?P<tube>\d+):(?:(?P<count>\d+)|in:(?P<gone>-?\d+)|deleted)")
_READ = re.compile(r"^tubeq operation=\w+ .*? read=(\d+):(-?\d+)")
#: The rows that a commit of Spark has deleted, as its metrics call them.
_DELETED = ("numTargetRowsDeleted", "numDeletedRows")


@dataclass(frozen=True, slots=True)
class EndedNote:
    """The ended tasks in the note of a commit of Spark.

    Attributes:
        version: Of the commit.
        count: How many tasks have ended; `None`: it does not tell.
        removed_in_feed: The segment where their rows are, all that is there; `None`: they are deleted.
    """

    version: int
    count: int | None
    removed_in_feed: int | None = None


@dataclass(frozen=True, slots=True)
class EndedLog:
    """The totals and notes of a tube in a log.

    Attributes:
        native: The total of the native engine's commits.
        told_version: What stands for the total of the notes that were added up.
        told_at_ms: When that was written, in milliseconds; `None`: it is not known, or there is none.
        notes: The notes that were not.
        version: The table's version.
    """

    native: int
    told_version: int
    told_at_ms: int | None
    notes: Sequence[EndedNote]
    version: int

    @property
    def told(self) -> int:
        """The sum of the notes that were added up."""
        return self.told_version // RENEWALS


def said_read(tube: int, version: int) -> str:
    """The transaction id of a commit that adds up the notes of a tube up to a version."""
    return f" read={tube}:{version}"


def tube_of(commit: Mapping[str, Any]) -> int | None:
    """The tube whose ended tasks a note counts; `None` if it counts none."""
    found = _ENDED.search(_text(commit))
    return None if found is None else int(found["tube"])


def notes_of(
    tube: int, commits: Iterable[Mapping[str, Any]], known: EndedLog | None = None
) -> list[EndedNote]:
    """The notes that no sweep has added up yet.

    Args:
        tube: The id of the tube.
        commits: The commits by what the history tells of them, the newest first.
        known: What the log has told before them.
    """
    notes, first = list[EndedNote](), -1
    for commit in commits:
        version = int(commit["version"])
        if version <= first:
            break
        read = _READ.search(commit.get("userMetadata") or "")
        if read is not None and int(read[1]) == tube:
            first = max(first, int(read[2]))
        found = _ENDED.search(_text(commit))
        if found is not None and int(found["tube"]) == tube:
            notes.append(_note(version, found, commit.get("operationMetrics") or {}))
    notes += known.notes if known is not None else ()
    return [note for note in notes if note.version > first]


def _note(version: int, found: re.Match[str], metrics: Mapping[str, Any]) -> EndedNote:
    if found["gone"] is not None:
        return EndedNote(version, None, int(found["gone"]))
    if found["count"] is not None:
        return EndedNote(version, int(found["count"]))
    told = (int(metrics[name]) for name in _DELETED if name in metrics)
    return EndedNote(version, next(told, None))


def _text(commit: Mapping[str, Any]) -> str:
    """Find the note in a commit of Spark."""
    return str((commit.get("operationParameters") or {}).get("predicate") or "")
