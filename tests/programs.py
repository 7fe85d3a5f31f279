"""Starts programs for tests, each in a process with a JVM of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.jvm_options import SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]


def environment(**more: str) -> dict[str, str]:
    """The environment of a program: it finds the package, and its JVM is one of minutes.

    Spark says nothing of options that come this way, as Java does of those in its own variables.
    """
    return os.environ | {"PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": SHORT_LIVED} | more


def built_wheel(folder: Path) -> Path:
    """The package as it is released, built into a folder."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={folder}"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [built] = folder.glob("*.whl")
    return built


def conversing(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program that is given as text, and that is told and tells lines."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ran(
    *arguments: str, cwd: Path | None = None, stdin: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of Python to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(**variables),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )


@contextmanager
def started(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A program of Python that runs until it ends or the block is left, whatever happens in there."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def served(program: str, folder: Path, *arguments: str) -> Iterator[str]:
    """Run a server until the block is left; gives the line that it says when it is ready.

    Args:
        program: The file of its program, which ends with its standard input.
        folder: What it writes is there; also its working directory.
        *arguments: More of its arguments.
    """
    surroundings = environment()
    # Set in a process that is a client of Spark Connect; a server is none.
    surroundings.pop("SPARK_CONNECT_MODE_ENABLED", None)
    with subprocess.Popen(
        [sys.executable, program, str(folder), *arguments],
        cwd=folder,
        env=surroundings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            said = process.stdout.readline().strip()
            assert said, "the server did not start: see its stderr"
            yield said
        finally:
            # It ends when nobody holds the other end of its input: also after a crash of ours.
            process.stdin.close()
            process.wait()
