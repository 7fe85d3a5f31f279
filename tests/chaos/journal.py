"""Keeps journals outside of the queue: each process notes a verb before it calls it, and its outcome.

A journal is a file of lines of JSON, each written by one call of the system: a process that is
killed has written a line or not. The times are those of the clock that all processes of the host
share and that never goes back.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SPARK", "Entry", "Journal", "Life", "Op", "begun_in", "lives_of", "ops_of"]

#: How the names of Spark jobs begin.
SPARK = "spark-"

#: Errors of the package that say that nothing was written, however they came.
REFUSED = frozenset(
    {"ConflictError", "NotTakenError", "SessionError", "StoreError", "TaskNotFoundError"}
)


class Entry:
    """A verb that is about to be called; what it answers is written down at the end."""

    def __init__(self) -> None:
        self.result: dict[str, Any] = {}


class Journal:
    """The journal of one process."""

    def __init__(self, file: Path) -> None:
        """Begin it."""
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers = itertools.count()

    def write(self, **entry: Any) -> None:
        """Add a line."""
        os.write(self._file, json.dumps({"at": time.monotonic(), **entry}).encode() + b"\n")

    def begin(self, verb: str, tube: str, **arguments: Any) -> int:
        """Write that a verb is about to be called; a line with its number as `end` says that it came back."""
        number = next(self._numbers)
        self.write(begin=number, verb=verb, tube=tube, **arguments)
        return number

    @contextmanager
    def verb(self, verb: str, tube: str, **arguments: Any) -> Iterator[Entry]:
        """Run a block that calls a verb; what it raises is written down and goes no further."""
        number = self.begin(verb, tube, **arguments)
        entry = Entry()
        try:
            yield entry
        except Exception as error:  # noqa: BLE001  (what it was is judged later)
            self.write(end=number, error=type(error).__name__, message=str(error)[:500])
        else:
            self.write(end=number, **entry.result)


@dataclass(slots=True)
class Op:
    """One call of a verb.

    Attributes:
        life: Whose it was.
        verb: Its name.
        tube: The tube.
        begin: When it was about to be called.
        arguments: What it was called with.
        end: When it came back; `None`: its process was killed before.
        result: What it answered.
        error: The class of what it raised.
    """

    life: str
    verb: str
    tube: str
    begin: float
    arguments: dict[str, Any]
    end: float | None = None
    result: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether it was acknowledged."""
        return self.end is not None and self.error is None and not self.result.get("unsure")

    @property
    def is_unknown(self) -> bool:
        """Whether it may have been done and may not."""
        if self.end is None or self.result.get("unsure"):
            return True
        return self.error is not None and self.error not in REFUSED

    @property
    def name(self) -> str:
        """What it is counted as: whose it was, its name, and how it was called if in more than one way."""
        engine = "spark " if self.life.startswith(SPARK) else ""
        return f"{engine}{self.verb} {self.arguments.get('how', '')}".rstrip()

    @property
    def count(self) -> int:
        """How many tasks it has put."""
        return int(self.result.get("count", len(self.result.get("ids", ()))))

    @property
    def unseen(self) -> int:
        """How many tasks it has taken in a batch whose lease was over before it was looked at."""
        tasks = len(self.result.get("tasks", ()))
        return int(self.result.get("count", tasks)) - tasks if self.verb == "take" else 0

    def __str__(self) -> str:
        came = "was killed" if self.end is None else self.error or "done"
        return f"{self.name} on {self.tube} by {self.life} at {self.begin:.3f} ({came})"


@dataclass(slots=True)
class Life:
    """What one process wrote.

    Attributes:
        name: Its name.
        ops: The verbs that it called.
        told: Lines that are not of a verb.
    """

    name: str
    ops: list[Op]
    told: list[dict[str, Any]]


def lives_of(directory: Path) -> list[Life]:
    """All journals of a directory."""
    return [_life(file) for file in sorted(directory.glob("*.journal"))]


def ops_of(file: Path) -> list[Op]:
    """The verbs that a process called; none of one that was killed before it began."""
    return _life(file).ops if file.exists() else []


def begun_in(file: Path) -> int:
    """How many verbs a process has called so far; its last line may be half written."""
    return file.read_bytes().count(b'"begin": ') if file.exists() else 0


def _life(file: Path) -> Life:
    life = Life(file.stem, [], [])
    ops: dict[int, Op] = {}
    for line in file.read_text().splitlines():
        entry = json.loads(line)
        at = entry.pop("at")
        if "begin" in entry:
            number = entry.pop("begin")
            verb, tube = entry.pop("verb"), entry.pop("tube")
            ops[number] = Op(life.name, verb, tube, at, entry)
        elif "end" in entry:
            op = ops[entry.pop("end")]
            op.end, op.result = at, entry
            op.error = entry.get("error")
        else:
            life.told.append({"at": at, **entry})
    life.ops = list(ops.values())
    return life
