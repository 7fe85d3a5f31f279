"""Each example of README and `docs` that can run prints what its page shows, from the top of the page on."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tests.pages import PAGES, ROOT, Example, commands, examples
from tests.programs import environment
from tests.thorough import thorough
from tubeq_spark import Queue
from tubeq_spark.cli.app import app
from tubeq_spark.cli.call import Outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    Capture = pytest.CaptureFixture[str]

RUN = [
    name
    for name in PAGES
    if any(e.kind in ("python", "console") and e.reason is None for e in examples(name))
]
#: Followed once more in the same place, as somebody does who has begun with them.
AGAIN = {"README.md", "docs/start/install.md", "docs/start/status-table.md"}
#: What an example needs a Spark session for: its name, or a program that starts one.
_OF_SPARK = re.compile(r"\bspark\b|\bjobs/")


class Reader:
    """Does what a page says, in one folder and with one set of names."""

    def __init__(
        self, spark: SparkSession | None, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.spark = spark
        self.capsys, self.monkeypatch = capsys, monkeypatch
        self.names: dict[str, object] = {"__name__": "page"}
        if spark is not None:
            self.names["spark"] = spark
        self.before = self.tables()

    def follow(self, name: str, example: Example) -> None:
        """Run an example and compare what it prints."""
        where = f"{name}:{example.line}"
        # In its own line, so that errors name it.
        code = "\n" * example.line + example.text
        if example.title is not None:
            Path(example.title).write_text(example.text, encoding="utf-8")
        elif example.kind == "python":
            self.capsys.readouterr()
            exec(compile(code, str(PAGES[name]), "exec"), self.names)
            require(where, example.output, self.capsys.readouterr().out)
        elif example.kind == "console":
            for command, output in commands(example.text):
                require(f"{where}: {command}", output, self.call(command))

    def call(self, command: str) -> str:
        """Run a command as a shell would; returns what it prints."""
        program, *arguments = shlex.split(command)
        if program == "export":
            name, _, value = arguments[0].partition("=")
            self.monkeypatch.setenv(name, value)
            return ""
        if program == "tubeq":
            outside = Outside(open_spark=lambda _remote: self.require_spark())
            found = CliRunner().invoke(app, arguments, obj=outside, prog_name="tubeq")
            assert found.exit_code == 0, found.output
            return found.stdout
        if program == "python" and arguments[0].startswith("jobs/"):
            path, *options = arguments
            # Spark's own paths begin where its JVM was started.
            options = [re.sub(r"^\./", f"{Path.cwd()}/", option) for option in options]
            job = Path(path)
            assert (ROOT / job).is_file()
            self.capsys.readouterr()
            assert importlib.import_module(job.stem).main(options) == 0, self.capsys.readouterr()
            return self.capsys.readouterr().out
        python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            command,
            shell=True,
            check=True,
            capture_output=True,
            text=True,
            env=environment(PATH=python),
        )
        return done.stdout

    def require_spark(self) -> SparkSession:
        """The session; a page that is followed without one starts none."""
        assert self.spark is not None, "a page that names no Spark needs it"
        return self.spark

    def tables(self) -> set[tuple[str, str]]:
        """The tables and views that a session has without saying where."""
        if self.spark is None:
            return set()
        rows = self.spark.sql("SHOW TABLES").collect()
        return {("VIEW" if row.isTemporary else "TABLE", row.tableName) for row in rows}

    def leave(self) -> None:
        """Close what a page that failed has left open, and drop what it has made beside the queue."""
        for value in self.names.values():
            if isinstance(value, Queue):
                value.close()
        for kind, name in self.tables() - self.before:
            self.spark.sql(f"DROP {kind} {name}")


def require(where: str, told: str, printed: str) -> None:
    """Compare outputs; `...` stands for anything."""
    checker, example = doctest.OutputChecker(), doctest.Example("", told)
    if not checker.check_output(told, printed, doctest.ELLIPSIS):
        pytest.fail(f"{where}\n{checker.output_difference(example, printed, doctest.ELLIPSIS)}")


def asks_for_spark(name: str = "", **_: object) -> bool:
    """Whether a page has an example that is run and needs Spark."""
    return bool(name) and any(
        _OF_SPARK.search(each.text)
        for each in examples(name)
        if each.kind in ("python", "console") and not each.reason
    )


@pytest.fixture
def reader(
    request: pytest.FixtureRequest,
    name: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Reader]:
    """Somebody who follows a page, and has set nothing: also not the engine, as other tests have.

    There is a Spark session for pages that need one; the others are for those who have none.
    """
    spark = request.getfixturevalue("spark") if asks_for_spark(name) else None
    names = ("TUBEQ_CONFIG", "TUBEQ_ENGINE", "TUBEQ_LOCATION", "TUBEQ_REMOTE", "TUBEQ_SESSION")
    for variable in names:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    reader = Reader(spark, capsys, monkeypatch)
    yield reader
    reader.leave()


@pytest.mark.parametrize(
    ("name", "times"),
    [("README.md", 1), *thorough(*((name, 2 if name in AGAIN else 1) for name in RUN))],
)
def test_page_when_followed_from_top_to_bottom_again_and_again_prints_what_it_says(
    name: str, times: int, reader: Reader
) -> None:
    for _ in range(times):
        for example in examples(name):
            if example.reason is None:
                reader.follow(name, example)
