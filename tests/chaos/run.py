"""Runs a chaos: kills or stops processes at one location at random, and measures the outcome."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

from tests.chaos.checker import findings
from tests.chaos.drain import drain
from tests.chaos.history import History
from tests.chaos.journal import Journal, lives_of
from tests.chaos.outcome import Outcome, measure
from tests.chaos.places import Native, SparkJob
from tests.chaos.plan import DRAIN, PAUSES, STORE_URL, TUBES, open_queue

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Chaos"]

#: Verbs after which a Spark job is killed: how long it takes for them is the machine's.
_SPARK_VERBS = (1, 12)
#: How far native processes stand back for a Spark job, which would be killed before it has done much.
_NICE = 10
#: Which native process of four runs loops of work.
_LOOPS = 2
#: How many of what is done to a process are pauses; the others kill it.
_PAUSED = 0.35


class Chaos:
    """One run."""

    def __init__(self, directory: Path, seed: int, workers: int, *, spark: bool) -> None:
        """Prepare it.

        Args:
            directory: Where the queue and the journals go.
            seed: What its decisions hang on; the moments are those of the machine.
            workers: How many native processes, >= 3, of which one runs loops of work.
            spark: Whether there is a Spark job, too.
        """
        journals = directory / "journals"
        journals.mkdir(parents=True)
        self._journals = journals
        self._journal = Journal(journals / "chaos.journal")
        #: Its files; `None`: they are on a store.
        self._files = None if STORE_URL in os.environ else directory / "queue"
        self._location = "s3a://bucket/queue" if self._files is None else str(self._files)
        self._random = random.Random(seed)
        nice = _NICE if spark else 0
        self._natives = [
            Native(self._location, journals, number, nice, loops=number % 4 == _LOOPS)
            for number in range(workers)
        ]
        self._spark = SparkJob(self._location, journals) if spark else None
        #: Until when the processes of some places are stopped.
        self._paused: dict[Native, float] = {}
        self._wrong: list[str] = []

    def run(self, seconds: float, every: float) -> Outcome:
        """Let it go on for some seconds, then look what came of it.

        Args:
            seconds: How long.
            every: Seconds from one kill or pause to the next, on the average.
        """
        with open_queue(self._location) as queue:
            for tube in TUBES:
                queue.create_tube(tube.name, **tube.options)
        kills = 0
        places: list[Native | SparkJob] = [*self._natives]
        if self._spark is not None:
            places.append(self._spark)
        try:
            for place in reversed(places):
                place.start()
                if isinstance(place, SparkJob):
                    place.wait()
            kills = self._go_on(seconds, every)
        finally:
            for place in places:
                kills += place.kill()
            if self._spark is not None:
                self._spark.end()
        journal = Journal(self._journals / f"{DRAIN}.journal")
        drained, counted = drain(self._location, journal, time.monotonic())
        lives = lives_of(self._journals)
        history = History(lives)
        outcome = Outcome([*self._wrong, *counted, *findings(history, drained)], kills)
        measure(outcome, self._files, lives, history, drained)
        return outcome

    def _go_on(self, seconds: float, every: float) -> int:
        until = time.monotonic() + seconds
        kills = 0
        spark_dies = self._random.randint(*_SPARK_VERBS)
        while time.monotonic() < until:
            self._sleep(self._random.uniform(0, 2 * every))
            place = self._random.choice(self._natives)
            pauses = self._random.random() < _PAUSED
            if self._spark is not None and self._spark.verbs() >= spark_dies:
                spark_dies = self._random.randint(*_SPARK_VERBS)
                kills += self._kill(self._spark)
            elif pauses and place not in self._paused:
                self._pause(place)
            else:
                self._paused.pop(place, None)
                kills += self._kill(place)
        return kills

    def _kill(self, place: Native | SparkJob) -> bool:
        is_killed = place.kill()
        if not is_killed:
            self._wrong.append("a process ended by itself")
        place.start()
        return is_killed

    def _pause(self, place: Native) -> None:
        # What a loop of work makes of its tasks when it goes on shows only when it has lost them.
        ranges = PAUSES[-1:] if place.loops else PAUSES
        seconds = self._random.uniform(*self._random.choice(ranges))
        self._journal.write(paused=place.life, seconds=seconds)
        place.pause()
        self._paused[place] = time.monotonic() + seconds

    def _sleep(self, seconds: float) -> None:
        """Sleep, and let those go on meanwhile whose pauses are over."""
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            for place in [place for place, end in self._paused.items() if end <= now]:
                del self._paused[place]
                place.resume()
            if now >= until:
                return
            time.sleep(max(0.0, min([until, *self._paused.values()]) - now))
