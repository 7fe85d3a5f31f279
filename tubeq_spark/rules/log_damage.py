"""Finds damage in the log of a table: which versions can be read, and what prevents the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["BEGINNING", "LogFacts", "Verdict", "judge"]

#: Stands for the version before the first commit, where a reader begins that has no checkpoint.
BEGINNING = -1


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The contents of a log.

    Attributes:
        versions: The versions whose commit files are there, in their order.
        faults: Why commits are not as they were written, by their versions.
        checkpoints: The versions of checkpoints that were read as a whole.
        bad_checkpoints: Why others are not as they were written, by the names of their files.
        hint: The version that `_last_checkpoint` names; `None`: there is no such file.
        hint_fault: Why that file cannot be read; empty: it can, or is not there.
    """

    versions: Sequence[int]
    faults: Mapping[int, str] = field(default_factory=dict)
    checkpoints: Collection[int] = ()
    bad_checkpoints: Mapping[str, str] = field(default_factory=dict)
    hint: int | None = None
    hint_fault: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The damage that was found.

    Attributes:
        begins: The version of the checkpoint that leads furthest, the newest of them; `BEGINNING`: it
            is the first commit that does.
        readable: The last version that can be read with all that it stands on; `None`: none can.
        newest: The newest version of which anything is there.
        holes: Versions that are missing between others, or before all that can be read.
        hint_fault: What is wrong with `_last_checkpoint`; empty: nothing.
    """

    begins: int
    readable: int | None
    newest: int
    holes: Sequence[int]
    hint_fault: str

    @property
    def is_whole(self) -> bool:
        """Whether the newest version is readable."""
        return self.readable == self.newest

    def is_needed(self, version: int) -> bool:
        """Whether readers of the newest version need the commit of a version."""
        return version > self.begins or not self.is_whole


def judge(facts: LogFacts) -> Verdict:
    """Judge a log that has at least a commit or a checkpoint."""
    good = {version for version in facts.versions if version not in facts.faults}
    there = {*facts.versions}
    newest = max([*facts.versions, *facts.checkpoints])
    reached: dict[int, int] = {}
    # From the last start on: an earlier one that leads to a later one leads as far.
    for start in sorted({*facts.checkpoints, BEGINNING}, reverse=True):
        version = start
        while version + 1 in good:
            version += 1
            if version in reached:
                version = reached[version]
                break
        if version != BEGINNING:
            reached[start] = version
    readable = max(reached.values(), default=None)
    begins = max((start for start, end in reached.items() if end == readable), default=BEGINNING)
    first = facts.versions[0] if facts.versions else newest
    holes = [version for version in range(first, newest) if version not in there]
    if readable is None or readable < newest:
        # All that follows stands on this one.
        missing = 0 if readable is None else readable + 1
        holes = sorted({*holes, missing} - there)
    return Verdict(begins, readable, newest, holes, _hint_fault(facts, reached, readable))


def _hint_fault(facts: LogFacts, reached: Mapping[int, int], readable: int | None) -> str:
    if facts.hint_fault or facts.hint is None:
        return facts.hint_fault
    if any(name.startswith(f"{facts.hint:020}.") for name in facts.bad_checkpoints):
        # It is told of that file.
        return ""
    if facts.hint not in reached:
        return f"names the checkpoint of version {facts.hint}, which cannot be read"
    if reached[facts.hint] != readable:
        return f"names the checkpoint of version {facts.hint}, from which the log does not lead on"
    return ""
