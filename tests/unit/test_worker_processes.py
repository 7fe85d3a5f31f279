"""The parent of worker processes, with tiny programs as its children."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tubeq_spark.runtime.stopping import Stop, Wake
from tubeq_spark.testing import ManualClock
from tubeq_spark.workers.processes import Processes

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.workers.loop import WorkReport
    from tubeq_spark.workers.processes import Overdue

#: What each child begins with: how it tells its parent something, and where it is the first of a directory.
CHILD = """
import os, sys, time

def tell(text):
    os.write(int(sys.argv[-1]), text.encode() + b"\\n")

def is_first(name):
    try:
        os.mkdir(os.path.join(sys.argv[1], name))
    except FileExistsError:
        return False
    return True
"""


class Parent:
    """Runs children in a directory; time passes only while it has none."""

    def __init__(self, place: Path, child: str, count: int = 1) -> None:
        self.clock = ManualClock()
        self.asked = threading.Event()
        self.given_back: list[Overdue] = []
        # Without the site directories it begins at once.
        command = [sys.executable, "-I", "-S", "-c", CHILD + child, str(place)]
        self._processes = Processes(
            command,
            count,
            stop=Stop(self.asked, Wake()),
            clock=self.clock,
            give_back=self.give_back,
            told=self.told,
        )

    def run(self) -> WorkReport:
        """Run them until all have ended."""
        return self._processes.run()

    def give_back(self, child: Overdue) -> None:
        """Note what a killed child held."""
        self.given_back.append(child)

    def told(self, report: WorkReport) -> None:
        """Hear what all have done so far."""


def test_child_when_it_dies_with_1_is_started_again_after_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parent = Parent(tmp_path, "if is_first('a'): os._exit(1)\ntell('{\"done\": 1}')")

    assert parent.run().done == 1

    assert parent.clock.monotonic() >= 1
    assert [record.getMessage() for record in caplog.records] == [
        "a worker process died (1); another begins in 2 s"
    ]


class Stopped(Parent):
    """It is asked to end once a child has told something."""

    def told(self, report: WorkReport) -> None:
        if report.done:
            self.asked.set()


@pytest.mark.parametrize("code", ["-15", "143", "1"])
def test_child_when_it_ends_after_a_stop_was_asked_for_has_died_only_by_other_codes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    ends = "" if code == "-15" else f"signal.signal(15, lambda *_: os._exit({code}))"
    parent = Stopped(tmp_path, f"import signal\n{ends}\ntell('{{\"done\": 1}}')\ntime.sleep(600)")

    assert parent.run().done == 1

    logged = [record.getMessage() for record in caplog.records]
    assert logged == (["a worker process died (1)"] if code == "1" else [])


def test_child_when_the_terminal_signals_its_parents_group_does_not_get_the_signal(
    tmp_path: Path,
) -> None:
    parent = Parent(tmp_path, "tell('{\"done\": %d}' % (os.getpgrp() == os.getpid()))")

    assert parent.run().done == 1
