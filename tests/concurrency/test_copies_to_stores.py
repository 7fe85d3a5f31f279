"""A queue loses nothing when it is copied from local files to an emulated S3 and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.concurrency.s3_store import served
from tests.native.test_copies import KEY, TYPES, fill, opened, state_of
from tubeq_spark import Queue, QueueNotFoundError, StoreError

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.processes, pytest.mark.slow]

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.thorough
def test_copy_when_it_goes_to_a_store_and_back_has_all_that_the_queue_had(tmp_path: Path) -> None:
    with served() as store:
        with Queue(None, tmp_path / "first", engine="native") as queue:
            fill(queue)
        with opened(tmp_path / "first") as first:
            first["utubettl"].pause()
            expected, place, options = state_of(first), "s3://bucket/q", store.options
            # The store ends in the middle of the first try, whose files stay there.
            with (
                store.losing(r"^PUT .*/limfifottl/_delta_log/", kind="403", times=None, kept=False),
                pytest.raises(StoreError),
            ):
                first.copy_to(place, storage_options=options)
            with pytest.raises(QueueNotFoundError):
                Queue(None, place, engine="native", storage_options=options, create=False)
            first.copy_to("s3://bucket/r", storage_options=store.options)
        with store.open("s3://bucket/r") as far:
            assert state_of(far) == expected
            assert far["fifo"].put_arrow(KEY, key="once").count == 0
            task = far["fifo"].put("there")
            assert task is not None
            assert far["fifo"].take(0) is not None
            far["fifo"].release_all()
            assert not [tube.error for tube in far.sweep().tubes.values() if tube.error]
            expected = state_of(far)
        with store.open("s3://bucket/r") as far:
            far.copy_to(tmp_path / "back")

        with opened(tmp_path / "back") as back:
            assert state_of(back) == expected
            assert back.check().sound
            assert [back[kind].put_arrow(KEY, key="once").count for kind in TYPES] == [0] * 5
            assert back["fifo"].peek(task.task_id).data == "there"
