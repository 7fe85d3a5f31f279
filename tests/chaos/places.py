"""Starts one process after the other at each place of a chaos, and kills each of them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.chaos.journal import SPARK, begun_in
from tests.chaos.looper import work_off
from tests.chaos.plan import FOLDS_MOST, FOLDS_SOME
from tests.chaos.worker import Place, work

__all__ = ["Native", "SparkJob"]

ROOT = Path(__file__).parents[2]
_SPARK_JOB = (sys.executable, "-m", "tests.chaos.spark_job")
#: Seconds that the JVM of a killed job may go on.
_JVM_ENDS = 60.0


class Native:
    """A place for native processes."""

    def __init__(
        self, location: str, directory: Path, number: int, nice: int, **settings: Any
    ) -> None:
        """Start none yet; `settings` are those of `Place` that have defaults."""
        # Each begins with everything imported, as half of its life would go by for that.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.chaos.looper"])
        self._directory, self._name = directory, f"native{number}"
        self._place = Place(
            location,
            single=number == 0,
            # Threads of a process share their commits; a single taker is one.
            threads=2 if number % 4 == 3 else 1,
            folds=FOLDS_MOST if number % 4 else FOLDS_SOME,
            nice=nice,
            **settings,
        )
        self._lives = 0
        self._process: multiprocessing.process.BaseProcess | None = None

    @property
    def loops(self) -> bool:
        """Whether the processes there run loops of work."""
        return self._place.loops

    @property
    def life(self) -> str:
        """The name of the process that works there."""
        return f"{self._name}-{self._lives}"

    def start(self) -> None:
        """Start the next process."""
        self._lives += 1
        journal = str(self._directory / f"{self.life}.journal")
        args = (self._place, self._name, self._lives, journal)
        target = work_off if self._place.loops else work
        self._process = self._context.Process(target=target, args=args)
        self._process.start()

    def kill(self) -> bool:
        """Kill it, also while it is paused; False: it had ended by itself."""
        if self._process is None:
            return False
        is_alive = self._process.is_alive()
        self._process.kill()
        self._process.join()
        return is_alive

    def pause(self) -> None:
        """Stop it where it is, with all locks that it holds."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._send(signal.SIGCONT)

    def _send(self, sent: signal.Signals) -> None:
        if self._process is not None and self._process.pid is not None:
            # One that has ended by itself is found when it is killed.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, sent)


class SparkJob:
    """A place for Spark jobs."""

    def __init__(self, location: str, directory: Path, durability: str | None = None) -> None:
        self._location, self._directory = location, directory
        self._environment = {"TUBEQ_DURABILITY": durability} if durability else {}
        self._lives = 0
        self._started: list[subprocess.Popen[bytes]] = []
        self._journal = directory

    def start(self) -> None:
        """Start the next job."""
        self._lives += 1
        name = f"{SPARK}{self._lives}"
        self._journal = self._directory / f"{name}.journal"
        with (self._directory / f"{name}.err").open("wb") as errors:
            self._started.append(
                subprocess.Popen(
                    [*_SPARK_JOB, self._location, str(self._journal), name],
                    cwd=ROOT,
                    env={**os.environ, **self._environment},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                )
            )

    def verbs(self) -> int:
        """How many verbs it has called."""
        return begun_in(self._journal)

    def wait(self) -> None:
        """Wait until it works, or has ended."""
        while not self.verbs() and self._started[-1].poll() is None:
            time.sleep(0.1)

    def kill(self) -> bool:
        """Kill its Python; its JVM notices that by itself."""
        process = self._started[-1]
        is_alive = process.poll() is None
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        return is_alive

    def end(self, patience: float = _JVM_ENDS) -> None:
        """Wait for the JVMs, and end those that do not."""
        until = time.monotonic() + patience
        for process in self._started:
            while time.monotonic() < until and _is_group(process.pid):
                time.sleep(0.1)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _is_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
