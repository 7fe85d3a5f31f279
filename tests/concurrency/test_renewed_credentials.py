"""An open queue goes on with new credentials of a program when the old ones expire."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests import waiting
from tests.concurrency.support import end_heartbeat
from tubeq_spark import Queue, StoreError
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.concurrency.s3_store import Store
    from tubeq_spark import Tube

pytestmark = [pytest.mark.processes]


class Program:
    """Gives the key of the day, which expires at once."""

    key = "first"

    def __call__(self) -> dict[str, Any]:
        return {
            "access_key_id": self.key,
            "secret_access_key": "secret",
            "token": None,
            "expires_at": dt.datetime.now(dt.UTC),
        }


def is_put(tube: Tube, data: str) -> bool:
    with suppress(StoreError):
        return tube.put(data) is not None
    return False


def test_verbs_when_credentials_expire_go_on_with_new_ones(store: Store, tmp_path: Path) -> None:
    program, place = Program(), f"s3://bucket/{tmp_path.name}"
    options = store.options | {"credential_provider": program}
    made = Queue(None, place, engine="native", storage_options=options, clock=ManualClock())
    with store.accepting() as accept, made as queue:
        end_heartbeat(queue)
        tube = queue.create_tube("work", "fifo")
        tube.put("a")
        accept("second")
        with pytest.raises(StoreError, match="ExpiredToken"):
            tube.put("never")
        program.key = "second"
        # The client asks for credentials ten times a second at most.
        waiting.until(lambda: is_put(tube, "b"))
        assert [task.data for task in tube.take_many(3)] == ["a", "b"]
