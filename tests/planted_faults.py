"""Plants faults in verbs, one after the other, and tells which test of `make test-unit` notices each.

    python -m tests.planted_faults          # all, after a run without a fault
    python -m tests.planted_faults kick     # those whose names have "kick" in them

Each fault is planted in a copy of the project, in which the commands of `make test-unit` run until a test
fails. Ends with 1 if a fault is not noticed: then a case is missing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "tubeq_spark"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in one verb.

    Attributes:
        name: What is wrong.
        file: The file of the package that it is planted in.
        right: A text that is in the file once.
        wrong: What it is replaced by.
    """

    name: str
    file: str
    right: str
    wrong: str


FAULTS = (
    Fault(
        "a put loses the ttl",
        "storage/rows.py",
        "list(map(attrgetter(field.name), rows))",
        "[None if field.name == 'ttl' else getattr(row, field.name) for row in rows]",
    ),
    Fault(
        "a put ignores the capacity",
        "verbs/put.py",
        "capacity - seen.stored",
        "capacity",
    ),
    Fault(
        "a take ignores priorities",
        "storage/tables/tube_reader.py",
        "order, skips = self._table.order, WHOLE",
        'order, skips = ["task_id"], WHOLE',
    ),
    Fault(
        "a take hands out delayed tasks",
        "storage/tables/predicates.py",
        "delayed = _one_of([TaskState.DELAYED], of) & _due(of.next_event, now_us)",
        "delayed = _one_of([TaskState.DELAYED], of)",
    ),
    Fault(
        "an ack removes nothing",
        "storage/tables/tube_writer.py",
        "[Clause(None)], reads=segments,",
        "[Clause(None)], reads=[-1],",
    ),
    Fault(
        "an ack removes what was taken together",
        "verbs/settle.py",
        "(are_whole and rows.num_rows == 1)",
        "rows.num_rows == 1",
    ),
    Fault(
        "a release forgets the delay",
        "model/changes.py",
        "delay_us=delay_us, now_us",
        "delay_us=0, now_us",
    ),
    Fault(
        "a touch shortens the lease",
        "storage/tables/row_clauses.py",
        "predicates.plus_us(_T.next_event, increment_us, LAST_US)",
        "predicates.plus_us(_T.next_event, -increment_us, LAST_US)",
    ),
    Fault(
        "a bury readies the task",
        "verbs/settle.py",
        'lambda now: GiveBack(now.fresh(), TaskState.BURIED, event="bury", error=error)  # noqa',
        'lambda now: GiveBack(now.fresh(), TaskState.READY, event="bury", error=error)  # noqa',
    ),
    Fault(
        "a kick takes the newest tasks",
        "verbs/settle_batch.py",
        "ctx.reader.places(buried, order=ctx.table.order, limit=count",
        "ctx.reader.places(buried, order=(), limit=count",
    ),
    Fault(
        "a kick keeps the attempts",
        "verbs/settle.py",
        'TaskState.READY, attempts=0, event="kick"',
        'TaskState.READY, event="kick"',
    ),
    Fault(
        "a sub-queue has two holders",
        "verbs/take.py",
        "ctx.table.is_of(among, limits.closed)",
        "ctx.table.is_of(among, ())",
    ),
    Fault(
        "a take that names sub-queues takes from others",
        "verbs/take.py",
        "ctx.table.is_of(among, limits.closed)",
        "ctx.table.is_of(None, limits.closed)",
    ),
    Fault(
        "one task more than `parallel` begins",
        "verbs/limits.py",
        "options.parallel - counts.get(of, 0))",
        "options.parallel - counts.get(of, 0) + 1)",
    ),
    Fault(
        "tasks of dead sessions stay taken",
        "runtime/sessions_over.py",
        "return owner in self._dead",
        "return False",
    ),
    Fault(
        "a task is buried one attempt late",
        "storage/tables/predicates.py",
        "else of.attempts >= integer(max_attempts)",
        "else of.attempts > integer(max_attempts)",
    ),
    Fault(
        "an ended life does not end a task",
        "storage/tables/predicates.py",
        "return of.expires_at.is_null() | (of.expires_at > at(now_us))",
        "return of.expires_at.is_null() | of.expires_at.is_not_null()",
    ),
    Fault(
        "a take does not raise the gate of its sub-queue",
        "storage/tables/take_writer.py",
        '"number": number + 1}',
        '"number": number}',
    ),
)


def main() -> int:
    """Plant the faults that are asked for; returns the exit code."""
    asked = sys.argv[1:]
    chosen = [f for f in FAULTS if not asked or any(word in f.name for word in asked)]
    if not chosen:
        print("no fault has such a name; there are:", *(f.name for f in FAULTS), sep="\n  ")
        return 2
    missed = []
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "copy"
        others = shutil.ignore_patterns(
            ".git", ".venv", ".compat", "__pycache__", ".*_cache", "*.egg-info"
        )
        shutil.copytree(ROOT, copy, ignore=others)
        if not asked:
            failed, seconds = _noticed(copy)
            if failed:
                print(f"{failed} fails without a fault")
                return 1
            print(f"{seconds:4.0f} s  no fault: all tests pass", flush=True)
        for fault in chosen:
            file = copy / PACKAGE / fault.file
            sound = file.read_text(encoding="utf-8")
            if sound.count(fault.right) != 1:
                print(f"{fault.file} does not have once: {fault.right!r}")
                return 2
            file.write_text(sound.replace(fault.right, fault.wrong), encoding="utf-8")
            failed, seconds = _noticed(copy)
            file.write_text(sound, encoding="utf-8")
            print(f"{seconds:4.0f} s  {fault.name}: {failed or 'NOT NOTICED'}", flush=True)
            if not failed:
                missed.append(fault)
    return 1 if missed else 0


def _noticed(copy: Path) -> tuple[str, float]:
    """The first test that fails in a copy, empty if none does; and the seconds of all."""
    began = time.monotonic()
    for command in _commands():
        done = subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
            text = found[1] if found else (done.stdout + done.stderr)[-2_000:]
            return text, time.monotonic() - began
    return "", time.monotonic() - began


def _commands() -> list[list[str]]:
    """What `make test-unit` runs; first what takes the verbs through the native engine."""
    shown = subprocess.run(
        ["make", "--no-print-directory", "-n", "test-unit", "ARGS=-x -q -p no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = shown.stdout.replace("\\\n", " ")
    tests = re.findall(r"-m pytest (.*?) \|\| status=1", lines)
    python = [sys.executable, "-m", "pytest"]
    return [[*python, *shlex.split(arguments)] for arguments in reversed(tests)]


if __name__ == "__main__":
    sys.exit(main())
