"""How long a call of `tubeq put` takes from the start of its process to its end, without Spark."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.measure import BenchError
from tubeq_spark import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Started", "measure"]

#: What such a call cannot do without: Python, and the libraries that it writes with.
_FLOOR = "import deltalake"
_TASK = '{"n": 1}\n'


@dataclass(slots=True)
class Started:
    """Seconds of each call."""

    put: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)


def measure(location: str, found: Started, rounds: Iterable[int]) -> None:
    """Put some tasks, a process each, and in turns with them start what they all need.

    Raises:
        BenchError: One failed.
    """
    with Queue(None, location, engine="native") as queue:
        queue.create_tube("start", "fifottl", if_not_exists=True)
    floor = ["-c", _FLOOR]
    put = ["-m", "tubeq_spark.cli", "--engine", "native", "--location", location, "put", "start"]
    for words in (put, floor):
        _run(words)  # what is not in the page cache yet
    for _ in rounds:
        found.floor.append(_run(floor))
        found.put.append(_run(put))


def _run(words: list[str]) -> float:
    began = time.perf_counter()
    ran = subprocess.run(  # noqa: S603  this very Python
        [sys.executable, *words],
        input=_TASK,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    seconds = time.perf_counter() - began
    if ran.returncode:
        msg = f"{' '.join(words)} ended with exit code {ran.returncode}: {ran.stderr.strip()}"
        raise BenchError(msg)
    return seconds
