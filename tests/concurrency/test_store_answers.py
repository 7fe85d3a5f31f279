"""Verbs return as usual when a real S3 store does what a request asks, and loses the answer.

Where nothing answers at all they say that they do not know, and what nobody has is given back later. The simulation loses
the answers to the requests of all verbs; here is one verb for each kind of commit.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.concurrency.s3_store import COMMIT, Store
from tests.concurrency.support import FOR_EVER, end_heartbeat
from tests.queries import select
from tests.thorough import thorough
from tests.waiting import beat
from tubeq_spark import CommitUnknownError, StoreError
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.log.next_version import NextVersion
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tubeq_spark import Queue, Task, Tube

pytestmark = [pytest.mark.processes, pytest.mark.slow]

#: No test waits for long.
OPTIONS = {"timeout": "1s", "connect_timeout": "1s", "max_retries": "3"}
DARK = OPTIONS | {"max_retries": "1", "retry_timeout": "2s"}
_numbers = itertools.count()


@dataclass
class Bench:
    """A queue on S3, and its tube with or without sub-queues that verbs are tried on."""

    store: Store
    queue: Queue
    kind: str = "fifottl"
    tubes: dict[str, Tube] = field(default_factory=dict)

    @property
    def tube(self) -> Tube:
        """The tube."""
        if self.kind not in self.tubes:
            name = f"{self.kind}_{next(_numbers)}"
            self.tubes[self.kind] = self.queue.create_tube(name, self.kind)
        return self.tubes[self.kind]

    def put(self, letters: str, utubes: str = "") -> None:
        """Put tasks, each with a letter, and with one for its sub-queue."""
        for letter, utube in itertools.zip_longest(letters, utubes):
            self.tube.put(letter, **({"utube": utube} if utube else {}))

    def taken(self, letters: str) -> list[int]:
        """Put tasks, and take them all."""
        self.put(letters)
        return [task.task_id for task in self.tube.take_many(len(letters))]

    def stored(self) -> str:
        """All tasks as stored, as in `"ar bt"`: data and state, in the order of put."""
        table = self.tube._ctx.table
        rows = self.queue._context.engine.rows(
            select(table.name, "task_id", "data", "state", where=table.mine())
        )
        found = sorted((row["task_id"], json.loads(row["data"]) + row["state"]) for row in rows)
        return " ".join(text for _, text in found)

    def begin(self, case: str) -> Any:
        """Make what a verb works on, in a tube that was empty."""
        self.kind = "utubettl" if "subqueues" in case else "fifottl"
        if self.stored():
            self.tube.release_all()
            self.tube.truncate()
        given = CASES[case][0](self)
        self.store.requests()
        return given


def letters(tasks: Iterable[Task | None]) -> str:
    """The data of tasks; a dot: there is none."""
    return "".join("." if task is None else task.data for task in tasks)


#: What a verb works on, the verb, what it returns, and the tube then.
CASES: dict[str, tuple[Callable[[Bench], Any], Callable[[Bench, Any], Any], object, str]] = {
    "put": (lambda _: None, lambda b, _: letters([b.tube.put("a")]), "a", "ar"),
    "take": (lambda b: b.put("ab"), lambda b, _: letters([b.tube.take(0)]), "a", "at br"),
    "ack": (lambda b: b.taken("a"), lambda b, ids: letters(b.tube.ack_many(ids)), "a", ""),
    "exchange": (
        lambda b: (b.taken("a"), b.put("bc"))[0],
        lambda b, ids: letters(b.tube.exchange(ack=ids, take=1)),
        "b",
        "bt cr",
    ),
    "takes of subqueues": (
        lambda b: b.put("abc", "uuv"),
        lambda b, _: letters(b.tube.take(0) for _ in range(3)),
        "ac.",
        "at br ct",
    ),
}


@pytest.fixture(scope="module")
def bench(store: Store) -> Iterator[Bench]:
    with store.open("s3://bucket/queue", options=OPTIONS) as queue:
        yield Bench(store, queue)


@pytest.fixture
def empty(bench: Bench) -> Bench:
    """The bench with an empty tube."""
    bench.begin("put")
    return bench


def commits_to(tube: Tube) -> str:
    """The requests that commit to a tube."""
    return COMMIT.replace(".*", f".*/{tube.name}")


@pytest.mark.parametrize(
    ("case", "kind", "times"),
    [
        *((case, "reset", None) for case in CASES),
        ("put", "500", 1),
        ("take", "hang", 1),
    ],
)
def test_verb_when_its_commits_land_and_their_answers_are_lost_returns_as_if_it_had_heard(
    bench: Bench, case: str, kind: str, times: int | None
) -> None:
    given = bench.begin(case)
    _, act, result, after = CASES[case]

    with bench.store.losing(kind=kind, times=times):
        assert act(bench, given) == result

    sent = Counter(line for line, _ in bench.store.commits())
    assert {*sent.values()} == {1}
    assert bench.stored() == after


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


def test_put_when_the_log_begins_after_its_version_says_that_nobody_knows(
    empty: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The numbers of tasks are leased by then.
    empty.put("x")
    empty.begin("put")
    look, uri = NextVersion._info, str(path_of(empty.tube._ctx.table.name))

    def later(rival: NextVersion, *given: Any, **more: Any) -> Any:
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
        return look(rival, *given, **more)

    monkeypatch.setattr(NextVersion, "_info", later)
    with (
        empty.store.losing(commits_to(empty.tube)),
        pytest.raises(CommitUnknownError) as caught,
    ):
        empty.tube.put("a")
    assert caught.value.operation_id
    assert empty.stored() == "ar zr"


# -- nothing answers ------------------------------------------------------------------------------


@pytest.fixture
def dark(store: Store, tmp_path: Path) -> Iterator[Bench]:
    """A bench whose queue's heart beats when the test says so."""
    location = f"s3://bucket/{tmp_path.name}"
    with store.open(location, ManualClock(), DARK) as queue:
        end_heartbeat(queue)
        queue._context.session._stop.clear()
        queue.cfg(ttr=FOR_EVER)
        yield Bench(store, queue)


@pytest.mark.parametrize("case", ["take", "takes of subqueues", *thorough("exchange")])
def test_take_when_nothing_answers_any_more_is_found_and_given_back_by_the_heart(
    dark: Bench, case: str
) -> None:
    dark.begin(case)
    # The first take of sub-queues writes the gates.
    dark.tube.take_many(9)
    given = dark.begin(case)

    with (
        dark.store.losing(commits_to(dark.tube), dark=True),
        pytest.raises(CommitUnknownError) as caught,
    ):
        CASES[case][1](dark, given)
    assert caught.value.operation_id
    assert "t" in dark.stored()

    beat(dark.queue._context.session)
    assert "t" not in dark.stored()
    wanted = letters(dark.tube.take_many(9))
    assert wanted
    beat(dark.queue._context.session)
    assert dark.stored().count("t") == len(wanted)
