"""The text of a commit has a fault if it was cut or has no end, and none as it was written."""

from __future__ import annotations

import pytest

from tubeq_spark.storage.log.actions import encoded, fault_of

OURS = encoded([{"commitInfo": {"a": 1}}, {"remove": {"path": "x\u2028y"}}, {"add": {"path": "z"}}])
SPARKS = b'{"commitInfo":{"operation":"MERGE"}}\n{"add":{}}\n'
LIBRARYS = b'{"commitInfo":{"clientVersion":"delta-rs.1.2"}}\n{"add":{}}'
OLD_LIBRARYS = b'{"add":{}}\n{"commitInfo":{"clientVersion":"delta-rs.py-1.0.2"}}'


@pytest.mark.parametrize(
    "text", [OURS, SPARKS, LIBRARYS, OLD_LIBRARYS, encoded([{"commitInfo": {}}])]
)
def test_commit_as_it_was_written_has_no_fault(text: bytes) -> None:
    assert fault_of(text) == ""


def test_commit_of_ours_cut_anywhere_has_a_fault() -> None:
    assert [size for size in range(len(OURS)) if not fault_of(OURS[:size])] == []


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"{}\n", b"\0" * 9, SPARKS[:-1], SPARKS[:40], OLD_LIBRARYS[:10]]
)
def test_commit_of_others_that_says_nothing_or_has_no_end_has_a_fault(text: bytes) -> None:
    assert fault_of(text) != ""
