"""Chooses the segments in which a take begins if other programs take at the same time, without a lock between them.

A take from a segment rewrites the rest of it. So of several takes of the first tasks only one
succeeds, and the others have read and written for nothing. If each takes from segments of its own, all succeed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Head:
    """A segment of ready tasks, all with the priority of the tube's first task.

    Attributes:
        segment: Its number.
        rows: The number of its tasks.
    """

    segment: int
    rows: int


def beginning(heads: Iterable[Head], wanted: int, rivals: int, who: str) -> Sequence[int]:
    """The segments that a take reads instead of the first ones.

    The first segments are divided into places, one for each rival and one for the take itself. A place is
    one segment, or as many segments as have the wanted tasks. Hashes choose among the places. A segment keeps its
    hash, so a take stays in a segment until it is empty, also if earlier segments change.

    Args:
        heads: The first segments in the order of their tasks.
        wanted: The number of tasks that the take wants, >= 1.
        rivals: The number of other programs that take at the same time.
        who: A text that is different for each session.

    Returns:
        The segments. If empty, the take begins with the first task, as it always does without rivals.
    """
    places: list[list[Head]] = []
    for head in heads:
        if not places or _rows(places[-1]) >= wanted:
            if len(places) > rivals:
                break
            places.append([])
        places[-1].append(head)
    if places and _rows(places[-1]) < wanted:
        places.pop()
    if not places:
        return ()
    chosen = max(places, key=lambda place: _hash(who, place[0].segment))
    return () if chosen is places[0] else [head.segment for head in chosen]


def _rows(place: Sequence[Head]) -> int:
    return sum(head.rows for head in place)


def _hash(who: str, segment: int) -> bytes:
    return hashlib.blake2b(f"{who}/{segment}".encode(), digest_size=8).digest()
