"""Large batches; and what many waiting tasks cost: a single take, the statistics, the memory of a worker."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from bench.measure import by_turns, checked, timed
from bench.peers import peers
from bench.processes import together
from bench.threads import WORKER, run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.measure import Round, Sizes
    from bench.peer import Hand, Peer
    from bench.report import Page

__all__ = ["measure"]


def measure(page: Page, place: Path, sizes: Sizes) -> None:
    """Measure, and add tables to the page."""
    _measure_batches(page, place, sizes)
    _measure_waiting(page, place, sizes)


def _measure_batches(page: Page, place: Path, sizes: Sizes) -> None:
    references = ["Postgres", "SQLite"]
    samples = page.compare(f"Large batches of {sizes.batch:,}", "tasks/s", references)
    with ExitStack() as stack:
        subjects: list[tuple[str, Round]] = []
        for peer in peers(page, place, stack):
            peer.renew(0)
            hand = stack.enter_context(peer.open(1))
            subjects.append((peer.name, partial(_batch, hand, sizes.batch)))
        by_turns("batches", subjects, sizes.rounds, samples)


def _batch(hand: Hand, batch: int) -> Mapping[str, float]:
    put = timed(lambda: hand.put(batch), batch)
    held: list[object] = []

    def take() -> int:
        count, taken = hand.take(batch)
        held.append(taken)
        return count

    seconds = {"put": put, "take": timed(take, batch)}
    seconds["ack"] = timed(lambda: hand.ack(held.pop()), batch)
    return {verb: batch / each for verb, each in seconds.items()}


def _measure_waiting(page: Page, place: Path, sizes: Sizes) -> None:
    note = f"few: beside {sizes.few:,} waiting tasks; many: beside {sizes.many:,}."
    samples = page.compare("Many waiting tasks", "ms", ["few"], note)
    memory = page.compare("Memory of a worker, many waiting tasks", "MB", ["few"], note)
    with ExitStack() as stack:
        subjects: list[tuple[str, Round]] = []
        workers: list[tuple[str, Round]] = []
        for name, waiting in (("few", sizes.few), ("many", sizes.many)):
            for peer in peers(page, place / name, stack, ("commit",)):
                peer.renew(waiting)
                hand = stack.enter_context(peer.open(1))
                subjects.append((name, partial(_beside, peer, hand)))
                workers.append((name, partial(_memory, peer, sizes.seconds)))
        # Each round takes a task of the few.
        by_turns("waiting", subjects, min(sizes.calls, sizes.few // 2), samples, warm_up=3)
        by_turns("memory", workers, 1, memory, warm_up=0)


def _beside(peer: Peer, hand: Hand) -> Mapping[str, float]:
    held: list[object] = []

    def take() -> int:
        count, taken = hand.take(1)
        held.append(taken)
        return count

    seconds = {"take of 1": timed(take, 1), "statistics": timed(lambda: min(hand.count(), 1), 1)}
    checked(hand.ack(held.pop()), 1)
    return {f"{what}, {peer.name}": each * 1_000 for what, each in seconds.items()}


def _memory(peer: Peer, seconds: float) -> Mapping[str, float]:
    _, [done] = together(run, 1, peer, WORKER, seconds, seconds=seconds)
    return {f"worker, {peer.name}": done.memory_mb}
