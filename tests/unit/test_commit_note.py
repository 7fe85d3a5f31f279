"""When a table was last written to, by the newest commits of its history."""

from __future__ import annotations

import pytest

from tubeq_spark.storage.outcome import newest_write


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([("WRITE", 5), ("MERGE", 4)], 5),
        # A vacuum by Spark, and one without it.
        ([("VACUUM END", 9), ("VACUUM START", 8), ("SET TBLPROPERTIES", 7), ("DELETE", 3)], 3),
        ([("METADATA CLEANUP", 9), ("SET TABLE PROPERTIES", 8), ("MERGE", 2), ("WRITE", 1)], 2),
        ([("VACUUM END", 9), ("VACUUM START", 6)], 6),
    ],
)
def test_newest_write_when_the_table_was_cleaned_since_is_the_write_before(
    commits: list[tuple[str, int]], expected: int
) -> None:
    assert newest_write(commits) == expected
