"""Runs one sequence: the queue and others act on its tables at random, then all readers are compared."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest.mock import patch

from tests.log_fuzz import library, verbs
from tests.log_fuzz.compared import differences
from tests.log_fuzz.world import TUBES, World
from tubeq_spark.clock import SystemClock
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.tidying import LocalRetention
from tubeq_spark.storage.native import plain_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.log_fuzz.verbs import Act


@dataclass(slots=True)
class Outcome:
    """What came of it.

    Attributes:
        acts: How often each act was done.
        compared: How often a table was compared.
        findings: What should not be, each with the acts before it.
    """

    acts: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Add what came of another one."""
        self.acts += other.acts
        self.compared += other.compared
        self.findings += other.findings


class _Earlier(SystemClock):
    """The clock of those commits that are some time ago to others."""

    def now(self) -> dt.datetime:
        return super().now() - dt.timedelta(days=2)


def run(
    directory: Path, seed: int, steps: int, every: int = 3, spark: SparkSession | None = None
) -> Outcome:
    """Run one sequence.

    Args:
        directory: Where the queue goes.
        seed: What it hangs on.
        steps: How many acts.
        every: Compare after so many.
        spark: Acts and reads, too, if there is one.
    """
    outcome = Outcome()
    world = World(directory, seed)
    acts: dict[Act, int] = {**verbs.VERBS, **library.ACTS}
    if spark is not None:
        acts |= library.acts_of(spark)
    done: list[str] = []
    with _settings(world):
        for step in range(1, steps + 1):
            (act,) = world.random.choices(list(acts), list(acts.values()))
            name = world.random.choice(list(TUBES))
            done.append(f"{act.__name__} {name}")
            _do(world, act, name, outcome, done)
            if step % every == 0 or step == steps:
                _compare(world, outcome, done, spark)
            if outcome.findings:
                break
        world.queue.close()
    outcome.findings = [f"seed {seed}: {text}" for text in outcome.findings]
    return outcome


def _settings(world: World) -> ExitStack:
    stack = ExitStack()
    if world.random.random() < 0.7:
        # So that logs are shortened and get checkpoints within a sequence.
        stack.enter_context(patch.object(LocalRetention, "versions", 6))
        stack.enter_context(patch.object(LocalRetention, "SECONDS", 0.0))
        stack.enter_context(patch.object(tidying, "EVERY", 5))
    if world.random.random() < 0.5:
        stack.enter_context(patch.object(plain_table, "_CLOCK", _Earlier()))
    return stack


def _do(world: World, act: Act, name: str, outcome: Outcome, done: list[str]) -> None:
    said = f"{act.__module__.rpartition('.')[2]}.{act.__name__}"
    outcome.acts[said] += 1
    try:
        # Where others change a table it may be refused.
        with suppress(*verbs.REFUSALS):
            act(world, name)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is found)
        text = f"{type(error).__name__}: {error} {error.__cause__ or ''}"
        outcome.findings.append(f"{text[:700]} AFTER {done}")


def _compare(world: World, outcome: Outcome, done: list[str], spark: SparkSession | None) -> None:
    for name in TUBES:
        outcome.compared += 1
        try:
            found = list(differences(world, name, spark))
        except Exception as error:  # noqa: BLE001  (a reader that fails is found, too)
            found = [f"{type(error).__name__} in {name}: {error}"[:700]]
        outcome.findings += [f"{text[:1500]} AFTER {done}" for text in found]
