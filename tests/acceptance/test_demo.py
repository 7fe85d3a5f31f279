"""The demonstration of `make demo` ends with commands that work; it runs here on few pages."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import demo
from typer.testing import CliRunner

from tubeq_spark.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def shown(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the demonstration says."""
    capsys.readouterr()
    assert demo.main(arguments) == 0
    return capsys.readouterr().out


def test_demo_when_it_ends_says_where_the_queue_is_and_what_to_type_next(
    location: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUBEQ_ENGINE", raising=False)

    told = shown(["--pages", "30", "--location", location], capsys)

    assert f"The queue is in {location}, its tube is crawl." in told
    commands = [shlex.split(line) for line in re.findall(r"^  (\S.*)$", told, re.MULTILINE)]
    assert [Path(program).name for program, *_ in commands] == ["tubeq", "tubeq", "python"]
    stats, top, again = (arguments for _, *arguments in commands)
    found = CliRunner().invoke(app, stats)
    assert found.exit_code == 0
    assert "utubettl" in found.stdout
    assert top[-1] == "top"
    assert "60 pages" in shown(again[1:], capsys)


def test_demo_when_nothing_is_kept_names_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert "The queue is in" not in shown(["--pages", "1"], capsys)


def test_demo_when_a_package_is_missing_says_what_brings_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_PACKAGES", ("pyarrow", "no_such_package"))

    assert demo.main([]) == 2
    assert "[demo]" in capsys.readouterr().err
