"""Measures in a session with Spark's own settings, by a process of its own.

They are settings of a JVM, and what it has compiled lasts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import BenchError
from bench.plan import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.plan import Plan

__all__ = ["measure"]

#: Seconds between two looks whether to stop the process.
_LOOK_S = 0.5
_PROGRAM = Path(__file__).parents[2] / "benchmark.py"


def measure(plan: Plan, location: str, stop: Callable[[], bool]) -> list[dict[str, Any]]:
    """Measure batches as the plan says, and return what `--json` has of them."""
    batches = [str(series.batch) for series in plan.series(Session.DEFAULT)]
    if not batches:
        return []
    with tempfile.TemporaryDirectory(prefix="tubeq-bench-") as directory:
        found = Path(directory) / "default.json"
        options = ["--engine=spark", "--session=default", "--only=batches"]
        options += [f"--batches={','.join(batches)}", f"--json={found}", f"--location={location}"]
        if plan.rounds is not None:
            options.append(f"--n={plan.rounds}")
        if plan.quick:
            options.append("--quick")
        code = _run_until_stopped([sys.executable, str(_PROGRAM), *options], stop)
        text = found.read_text()
        if not text or (code and not stop()):
            msg = f"the run in the default session ended with exit code {code}"
            raise BenchError(msg)
        series: list[dict[str, Any]] = json.loads(text)["series"]
        return series


def _run_until_stopped(words: list[str], stop: Callable[[], bool]) -> int:
    """Run a program, ask it to stop when we are asked to, and return its exit code."""
    # A terminal's Ctrl-C would reach it too, and the second one makes a program drop what it does.
    with subprocess.Popen(  # noqa: S603  this very program
        words, stdout=subprocess.DEVNULL, start_new_session=True
    ) as child:
        asked = False
        try:
            while True:
                if stop() and not asked:
                    child.terminate()
                    asked = True
                with suppress(subprocess.TimeoutExpired):
                    return child.wait(_LOOK_S)
        except BaseException:
            child.terminate()
            raise
