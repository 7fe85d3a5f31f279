"""An object store that does what it is asked, and loses the answer: verbs do not notice.

Where nothing answers at all they say that they do not know, and what nobody has is given back later.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.concurrency.lost_answers import CASES, OPTIONS, Bench, letters, tried
from tests.concurrency.s3_store import COMMIT, Store
from tests.concurrency.support import FOR_EVER, end_heartbeat
from tests.thorough import thorough
from tests.waiting import beat
from tubeq_spark import CommitUnknownError, StoreError
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.log.next_version import NextVersion
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tubeq_spark import Tube

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.processes, pytest.mark.slow]

CASE = {case.name: case for case in CASES}
#: For each kind of statement and of verb one.
FEW = (
    "put",
    "put_arrow_with_a_key",
    "take",
    "ack",
    "exchange",
    "take_of_subqueues",
    "create_tube_anew",
)


@pytest.fixture(scope="module")
def bench(store: Store) -> Iterator[Bench]:
    with store.open("s3://bucket/queue", options=OPTIONS) as queue:
        yield Bench(store, queue)


@pytest.fixture
def empty(bench: Bench) -> Bench:
    """The bench with an empty tube."""
    bench.kind = "fifottl"
    bench.empty()
    bench.store.requests()
    return bench


def commits_to(tube: Tube) -> str:
    """The requests that commit to a tube."""
    return COMMIT.replace(".*", f".*/{tube.name}")


@pytest.mark.parametrize(
    ("name", "kind", "times"),
    [
        *(case for name in FEW for case in ((name, "reset", None), (name, "500", 1))),
        ("take", "hang", 1),
        *thorough(*((name, "500", None) for name in CASE if name not in FEW)),
    ],
)
def test_verb_when_its_commits_land_and_their_answers_are_lost_returns_as_if_it_had_heard(
    bench: Bench, name: str, kind: str, times: int | None
) -> None:
    found = Counter(tried(bench, CASE[name], kind, times))
    assert set(found) == {"lost answers"}


@pytest.mark.parametrize("name", ["ack", *thorough("ack_of_some", "delete", "exchange")])
def test_done_when_the_answer_to_its_commit_is_lost_counts_once(empty: Bench, name: str) -> None:
    case = CASE[name]
    given = case.given(empty)
    count = len(empty.stored().split())
    before = empty.queue.statistics(empty.tube.name)["tasks"]["done"]
    with empty.store.losing(kind="reset", times=None):
        assert case.act(empty, given) == case.result
    after = empty.queue.statistics(empty.tube.name)["tasks"]["done"]
    assert after - before == count - len(case.after.split()) > 0


@pytest.mark.parametrize("name", ["put", "take", *thorough("ack", "put_arrow_with_a_key")])
def test_verb_when_its_commit_is_not_heard_sends_it_again_as_the_same_version(
    empty: Bench, name: str
) -> None:
    case = CASE[name]
    given = case.given(empty)
    empty.store.requests()

    with empty.store.losing(commits_to(empty.tube), times=2, kept=False):
        result = case.act(empty, given)

    assert result == case.result
    assert empty.stored() == case.after
    # Beside those of its session.
    sent = [row for row in empty.store.commits() if re.search(commits_to(empty.tube), row[0])]
    assert {line for line, _ in sent} == {sent[0][0]}
    assert [status for _, status in sent] == [None, None, 200]


def test_put_when_it_is_refused_for_a_version_that_nobody_has_committed_is_sent_again(
    empty: Bench,
) -> None:
    """As S3 answers 409 to one of two requests that it has at the same moment."""
    with empty.store.losing(kind="409", times=2, kept=False):
        assert letters([empty.tube.put("a")]) == "a"
    assert empty.stored() == "ar"


def test_put_when_the_store_forbids_it_says_that_nothing_was_written(empty: Bench) -> None:
    with empty.store.losing(kind="403", times=None, kept=False), pytest.raises(StoreError):
        empty.tube.put("a")
    assert empty.stored() == ""
    assert Counter(line for line, _ in empty.store.commits()).most_common(1)[0][1] == 1


def test_verb_when_requests_fail_for_a_moment_returns_as_if_they_had_not(empty: Bench) -> None:
    empty.put("a")
    with empty.store.losing("", kind="500", times=2, kept=False):
        task = empty.tube.take(0)
    assert letters([task]) == "a"
    assert task is not None
    with empty.store.losing("parquet$", times=2, kept=False):
        empty.tube.release(task.task_id)
    assert empty.stored() == "ar"


@pytest.mark.parametrize("name", ["take", *thorough("take_arrow")])
def test_verb_when_reads_of_data_fail_for_a_moment_reads_them_again(
    empty: Bench, name: str
) -> None:
    case = CASE[name]
    given = case.given(empty)
    with empty.store.open("s3://bucket/queue", options=OPTIONS) as others:
        other = Bench(empty.store, others, tubes={empty.kind: others[empty.tube.name]})
        with empty.store.losing("GET .*parquet$", kind="500", times=3, kept=False):
            assert case.act(other, given) == case.result
        assert empty.stored() == case.after


def test_put_when_the_log_begins_after_its_version_says_that_nobody_knows(
    empty: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The numbers of tasks are leased by then.
    empty.put("x")
    empty.empty()
    look, uri = NextVersion._read, str(path_of(empty.tube._ctx.table.name))

    def later(rival: NextVersion) -> Any:
        monkeypatch.undo()
        empty.store.answer()
        # If an earlier test had rivals, a request beside the commit may have found it.
        rival._ahead = None
        with empty.store.open("s3://bucket/queue", options=OPTIONS) as rivals:
            rivals[empty.tube.name].put("z")
        DeltaTable(uri, storage_options=empty.store.options).create_checkpoint()
        with empty.store.client() as client:
            key = f"{uri}/_delta_log/{rival.version:020}.json".removeprefix("s3://bucket/")
            client.delete_object(Bucket="bucket", Key=key)
        return look(rival)

    monkeypatch.setattr(NextVersion, "_read", later)
    with (
        empty.store.losing(commits_to(empty.tube)),
        pytest.raises(CommitUnknownError) as caught,
    ):
        empty.tube.put("a")
    assert caught.value.operation_id
    assert empty.stored() == "ar zr"


# -- nothing answers ------------------------------------------------------------------------------

DARK = OPTIONS | {"max_retries": "1", "retry_timeout": "2s"}


@pytest.fixture
def dark(store: Store, tmp_path: Path) -> Iterator[Bench]:
    """A bench whose queue's heart beats when the test says so."""
    location = f"s3://bucket/{tmp_path.name}"
    with store.open(location, ManualClock(), DARK) as queue:
        end_heartbeat(queue)
        queue._context.session._stop.clear()
        queue.cfg(ttr=FOR_EVER)
        yield Bench(store, queue)


@pytest.mark.parametrize("name", ["take", "take_of_subqueues", *thorough("exchange")])
def test_take_when_nothing_answers_any_more_is_found_and_given_back_by_the_heart(
    dark: Bench, name: str
) -> None:
    case = CASE[name]
    dark.kind = case.kind
    # The first take of sub-queues writes the gates.
    assert dark.tube.take(0) is None
    given = case.given(dark)

    with (
        dark.store.losing(commits_to(dark.tube), dark=True),
        pytest.raises(CommitUnknownError) as caught,
    ):
        case.act(dark, given)
    assert caught.value.operation_id
    assert "t" in dark.stored()

    beat(dark.queue._context.session)
    assert "t" not in dark.stored()
    wanted = letters(dark.tube.take_many(9))
    assert wanted
    beat(dark.queue._context.session)
    assert dark.stored().count("t") == len(wanted)


def test_heart_when_an_unknown_take_was_never_made_gives_nothing_back(
    dark: Bench,
) -> None:
    dark.put("ab")
    held = dark.tube.take_many(1)

    with (
        dark.store.losing(commits_to(dark.tube), dark=True, kept=False),
        pytest.raises(CommitUnknownError),
    ):
        dark.tube.take(0)
    beat(dark.queue._context.session)

    assert dark.stored() == "at br"
    assert letters(dark.tube.ack_many([task.task_id for task in held])) == "a"


@pytest.mark.parametrize("name", ["put", *thorough("ack", "delete")])
def test_verb_when_nothing_answers_any_more_says_that_nobody_knows_and_is_done_once(
    dark: Bench, name: str
) -> None:
    case = CASE[name]
    given = case.given(dark)

    with (
        dark.store.losing(commits_to(dark.tube), dark=True),
        pytest.raises(CommitUnknownError) as caught,
    ):
        case.act(dark, given)

    assert caught.value.operation_id
    assert dark.stored() == case.after
