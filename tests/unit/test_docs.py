"""What `make docs` cannot see: the reference is complete, tables are the code's, links lead somewhere."""

from __future__ import annotations

import doctest
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import tubeq_spark
from tests.pages import DOCS, PAGES, ROOT, examples
from tubeq_spark import TaskState
from tubeq_spark.rules import lifecycle

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {"console", "mermaid", "properties", "pycon", "python", "sh", "sql", "text"}
#: Not built by mkdocs, which looks after the links of its own pages.
TOP = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")


def test_reference_when_compared_has_every_public_name() -> None:
    pages = "\n".join(path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: tubeq_spark\.(\w+)$", pages, re.MULTILINE))

    assert shown >= set(tubeq_spark.__all__) - {"__version__"}


def test_table_of_changes_when_compared_is_that_of_the_transitions() -> None:
    page = (DOCS / "concepts" / "tasks.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w+) \| (.*?) ?\| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    by_time = {timer.event for timer in lifecycle.TIMERS.values()} | {"ttl"}

    def names(states: tuple[TaskState, ...]) -> str:
        return ", ".join("removed" if s is TaskState.DONE else s.name.lower() for s in states)

    def by(move: lifecycle.Transition) -> str:
        return "time" if move.event in by_time else "who holds it" if move.by_holder else "anybody"

    assert rows[0] == ("change", "from", "to", "by")
    assert rows[1:] == [
        (move.event, names(move.before), names(move.after), by(move))
        for move in lifecycle.TRANSITIONS.values()
    ]


def test_diagram_when_compared_is_that_of_the_transitions() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")

    assert re.findall(r"```mermaid\n(.*?)\n```", page, flags=re.DOTALL) == [lifecycle.diagram()]


@pytest.mark.parametrize("name", TOP)
def test_links_when_followed_lead_to_files(name: str) -> None:
    page = (ROOT / name).read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", page) if ":" not in link]

    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_examples_when_read_are_of_known_kinds_and_compile(name: str, tmp_path: Path) -> None:
    for example in examples(name):
        assert example.kind in KINDS
        if example.kind == "python":
            compile(example.text, f"{name}:{example.line}", "exec")
        elif example.kind == "pycon":
            assert example.reason is not None
            assert doctest.DocTestParser().get_examples(example.text)
        elif example.kind == "sh" and (bash := shutil.which("bash")):
            script = tmp_path / "example"
            script.write_text(example.text, encoding="utf-8")
            subprocess.run([bash, "-n", script], check=True)
