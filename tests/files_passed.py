"""Counts the files of the package through which a put, a take and an ack of one task pass, without Spark.

A program: `python -m tests.files_passed` prints the numbers, and how many modules all three have loaded.
With `--names` it prints the files, too.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tubeq_spark
from tubeq_spark import Queue

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PACKAGE = f"{Path(tubeq_spark.__file__).parent}/"
#: The first calls fill what later ones find.
_ROUNDS = 10


class Passed:
    """The files with a function that has been called since `during` began, in any thread."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        # Verbs run in threads, which begin with the profile function of that time.
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            self._files.add(name.removeprefix(PACKAGE))

    def during(self, call: Callable[[], Any]) -> tuple[Any, list[str]]:
        """Call it, and give its result and the files."""
        self._files.clear()
        sys.setprofile(self._note)
        try:
            result = call()
        finally:
            sys.setprofile(None)
        return result, sorted(self._files)


def main() -> None:
    """Print the numbers."""
    passed = Passed()
    with tempfile.TemporaryDirectory() as directory, Queue(None, f"{directory}/queue") as queue:
        tube = queue.create_tube("t", "fifottl")
        for _ in range(_ROUNDS):
            _, put = passed.during(lambda: tube.put("x"))
            task, take = passed.during(lambda: tube.take(timeout=0))
            _, ack = passed.during(lambda task=task: tube.ack(task.task_id))
    for verb, files in (("put", put), ("take", take), ("ack", ack)):
        print(f"{verb}: {len(files)} files")
        if "--names" in sys.argv:
            print(*(f"  {file}" for file in files), sep="\n")
    own = sum(name.partition(".")[0] == "tubeq_spark" for name in sys.modules)
    print(f"modules loaded: {own} of the package, {len(sys.modules) - own} others")


if __name__ == "__main__":
    main()
