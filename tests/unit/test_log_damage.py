"""What the rules say of a log, by what was read of it; and of the text of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark.storage.log.actions import encoded
from tubeq_spark.storage.log.commit_text import fault_of
from tubeq_spark.storage.log.facts import BEGINNING, Contents, LogFacts, Verdict, judge
from tubeq_spark.storage.log.log_files import LogFiles
from tubeq_spark.storage.store.store import DictStore, Files

if TYPE_CHECKING:
    from collections.abc import Iterable

OURS = encoded([{"commitInfo": {"a": 1}}, {"remove": {"path": "x\u2028y"}}, {"add": {"path": "z"}}])
SPARKS = b'{"commitInfo":{"operation":"MERGE"}}\n{"add":{}}\n'
LIBRARYS = b'{"commitInfo":{"clientVersion":"delta-rs.1.2"}}\n{"add":{}}'
OLD_LIBRARYS = b'{"add":{}}\n{"commitInfo":{"clientVersion":"delta-rs.py-1.0.2"}}'


def judged(versions: Iterable[int], checkpoints: Iterable[int] = (), **facts: Any) -> Verdict:
    states = {version: Contents() for version in checkpoints}
    return judge(
        LogFacts(
            LogFiles(DictStore(Files(lambda: 0.0), "t")),
            versions=[*versions],
            states=states,
            **facts,
        )
    )


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


def test_log_without_damage_is_read_from_its_newest_checkpoint() -> None:
    assert judged(range(10), checkpoints=[3, 7], hint=7) == Verdict(7, 9, 9, [], "")
    assert judged(range(10)) == Verdict(BEGINNING, 9, 9, [], "")


def test_log_with_a_fault_before_a_checkpoint_is_whole() -> None:
    verdict = judged(range(10), checkpoints=[5], faults={2: "is empty"})

    assert verdict.is_whole
    assert not verdict.is_needed(2)
    assert verdict.is_needed(6)


def test_log_with_a_fault_after_all_checkpoints_ends_before_it() -> None:
    verdict = judged(range(10), checkpoints=[5], faults={7: "is empty", 9: "is empty"})

    assert (verdict.readable, verdict.newest, verdict.begins) == (6, 9, 5)


def test_log_with_a_hole_names_it() -> None:
    verdict = judged([3, 4, 6, 7], checkpoints=[3])

    assert (verdict.readable, list(verdict.holes)) == (4, [5])


def test_log_without_a_beginning_has_no_version() -> None:
    verdict = judged([3, 4], bad_checkpoints={f"{3:020}.checkpoint.parquet": "is empty"})

    assert verdict.readable is None
    assert 0 in verdict.holes


@pytest.mark.parametrize(
    ("hint", "said"), [(5, ""), (3, ""), (8, "cannot be read"), (1, "does not lead on")]
)
def test_hint_is_wrong_where_it_leads_to_no_newest_version(hint: int, said: str) -> None:
    fault = judged(range(3, 10), checkpoints=[1, 3, 5], hint=hint).hint_fault

    assert said in fault
    assert bool(said) is bool(fault)
