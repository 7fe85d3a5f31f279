"""The text of every query and statement of storage/tables, as Spark is given it, against a golden file.

Run with TUBEQ_WRITE_GOLDEN=1 after a change of a text that is meant: the file is written anew, and the
test fails once, so that somebody reads the difference.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
from collections import Counter
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from tests.unit.golden.recording import entry_of
from tests.unit.golden.system_texts import system_cases
from tests.unit.golden.tube_texts import CHANGES, WHICH, tube_cases
from tubeq_spark.model.changes import Change, Which
from tubeq_spark.storage.tables.gates import Gates
from tubeq_spark.storage.tables.id_slots import Slots
from tubeq_spark.storage.tables.put_gate import PutGate
from tubeq_spark.storage.tables.registry import Registry
from tubeq_spark.storage.tables.sessions import Sessions
from tubeq_spark.storage.tables.take_writer import TakeWriter
from tubeq_spark.storage.tables.tube_reader import TubeReader
from tubeq_spark.storage.tables.tube_writer import TubeWriter
from tubeq_spark.storage.tables.vacuum_notes import VacuumNotes

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).parent / "golden" / "spark_texts.txt"
WRITE = "TUBEQ_WRITE_GOLDEN"
#: So many entries that differ are shown, and so much around the first difference of a line.
SHOWN, AROUND = 10, 80
MAKERS = (
    PutGate,
    Registry,
    Sessions,
    Slots,
    TubeWriter,
    TakeWriter,
    TubeReader,
    Gates,
    VacuumNotes,
)
#: Public methods that make no SQL.
WITHOUT_SQL = {
    "Gates.segment_of",
    # By `find`.
    "Registry.current",
    "Registry.version",
    "Sessions.extent",
    "Sessions.files",
    "Sessions.last_commit",
    "Sessions.version",
    # By the log alone.
    "TubeReader.segments_by_log",
}


def entries() -> list[str]:
    return [entry_of(case) for case in (*tube_cases(), *system_cases())]


def by_header(text: str) -> dict[str, list[str]]:
    """The lines of each entry."""
    found = {}
    for entry in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        header, *lines = entry.rstrip("\n").split("\n")
        found[header] = lines
    return found


def differences(expected: str, found: str) -> Iterator[str]:
    """Each entry that differs: its header, and a short difference."""
    before, after = by_header(expected), by_header(found)
    for header in dict.fromkeys([*before, *after]):
        old, new = before.get(header), after.get(header)
        if old == new:
            continue
        if old is None or new is None:
            yield f"## {header}\n  {'is new' if old is None else 'is missing'}"
        else:
            yield "\n".join([f"## {header}", *short_difference(old, new)])


def short_difference(old: list[str], new: list[str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, end, new_first, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        gone, come = old[first:end], new[new_first:new_end]
        start = 0
        if len(gone) == len(come) == 1:
            start = max(0, first_difference(gone[0], come[0]) - AROUND)
        for sign, lines in (("-", gone), ("+", come)):
            for line in lines:
                yield f"  {sign} {'…' if start else ''}{line[start : start + 3 * AROUND]}"


def first_difference(one: str, other: str) -> int:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in same)


def test_texts_when_all_are_made_are_those_of_the_golden_file() -> None:
    found = "\n".join(entries())
    if os.environ.get(WRITE):
        GOLDEN.write_text(found, encoding="utf-8")
        pytest.fail(f"{GOLDEN.name} was written anew; read the difference, and run without {WRITE}")

    expected = GOLDEN.read_text(encoding="utf-8")

    different = list(differences(expected, found))
    if different:
        shown = "\n".join(different[:SHOWN])
        msg = f"{len(different)} entries differ from {GOLDEN.name}; {WRITE}=1 writes it anew"
        pytest.fail(f"{msg}\n{shown}", pytrace=False)
    assert found == expected  # the order of the entries, too


def test_entries_when_all_are_made_have_each_a_header_of_its_own_and_a_text_on_each_line() -> None:
    headers = Counter(entry.split("\n", 1)[0] for entry in entries())
    kinds = {
        line.split(":")[0] for lines in by_header("\n".join(entries())).values() for line in lines
    }

    assert [header for header, count in headers.items() if count > 1] == []
    assert kinds - {""} == {
        "append",
        "ended",
        "expected",
        "nothing to commit",
        "once",
        "operation",
        "partitions",
        "query",
        "size",
        "source",
        "statement",
        "stored",
        "tasks",
    }


def test_entries_when_a_class_makes_sql_name_each_of_its_public_methods() -> None:
    methods = {
        f"{maker.__name__}.{name}"
        for maker in MAKERS
        for name, _ in inspect.getmembers(maker, inspect.isfunction)
        if not name.startswith("_")
    }
    headers = by_header(GOLDEN.read_text(encoding="utf-8"))

    named = {header.split(":")[0] for header in headers}

    assert methods - named == WITHOUT_SQL


def test_cases_when_rules_know_a_condition_or_a_change_have_it() -> None:
    assert {type(which) for which in WHICH.values()} == set(get_args(Which))
    assert {type(change) for change in CHANGES.values()} == set(get_args(Change))


def test_differences_when_a_text_changes_show_its_header_and_the_place() -> None:
    expected = "## a: one\nquery: SELECT 1\n\n## a: two\nquery: SELECT 2\n"
    found = "## a: one\nquery: SELECT 1\n\n## a: two\nquery: SELECT 3\n"

    assert list(differences(expected, found)) == [
        "## a: two\n  - query: SELECT 2\n  + query: SELECT 3"
    ]


def test_comments_of_columns_when_rendered_are_literals() -> None:
    # Spark's grammar takes no expression there, and `string` makes one of a text with an apostrophe.
    assert "COMMENT CAST" not in GOLDEN.read_text(encoding="utf-8")
