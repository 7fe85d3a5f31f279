"""One task: put, take and ack beside the direct commits, by durability, and beside the databases."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from bench.direct import DirectCommits
from bench.measure import by_turns, checked
from bench.peers import peers
from bench.tubeq import LOST, TubeqPeer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from bench.measure import Round, Sizes
    from bench.peer import Hand
    from bench.report import Page

    Calls = Mapping[str, Callable[[], int]]

__all__ = ["measure"]

_WARM_UP = 10
_NOTE = "The processor time is that of the calling process: a server of Postgres works elsewhere."


def measure(page: Page, place: Path, sizes: Sizes) -> None:
    """Measure, and add a table to the page."""
    samples = page.compare("One task", "ms", ["direct commits", "Postgres"], _NOTE)
    subjects: list[tuple[str, Round]] = []
    with ExitStack() as stack:
        for peer in peers(page, place, stack, tuple(LOST)):
            peer.renew(0)
            durability = peer.durability if isinstance(peer, TubeqPeer) else "commit"
            name = "tubeq" if isinstance(peer, TubeqPeer) else peer.name
            hand = stack.enter_context(peer.open(1))
            subjects.append((name, _round(_calls(hand), durability)))
        for durability in LOST:
            direct = DirectCommits(str(place / f"direct_{durability}"), durability)
            calls = {"put": direct.put, "take": direct.take, "ack": direct.ack}
            subjects.append(("direct commits", _round(calls, durability)))
        by_turns("single", subjects, sizes.calls, samples, warm_up=_WARM_UP)


def _calls(hand: Hand) -> Calls:
    held: list[Any] = []

    def take() -> int:
        count, taken = hand.take(1)
        held.append(taken)
        return count

    return {"put": lambda: hand.put(1), "take": take, "ack": lambda: hand.ack(held.pop())}


def _round(calls: Calls, durability: str) -> Round:
    def run() -> Mapping[str, float]:
        found = {}
        for verb, call in calls.items():
            began, cpu = time.perf_counter(), time.process_time()
            checked(call(), 1)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            found[f"{verb} of 1, {durability}"] = seconds * 1_000
            found[f"{verb} of 1, {durability} | processor ms"] = cpu * 1_000
        return found

    return run
