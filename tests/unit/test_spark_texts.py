"""Each query and statement of `storage/tables` has the text for Spark that is in the golden file.

Run with TUBEQ_WRITE_GOLDEN=1 after a change of a text that is meant: the file is written anew, and the
test fails once, so that somebody reads the difference.
"""

from __future__ import annotations

import inspect
import os
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from tests.row_oracle import CHANGES, SELECTIONS
from tests.unit.golden.recording import entry_of
from tests.unit.golden.system_texts import system_cases
from tests.unit.golden.tube_texts import tube_cases
from tubeq_spark.model.changes import Change, Which
from tubeq_spark.storage.tables.gates import Gates, PutGate
from tubeq_spark.storage.tables.id_slots import Slots
from tubeq_spark.storage.tables.registry import Registry
from tubeq_spark.storage.tables.sessions import Sessions
from tubeq_spark.storage.tables.tube_reader import TubeReader
from tubeq_spark.storage.tables.tube_writer import TubeWriter

GOLDEN = Path(__file__).parent / "golden" / "spark_texts.txt"
WRITE = "TUBEQ_WRITE_GOLDEN"
MAKERS = (PutGate, Registry, Sessions, Slots, TubeWriter, TubeReader, Gates)
#: Public methods that make no SQL.
WITHOUT_SQL = {
    "Gates.segment_of",
    # By `find`.
    "Registry.current",
    "Registry.version",
    "Sessions.extent",
    "Sessions.files",
    "Sessions.last_commit",
    # By the log alone.
    "TubeReader.segments_by_log",
}


@cache
def entries() -> list[str]:
    return [entry_of(case) for case in (*tube_cases(), *system_cases())]


def by_header(text: str) -> dict[str, list[str]]:
    """The lines of each entry."""
    found = {}
    for entry in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        header, *lines = entry.rstrip("\n").split("\n")
        found[header] = lines
    return found


def test_texts_when_all_are_made_are_those_of_the_golden_file() -> None:
    found = "\n".join(entries())
    if os.environ.get(WRITE):
        GOLDEN.write_text(found, encoding="utf-8")
        pytest.fail(f"{GOLDEN.name} was written anew; read the difference, and run without {WRITE}")

    expected = GOLDEN.read_text(encoding="utf-8")

    old, new = by_header(expected), by_header(found)
    different = [header for header in {**old, **new} if old.get(header) != new.get(header)]
    assert different == [], f"{WRITE}=1 writes {GOLDEN.name} anew; read its difference like code"
    assert found == expected  # the order of the entries, too


def test_entries_when_all_are_made_have_each_a_header_of_its_own() -> None:
    headers = Counter(entry.split("\n", 1)[0] for entry in entries())

    assert [header for header, count in headers.items() if count > 1] == []


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
    assert {type(which) for which in SELECTIONS.values()} == set(get_args(Which))
    assert {type(change) for change, _ in CHANGES.values()} == set(get_args(Change))


def test_comments_of_columns_when_rendered_are_literals() -> None:
    # Spark's grammar takes no expression there, and `string` makes one of a text with an apostrophe.
    assert "COMMENT CAST" not in GOLDEN.read_text(encoding="utf-8")
