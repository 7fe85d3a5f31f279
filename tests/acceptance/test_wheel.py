"""The wheel alone, in an empty environment, runs README's first example, and type checkers read its types."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.pages import examples
from tests.programs import ROOT, built_wheel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nightly

#: What a user's program does, with two mistakes, which the checkers must find.
PROGRAM = '''"""A user's program."""

import datetime as dt
from typing import Any

from tubeq_spark import Queue, Task, Tube


def handle(task: Task) -> None:
    data: Any = task.data
    print(task.task_id + 1, data, task.utube, task.attempts)


with Queue(None, "./q") as queue:
    mail: Tube = queue.create_tube("mail", "fifottl", if_not_exists=True, ttr=60)
    put = mail.put({"to": "bob"}, pri=1, ttl=dt.timedelta(minutes=5))
    number: int | None = None if put is None else put.task_id
    taken = mail.take(timeout=0)
    if taken is not None:
        mail.ack(taken)
    for each in mail.take_many(2):
        mail.release(each, delay=1)
    print(mail.work(handle, idle=0).done, queue.health().ok)
'''
MISTAKES = """    mail.put(1, priority=2)
    mail.take(timeout=0).task_id
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel, what it depends on, mypy and pyright."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = built_wheel(folder)
    run(sys.executable, "-m", "venv", str(folder / "venv"))
    python = folder / "venv" / "bin" / "python"
    run(str(python), "-m", "pip", "install", "--quiet", str(wheel), "mypy", "pyright")
    return python


def run(*words: str, cwd: Path = ROOT) -> str:
    """What a program prints; it must end well."""
    done = ended(*words, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ended(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A program that has ended, without the checkout on its path and the settings of the tests."""
    ours = ("PYTHONPATH", "TUBEQ_")
    environment = {name: of for name, of in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=500
    )


def test_readme_first_example_runs_with_the_wheel_alone(python: Path, tmp_path: Path) -> None:
    first = next(each for each in examples("README.md") if each.kind == "python")

    printed = run(str(python), "-c", first.text, cwd=tmp_path)

    assert printed == first.output


@pytest.mark.parametrize("checker", [["mypy", "--strict"], ["pyright"]], ids=["mypy", "pyright"])
def test_type_checker_reads_the_types_of_the_wheel(
    python: Path, tmp_path: Path, checker: list[str]
) -> None:
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(PROGRAM + MISTAKES)

    def checked(name: str) -> subprocess.CompletedProcess[str]:
        program, *options = checker
        words = [str(python.parent / program), *options, name]
        if program == "pyright":
            words += ["--pythonpath", str(python)]
        return ended(*words, cwd=tmp_path)

    right, wrong = checked("right.py"), checked("wrong.py")

    assert right.returncode == 0, right.stdout
    assert wrong.returncode == 1
    assert "priority" in wrong.stdout
    assert "task_id" in wrong.stdout
