"""The reference has each public name, tables of the pages match the code, and links lead to files."""

from __future__ import annotations

import configparser
import datetime as dt
import doctest
import inspect
import re
import shlex
import shutil
import subprocess
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

import tubeq_spark
from tests.pages import DOCS, PAGES, ROOT, examples
from tests.payload_table import COLUMNS, KEPT, VALUES
from tubeq_spark import PutItem, Queue, Tube
from tubeq_spark.cli.app import app
from tubeq_spark.model.options import OPTIONS, PUT_OPTIONS, TubeOptions
from tubeq_spark.observe.prometheus import QueueCollector
from tubeq_spark.testing import InMemoryQueue

KINDS = {
    "console",
    "ini",
    "mermaid",
    "properties",
    "pycon",
    "python",
    "sh",
    "sql",
    "text",
    "toml",
    "yaml",
}
#: Not built by mkdocs, which looks after the links of its own pages.
TOP = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")


def test_reference_when_compared_has_every_public_name() -> None:
    pages = "\n".join(path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: tubeq_spark\.(\w+)$", pages, re.MULTILINE))

    assert shown >= set(tubeq_spark.__all__)


def test_table_of_options_when_compared_is_that_of_the_code() -> None:
    page = (DOCS / "concepts" / "tubes.md").read_text("utf-8").partition("## Options of a tube")[2]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([\w ]+) \| .* \|$", page, re.MULTILINE)
    types = [(name, of) for names, of in rows for name in re.findall(r"`(\w+)`", names)]

    assert sorted(types) == sorted((name, option.of) for name, option in OPTIONS.items())


def test_signatures_and_docstrings_when_compared_have_the_options_of_the_table() -> None:
    create, alter = Queue.create_tube, inspect.getdoc(Tube.alter) or ""
    own = {"self", "name", "type", "if_not_exists", "on_task_change"}
    given = {n: p.default for n, p in inspect.signature(create).parameters.items() if n not in own}
    (alterable,) = re.findall(r"has, of `([\w\s]+)`", alter)

    assert given.keys() == described(create) - own == OPTIONS.keys()
    defaults = TubeOptions()
    assert all(value in (None, getattr(defaults, name)) for name, value in given.items())
    assert set(alterable.split()) == {name for name in OPTIONS if OPTIONS[name].alterable}
    put = inspect.signature(Tube.put).parameters.keys() - {"self", "data", "timeout"}
    assert put == described(Tube.put) - {"data", "timeout"} == PUT_OPTIONS.keys()
    item = {field.name for field in fields(PutItem)} - {"data"}
    assert item == described(PutItem, "Attributes") - {"data"} == PUT_OPTIONS.keys()


def described(of: object, section: str = "Args") -> set[str]:
    """The names in a section of a docstring."""
    text = (inspect.getdoc(of) or "").partition(f"\n{section}:\n")[2].partition("\n\n")[0]
    return set(re.findall(r"^    (\w+): ", text, re.MULTILINE))


def test_table_of_typed_payloads_when_compared_is_that_of_the_tests() -> None:
    page = (DOCS / "concepts" / "tubes.md").read_text("utf-8")
    (table,) = re.findall(r"^\| value \|.*(?:\n\|.*)+", page, re.MULTILINE)
    header, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    given = dict(zip([row[0] for row in rows], [row[1:] for row in rows], strict=True))
    columns = [column for name in header[1:] for column in [_columns(name)]]

    assert given.keys() == _VALUES.keys()
    for name, cells in given.items():
        for cell, of in zip(cells, columns, strict=True):
            stored = {value in KEPT[column] for value in _VALUES[name] for column in of}
            # What is stored always, sometimes with a condition, or never.
            assert (stored == {True}, stored == {False}) == (cell == "yes", cell == "no"), (
                name,
                of,
            )


def _columns(header: str) -> list[str]:
    """The columns of the tests that a heading is about."""
    kinds = [kind.partition("(")[0].partition("<")[0] for kind in COLUMNS.values()]
    first, *last = [kinds.index(kind) for kind in re.findall(r"`(\w+)`", header)]
    names = [*COLUMNS]
    return names[first : (last or [first])[0] + 1]


def _are(*kinds: type) -> list[str]:
    return [name for name, value in VALUES.items() if type(value.python) in kinds]


_VALUES = {
    "True, False": _are(bool),
    "int": _are(int),
    "float": _are(float),
    "Decimal": _are(Decimal),
    "str": [name for name in _are(str) if name != "half"],
    "bytes, bytearray": _are(bytes, bytearray),
    "date": _are(dt.date),
    "datetime with a time zone": ["aware", "elsewhere"],
    "datetime without": ["naive"],
    "list, tuple": _are(list, tuple),
    "dict": _are(dict),
    "Row": ["Row", "{at: Row}"],
}


def test_diagram_when_compared_has_the_changes_of_the_table() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    table = (DOCS / "concepts" / "tasks.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w+) \| (.*?) ?\| (.*?) \| .*? \|$", table, re.MULTILINE)[1:]
    lines = [
        f"    {before or '[*]'} --> {after.replace('removed', '[*]')}: {event}"
        for event, starts, ends in rows
        for before in starts.split(", ")
        for after in ends.split(", ")
    ]

    drawn = re.findall(r"```mermaid\n(.*?)\n```", page, flags=re.DOTALL)

    assert drawn == ["\n".join(["stateDiagram-v2", *lines])]


def test_services_when_read_are_well_formed_and_start_what_there_is() -> None:
    written = {example.title for name in PAGES for example in examples(name)}
    blocks = [example for name in PAGES for example in examples(name)]
    for example in blocks:
        if example.kind == "ini":
            configparser.ConfigParser(strict=True).read_string(example.text)
    called = [
        *(argv for e in blocks if e.kind == "yaml" for argv in _containers(yaml.safe_load(e.text))),
        *(
            shlex.split(command)
            for e in blocks
            for command in re.findall(r"[\w/]*\.venv/bin/[^>&)\n]*", e.text)
        ),
    ]

    assert len(called) == 8
    for program, *arguments in called:
        if Path(program).name == "python":
            assert Path(arguments[0]).name in written
        else:
            assert Path(program).name == "tubeq"
            _parse(arguments)


def _containers(manifest: Any) -> list[list[str]]:
    """What the containers of a Kubernetes object run."""
    if isinstance(manifest, list):
        return [command for item in manifest for command in _containers(item)]
    if not isinstance(manifest, dict):
        return []
    own = [manifest["command"]] if "command" in manifest else []
    return own + [command for item in manifest.values() for command in _containers(item)]


def _parse(arguments: list[str]) -> None:
    """Read arguments as `tubeq` does; what it does not know is an error."""
    group: Any = get_command(app)
    with group.make_context("tubeq", arguments) as called:
        name, command, rest = group.resolve_command(called, [*called._protected_args, *called.args])
        command.make_context(name, rest, parent=called)


def test_metrics_of_the_page_when_compared_are_those_that_are_exported() -> None:
    page = (DOCS / "how-to" / "monitoring.md").read_text("utf-8")
    told = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in QueueCollector(InMemoryQueue()).describe()
    }

    assert {*re.findall(r"\btubeq_(?!spark)\w+", page)} == told


def test_navigation_when_read_has_each_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]

    linked = re.findall(r"- ([\w./-]+\.md)$", navigation, re.MULTILINE)
    assert sorted(linked) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_index_when_its_links_are_followed_leads_to_each_page_in_two_steps() -> None:
    index = DOCS / "index.md"
    near = _linked_from(index) | {index}

    far = {page for each in near for page in _linked_from(each)}

    assert {page.relative_to(DOCS) for page in {*DOCS.rglob("*.md")} - near - far} == set()


def _linked_from(page: Path) -> set[Path]:
    links = re.findall(r"\]\(([^)#:]+\.md)", page.read_text("utf-8"))
    return {(page.parent / link).resolve() for link in links}


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
