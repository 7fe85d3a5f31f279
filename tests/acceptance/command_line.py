"""Runs commands of `tubeq` in the process of the tests, on a new queue without Spark."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, NoReturn

from typer.testing import CliRunner

from tests.acceptance.support import FOR_EVER
from tubeq_spark import Queue
from tubeq_spark.cli.app import app
from tubeq_spark.cli.call import Outside

if TYPE_CHECKING:
    from typer.testing import Result

    from tubeq_spark import Clock, Tube

__all__ = ["SparkAskedForError", "Tubeq", "invoke"]


class SparkAskedForError(Exception):
    """Somebody wanted a Spark session."""


def no_spark(remote: str | None) -> NoReturn:
    raise SparkAskedForError(remote)


def invoke(
    *arguments: str, stdin: str = "", outside: Outside | None = None, **variables: str
) -> Result:
    """Run the command line with arguments."""
    found = CliRunner().invoke(
        app,
        arguments,
        input=stdin,
        obj=Outside(open_spark=no_spark) if outside is None else outside,
        prog_name="tubeq",
        env=variables,
    )
    assert found.exception is None or isinstance(found.exception, SystemExit)
    return found


class Tubeq:
    """A queue, and the command line on it; both have one clock.

    Attributes:
        queue: Its session outlives every step of the clock.
        clock: The clock.
    """

    def __init__(self, location: str, clock: Clock) -> None:
        self.queue = Queue(None, location, engine="native", clock=clock)
        self.queue.cfg(ttr=FOR_EVER)
        self.clock = clock
        self._numbers = itertools.count(1)

    def __call__(self, *arguments: str, stdin: str = "") -> Result:
        """Run a command."""
        outside = Outside(open_spark=no_spark, clock=self.clock)
        return invoke("--location", self.queue.location, *arguments, stdin=stdin, outside=outside)

    def tube(self, type_name: str = "fifo", **options: Any) -> Tube:
        """Make a tube."""
        return self.queue.create_tube(f"{type_name}_{next(self._numbers)}", type_name, **options)

    def json(self, *arguments: str, stdin: str = "") -> list[Any]:
        """What a command that goes well prints with `--json`."""
        found = self("--json", *arguments, stdin=stdin)
        assert found.exit_code == 0, found.stderr
        return [json.loads(line) for line in found.stdout.splitlines()]

    def rows(self, *arguments: str) -> list[dict[str, str]]:
        """The rows of a table without spaces in its cells, by their columns."""
        found = self(*arguments)
        assert found.exit_code == 0, found.stderr
        header, *lines = [line.split() for line in found.stdout.splitlines()]
        return [dict(zip(header, line, strict=False)) for line in lines]

    def refusal(self, *arguments: str, stdin: str = "") -> str:
        """The last line of what a command says that was badly used."""
        found = self(*arguments, stdin=stdin)
        assert (found.exit_code, found.stdout) == (2, ""), arguments
        assert "Traceback" not in found.stderr
        return found.stderr.splitlines()[-1]
