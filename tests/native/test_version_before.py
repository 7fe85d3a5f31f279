"""The version before, as a program of its own, beside this one on the same tubes.

Its code comes from the history of the repository; where there is none these tests are skipped.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.programs import ROOT, environment
from tubeq_spark import Backoff, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark import Tube

#: The last commit whose code knows format 1 alone.
BEFORE = "8029677"
#: Evaluates a line of Python after the other with the queue at hand, and prints what it finds as JSON.
PROGRAM = """
import json, sys
from tubeq_spark import Queue
from tubeq_spark.storage.tables.schema import FORMAT_VERSION
assert FORMAT_VERSION == 1, FORMAT_VERSION
queue = None
for line in sys.stdin:
    try:
        queue = queue or Queue(None, sys.argv[1], engine="native")
        found = eval(line)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    print(json.dumps(found, default=str), flush=True)
"""
TYPES = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")


@pytest.fixture(scope="module")
def code_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as the version before has it."""
    archived = subprocess.run(
        ["git", "archive", BEFORE, "tubeq_spark"], cwd=ROOT, capture_output=True, check=False
    )
    if archived.returncode:
        pytest.skip(f"the history of the repository has no {BEFORE}: {archived.stderr.decode()}")
    place = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as tar:
        tar.extractall(place, filter="data")
    return place


class Program:
    """A program of the version before, with the queue open."""

    def __init__(self, code: Path, location: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, location],
            env=environment(PYTHONPATH=str(code)),
            cwd=code,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, line: str) -> Any:
        """What a line of Python gives there; an error as text."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the program has ended at {line}"
        return json.loads(answer)

    def end(self) -> None:
        """Let it close its queue and end."""
        self("queue and queue.close()")
        self.process.communicate(timeout=60)


@pytest.fixture
def before(code_before: Path, location: str) -> Iterator[Callable[[], Program]]:
    """Starts programs of the version before."""
    started: list[Program] = []

    def start() -> Program:
        started.append(Program(code_before, location))
        return started[-1]

    yield start
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
            program.process.communicate()


def pairs(tube: Tube, *, put: int) -> list[Any]:
    """Put some, take and ack all that are there."""
    tube.put_many([f"new {number}" for number in range(put)])
    tasks = tube.take_many(100, per_utube=100 if "utube" in tube.type else 1)
    tube.ack_many([task.task_id for task in tasks])
    return [task.data for task in tasks]


@pytest.mark.parametrize("made_by", ["old", "new"])
def test_both_versions_when_they_work_on_the_same_tubes_share_their_tasks(
    before: Callable[[], Program], location: str, made_by: str
) -> None:
    with Queue(None, location, engine="native") as queue:
        old = before()
        for type_name in TYPES:
            if made_by == "old":
                assert old(f"queue.create_tube('{type_name}', '{type_name}').name") == type_name
            else:
                queue.create_tube(type_name, type_name)
        for type_name in TYPES:
            tube = queue[type_name]
            tube.put_many(["a", "b", "c"])
            held = tube.take(timeout=0)
            assert held is not None
            assert held.data == "a"

            per_utube = 2 if "utube" in type_name else 1
            of = f"queue.tube('{type_name}')"
            assert old(f"{of}.put('d').data") == "d"
            if "utube" in type_name:
                assert old(f"{of}.take(timeout=0)") is None
            tube.ack(held.task_id)
            assert old(f"[t.data for t in {of}.take_many(2, per_utube={per_utube})]") == ["b", "c"]
            assert old(f"{of}.release_all()") is None
            assert old(f"[{of}.bury(t.task_id).data for t in {of}.take_many(1)]") == ["b"]
            assert tube.kick() == 1
            assert pairs(tube, put=1) == ["b", "c", "d", "new 0"]
            tube.alter(max_attempts=5)
            tube.resume()
            assert old(f"{of}.put('e') and {of}.take(timeout=0).data") == "e"
            assert tube.take(timeout=0) is None
            assert old(f"queue.statistics('{type_name}')['tasks']['done']") == 5
        old.end()
        assert [data for name in TYPES for data in pairs(queue[name], put=0)] == ["e"] * 5
        assert [data for name in TYPES for data in pairs(queue[name], put=2)] == [
            "new 0",
            "new 1",
        ] * 5


@pytest.mark.parametrize("feature", ["pause", "alter", "create", "upgrade"])
def test_version_before_when_a_new_feature_was_used_is_refused(
    before: Callable[[], Program], location: str, feature: str
) -> None:
    with Queue(None, location, engine="native") as queue:
        tube = queue.create_tube("t", "fifottl")
        tube.put(1)
        first = before()
        assert first("queue.tubes()") == ["t"]
        if feature == "pause":
            tube.pause()
        elif feature == "alter":
            tube.alter(backoff=Backoff())
        elif feature == "create":
            queue.create_tube("limited", most_taken=1)
        else:
            assert queue.upgrade() == ["t"]

        assert "format version 2" in first("queue.tubes()")
        assert "format version 2" in before()("queue.tubes()")


def test_versions_when_one_of_each_takes_at_the_same_time_give_each_task_to_one(
    before: Callable[[], Program], location: str
) -> None:
    with Queue(None, location, engine="native") as queue:
        tube = queue.create_tube("t", "utubettl")
        tube.put_many([{"n": number} for number in range(60)])
        olds = [before(), before()]
        for old in olds:
            assert old("queue.tubes()") == ["t"]
        all_of = "[t.data['n'] for _ in range(40) for t in [queue.tube('t').take(timeout=0)] if t"
        for old in olds:  # both begin before anybody reads what they have done
            assert old.process.stdin is not None
            old.process.stdin.write(f"{all_of} and queue.tube('t').ack(t.task_id)]\n")
            old.process.stdin.flush()
        done = []
        for _ in range(40):
            task = tube.take(timeout=0)
            if task is not None:
                done.append(tube.ack(task.task_id).data["n"])
        for old in olds:
            assert old.process.stdout is not None
            done += json.loads(old.process.stdout.readline())
        done += [task.data["n"] for task in tube.take_many(60, per_utube=60)]

        assert sorted(done) == [*range(60)]
