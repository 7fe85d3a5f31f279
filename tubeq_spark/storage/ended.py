"""The numbers of tasks that commits end, in commits and in the log of a tube's table.

A commit of the native engine has the new total in a `txn` action of Delta: the action is written with the
commit or not at all, checkpoints keep it, and a snapshot has it without a further read. In a MERGE of Spark
such an action would conflict with other commits. So the note of the MERGE has the number of ended tasks, and a
sweep adds these numbers to a separate total. Both totals have the tube's id in their names, so they
begin at zero in a table that is used for a new tube of the same name.

A note of a commit of Spark counts until a sweep has added it to the total of the notes. The commit
of the sweep notes the version up to which it has read. That may be a version before its own,
because others commit meanwhile.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.durability.synced_log import synced_log_of
from tubeq_spark.storage.log.commit_text import info_in
from tubeq_spark.storage.log.facts import BEGINNING, Contents, LogFacts
from tubeq_spark.storage.log.names import commit_file, versions_of
from tubeq_spark.storage.outcome import PATTERN
from tubeq_spark.storage.store.local_store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tubeq_spark.storage.statement import Affected

#: The prefix of the names of all totals, of all tubes.
TOTALS = "tubeq.done"
#: The moment of a total, in milliseconds: 9999-12-31. Delta removes a transaction id
#: `delta.setTransactionRetentionDuration` after its moment, and a total must stay.
FOR_EVER_MS = 253_402_214_400_000
#: In the log the total of notes is multiplied by this number. So the same total can be written again as a greater
#: version, with a later moment: Delta removes a total that Spark has written after a while.
RENEWALS = 1 << 10
_ENDED = re.compile(
    PATTERN
    + r" ended=(?P<tube>\d+):"
    + r"(?:(?P<count>\d+)|in:(?P<gone>-?\d+)|deleted(?:\+in:(?P<kept>-?\d+))?)"
)
_READ = re.compile(r"^tubeq operation=\w+ .*? read=(\d+):(-?\d+)")
#: The metrics of a commit of Spark that have the number of deleted rows.
_DELETED = ("numTargetRowsDeleted", "numDeletedRows")
#: Bytes of commits with ended tasks or sums. Commits without them are not parsed.
_ENDED_LOCALLY, _READ_LOCALLY = b" ended=", b" read="
#: The most attempts to read a log from which others remove commits meanwhile.
_TRIES = 5


def total(tube: int) -> str:
    """The application id of the total of tasks that the native engine has ended in a tube."""
    return f"{TOTALS}/{tube}"


def told_total(tube: int) -> str:
    """The application id of the total of Spark's notes of a tube.

    Its version is the total times `RENEWALS`, plus the number of renewals.
    """
    return f"{TOTALS}.spark/{tube}"


@dataclass(frozen=True, slots=True)
class Ended:
    """The number of tasks that a statement ends.

    Attributes:
        tube: The id of the tube.
        count: The number, if the statement changes all rows that it names or none. `None`: the number of rows that
            it deletes or keeps for their keys.
        removed_in_feed: The segment to which it moves only their rows; `None` if it deletes them.
        kept_in: The segment to which it moves only rows that it keeps for their keys; `None` if it keeps none.
    """

    tube: int
    count: int | None = None
    removed_in_feed: int | None = None
    kept_in: int | None = None

    def __str__(self) -> str:
        """The text in the note of a commit of Spark."""
        if self.count is not None:
            return f" ended={self.tube}:{self.count}"
        if self.removed_in_feed is not None:
            return f" ended={self.tube}:in:{self.removed_in_feed}"
        beside = "" if self.kept_in is None else f"+in:{self.kept_in}"
        return f" ended={self.tube}:deleted{beside}"

    def total(
        self, affected: Affected, version_under: Callable[[str], int | None]
    ) -> tuple[str, int] | None:
        """The new total of a tube, with its application id; `None` if no task has ended.

        Args:
            affected: The numbers of changed rows.
            version_under: Returns the version of an application id in the table.
        """
        number = self.count_of(affected)
        app = total(self.tube)
        return (app, (version_under(app) or 0) + number) if number else None

    def count_of(self, affected: Affected) -> int:
        """The number of ended tasks, from the rows that the statement has changed."""
        if not affected.total:
            return 0
        return affected.deleted + affected.kept if self.count is None else self.count


@dataclass(frozen=True, slots=True)
class EndedNote:
    """The ended tasks in the note of a commit of Spark.

    Attributes:
        version: The version of the commit.
        count: The number of ended tasks; `None` if the commit does not have it.
        removed_in_feed: The segment that has only the rows of these tasks; `None` if they were deleted.
        kept_in: The segment that has only rows of further ended tasks; `None` if there are none.
    """

    version: int
    count: int | None
    removed_in_feed: int | None = None
    kept_in: int | None = None


@dataclass(frozen=True, slots=True)
class EndedLog:
    """The totals and notes of a tube in a log.

    Attributes:
        native: The total of the native engine's commits.
        told_version: The version of the application id for the total of added notes.
        told_at_ms: The moment in milliseconds at which it was written; `None` if it is unknown, or there is no total.
        notes: The notes that are not added up yet.
        version: The table's version.
    """

    native: int
    told_version: int
    told_at_ms: int | None
    notes: Sequence[EndedNote]
    version: int

    @property
    def told(self) -> int:
        """The total of the notes that were added up."""
        return self.told_version // RENEWALS


def said_read(tube: int, version: int) -> str:
    """The user metadata of a commit that adds up the notes of a tube up to a version."""
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
        commits: The commits as rows of the history, the newest first.
        known: The result of an earlier read, before these commits.
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
    kept = found["kept"]
    return EndedNote(version, next(told, None), kept_in=None if kept is None else int(kept))


def _text(commit: Mapping[str, Any]) -> str:
    """Find the note in a commit of Spark."""
    return str((commit.get("operationParameters") or {}).get("predicate") or "")


def read_log(log: Path, tube: int) -> EndedLog:
    """The totals and notes of a tube in a log.

    Raises:
        OSError: The log cannot be read.
    """
    for _ in range(_TRIES):
        facts = LogFacts.listed(LocalStore(synced_log_of(log.parent)))
        totals = _totals(facts)
        if facts.files and not facts.is_outdated:
            notes = notes_of(tube, _commits(log, facts.versions))
            native, _ = totals.get(total(tube), (0, None))
            last = max(facts.versions, default=-1)
            return EndedLog(native, *totals.get(told_total(tube), (0, None)), notes, last)
    raise FileNotFoundError(str(log))


def _totals(facts: LogFacts) -> Mapping[str, tuple[int, int | None]]:
    """The totals of all tubes with their times."""
    begins = (v for v in sorted(facts.parts, reverse=True) if facts.checkpoint(v, ["txn"]))
    start = next(begins, BEGINNING)
    state = facts.states.get(start, Contents())
    for version in facts.versions:
        commit = facts.commit(version) if version > start else None
        if commit is not None:
            state.apply(commit)
    return state.transactions


def notes_in(log: Path, tube: int, last: int, known: EndedLog | None) -> list[EndedNote]:
    """The notes of a tube in a log up to a version.

    Args:
        log: The directory of the log.
        tube: The id of the tube.
        last: The version.
        known: The result of a read at an earlier version.

    Raises:
        OSError: The log cannot be read.
    """
    if known is not None and known.version >= last:
        if known.version == last:
            return list(known.notes)
        # The table was created anew since.
        known = None
    since = -1 if known is None else known.version
    versions = [v for v in _versions(log) if since < v <= last]
    return notes_of(tube, _commits(log, versions), known)


def first_note(log: Path, before: int) -> int | None:
    """The first version, below `before`, with a note that no sweep has added up; `None` if none has."""
    versions = _versions(log)
    tubes = {tube_of(commit) for commit in _commits(log, [v for v in versions if v < before])}
    first = [
        note.version
        for tube in tubes
        if tube is not None
        for note in notes_of(tube, _commits(log, versions))
        if note.version < before
    ]
    return min(first, default=None)


def _versions(log: Path) -> list[int]:
    return versions_of(os.listdir(log))  # noqa: PTH208  (names are enough)


def _commits(log: Path, versions: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The commits, the newest first. Commits without a note have only their version."""
    for version in reversed(versions):
        try:
            with open(commit_file(log, version), "rb") as file:  # noqa: PTH123  (a sweep reads many)
                text = file.read()
        except FileNotFoundError:
            # The log was shortened meanwhile. Removed commits are already added up.
            return
        info: Mapping[str, Any] = {}
        if _ENDED_LOCALLY in text or _READ_LOCALLY in text:
            # Readers refuse a damaged commit that they need. The notes of other damaged commits are lost.
            with suppress(ValueError):
                info = info_in(text)
        yield {**info, "version": version}
