"""Leaves the slowest tests on Spark out of `make test`, because other tests prove the same.

Each of them runs on the native engine in `make test`, or another one of the same file runs on Spark: only the
statements differ between the engines, and each kind of statement is in a test that stays.

Each line of `left_on_spark.txt` has a mark and a test. `make test-rest` runs the tests with the mark `thorough`,
`make test-nightly` those with `nightly`. A name without brackets stands for all cases of a test.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.one_jvm import needs_the_jvm

if TYPE_CHECKING:
    import pytest

__all__ = ["LEFT", "pytest_itemcollected"]

#: The mark of each test, by module and name.
LEFT = {
    test: mark
    for mark, _, test in (
        line.partition(" ")
        for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    )
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark those that need Spark."""
    for name in {item.name, item.name.partition("[")[0]}:
        mark = LEFT.get(f"{item.path.stem}::{name}")
        if mark is not None and needs_the_jvm(item):
            item.add_marker(mark)
