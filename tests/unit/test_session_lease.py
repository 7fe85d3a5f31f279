"""The length of a session's lease, and the heartbeat that is to keep it."""

from __future__ import annotations

import pytest

from tubeq_spark import StoreError
from tubeq_spark.testing import InMemoryQueue


def fails(*_: object) -> None:
    msg = "the storage fails"
    raise StoreError(msg)


def test_cfg_when_a_shorter_lease_may_be_written_and_fails_makes_the_heart_beat_sooner() -> None:
    rhythms: list[float] = []
    with InMemoryQueue() as queue:
        tube = queue.create_tube("work")
        tube.put("a")
        tube.take(0)
        session = queue._context.session
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session.heart, "change_rhythm", lambda: rhythms.append(session.ttr))
            patch.setattr(session._sessions, "beat", fails)
            with pytest.raises(StoreError, match="the storage fails"):
                queue.cfg(ttr=5)

    assert rhythms == [5]
