"""Judges which versions of a log can be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.log.facts import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.log.facts import LogFacts


@dataclass(frozen=True, slots=True)
class Verdict:
    """The damage that was found.

    Attributes:
        begins: The checkpoint from which most versions can be read, the newest such one; `BEGINNING` if that is
            the first commit.
        readable: The last version that can be read, with all commits before it; `None` if there is none.
        newest: The newest version of which any file exists.
        holes: Versions that are missing between others, or before all readable ones.
        hint_fault: The fault of `_last_checkpoint`; empty if it has none.
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
    """Judge a log with at least one commit or checkpoint."""
    good = {version for version in facts.versions if version not in facts.faults}
    there = {*facts.versions}
    newest = max([*facts.versions, *facts.states])
    reached: dict[int, int] = {}
    # The last start comes first, because an earlier start that reaches it leads no further.
    for start in sorted({*facts.states, BEGINNING}, reverse=True):
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
        # All later versions need this one.
        missing = 0 if readable is None else readable + 1
        holes = sorted({*holes, missing} - there)
    return Verdict(begins, readable, newest, holes, _hint_fault(facts, reached, readable))


def _hint_fault(facts: LogFacts, reached: Mapping[int, int], readable: int | None) -> str:
    if facts.hint_fault or facts.hint is None:
        return facts.hint_fault
    if any(name.startswith(f"{facts.hint:020}.") for name in facts.bad_checkpoints):
        # The fault of that checkpoint file is reported by itself.
        return ""
    if facts.hint not in reached:
        return f"names the checkpoint of version {facts.hint}, which cannot be read"
    if reached[facts.hint] != readable:
        return f"names the checkpoint of version {facts.hint}, from which the log does not lead on"
    return ""
