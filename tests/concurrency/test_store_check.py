"""`Queue.check` finds bad logs and missing data files of a queue on an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tubeq_spark import QueueNotFoundError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.concurrency.s3_store import Store
    from tubeq_spark import Queue

pytestmark = [pytest.mark.processes]


@pytest.fixture
def queue(store: Store, tmp_path: Path) -> Iterator[Queue]:
    """A queue with a tube of five commits."""
    short = {"timeout": "300ms", "connect_timeout": "300ms", "retry_timeout": "500ms"}
    with store.open(f"s3://bucket/{tmp_path.name}", options=short) as queue:
        tube = queue.create_tube("work", "fifottl")
        for letter in "abc":
            tube.put(letter)
        tube.take(0)
        yield queue


def keys(store: Store, queue: Queue, end: str) -> list[str]:
    """What is stored of the tube with such an end, in the order of the names."""
    prefix = queue.location.removeprefix("s3://bucket/") + "/work/"
    return sorted(key for key in store.keys(prefix) if key.endswith(end))


def test_check_when_data_files_are_gone_or_cut_names_them_and_their_tasks(
    store: Store, queue: Queue
) -> None:
    assert queue.check().sound
    with pytest.raises(StoreError, match="only tables on local files are repaired"):
        queue.check(repair=True)
    before = keys(store, queue, ".parquet")
    waiting = queue["work"].put("d")
    [missing] = {*keys(store, queue, ".parquet")} - {*before}
    queue["work"].put("e")
    [cut] = {*keys(store, queue, ".parquet")} - {*before, missing}
    with store.client() as client:
        client.delete_object(Bucket="bucket", Key=missing)
        client.put_object(Bucket="bucket", Key=cut, Body=b"")

    found = {problem.path: problem for problem in queue.check().problems}

    assert {*found} == {f"s3://bucket/{key}" for key in (missing, cut)}
    assert {problem.kind for problem in found.values()} == {"file"}
    gone = found[f"s3://bucket/{missing}"]
    assert "is missing" in gone.message
    assert gone.tasks == (waiting.task_id,)
    assert gone.loses
    assert "is empty" in found[f"s3://bucket/{cut}"].message


def test_check_when_a_commit_is_gone_or_empty_says_what_cannot_be_read(
    store: Store, queue: Queue
) -> None:
    commits = keys(store, queue, ".json")
    with store.client() as client:
        client.put_object(Bucket="bucket", Key=commits[2], Body=b"")
        client.delete_object(Bucket="bucket", Key=commits[3])

    problems = queue.check().problems

    assert [(problem.kind, problem.path) for problem in problems] == [
        ("commit", f"s3://bucket/{commits[2]}"),
        ("hole", f"s3://bucket/{commits[3]}"),
    ]
    assert "nothing after version 1 can be read" in problems[0].message


def test_check_when_the_store_does_not_answer_or_the_queue_is_gone_raises_an_error(
    store: Store, queue: Queue
) -> None:
    with (
        store.losing("", kind="503", times=None, kept=False),
        pytest.raises(StoreError, match="503") as caught,
    ):
        queue.check()
    assert caught.value.passes

    prefix = queue.location.removeprefix("s3://bucket/")
    with store.client() as client:
        for key in store.keys(f"{prefix}/_tubeq_tubes/"):
            client.delete_object(Bucket="bucket", Key=key)
    with pytest.raises(QueueNotFoundError):
        queue.check()
