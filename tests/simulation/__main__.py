"""Runs many seeds of the simulation, replays one, or plants faults: `python -m tests.simulation --seeds 2000`."""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.planted import FAULTS, Fault, finds
from tests.simulation.simulation import STORAGES, Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

#: So often it is told how far it is, and the rows of so many seeds are compared with another reader.
_TOLD, _COMPARED = 200, 20


def main() -> int:
    """Run what was asked for; 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="replay one seed, and print its history")
    parser.add_argument("--seeds", type=int, default=200, help="run so many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--steps", type=int, default=20, help="acts of a seed")
    parser.add_argument("--storage", choices=sorted(STORAGES), default="store")
    parser.add_argument(
        "--planted", nargs="?", const="", help="plant faults of such a name, or all"
    )
    given = parser.parse_args()
    logging.getLogger("tubeq_spark").setLevel(logging.CRITICAL)
    if given.seed is not None:
        return _replay(given.seed, given.steps, given.storage)
    if given.planted is not None:
        faults = [fault for fault in FAULTS if given.planted in fault.name]
        return _plant(faults, range(given.first, given.first + given.seeds), given.steps)
    return _run(range(given.first, given.first + given.seeds), given.steps, given.storage)


def _replay(seed: int, steps: int, storage: str) -> int:
    simulation = Simulation(seed, steps, storage, compared=True)
    found = simulation.run()
    print("\n".join(simulation.world.trace))
    print(f"found: {found}" if found else "nothing was found")
    return 1 if found else 0


def _run(seeds: range, steps: int, storage: str) -> int:
    counts, bad, began = Counter[str](), 0, time.monotonic()
    for done, seed in enumerate(seeds, 1):
        simulation = Simulation(seed, steps, storage, compared=seed % _COMPARED == 0)
        found = simulation.run()
        counts += simulation.counts
        if found:
            bad += 1
            print(f"seed {seed}: {found}", flush=True)
        if done % _TOLD == 0:
            print(f"{done} seeds, {time.monotonic() - began:.0f} s, {bad} findings", flush=True)
    print(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    print(f"{len(seeds)} seeds, {time.monotonic() - began:.0f} s, {bad} findings")
    return 1 if bad else 0


def _plant(faults: Sequence[Fault], seeds: range, steps: int) -> int:
    missed = 0
    for fault in faults:
        found = finds(fault, seeds, steps)
        missed += found is None
        print(f"{fault.name}: {found or 'NOT FOUND'}", flush=True)
    print(f"{len(faults)} faults, {missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
