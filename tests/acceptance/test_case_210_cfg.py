"""Case 210: ``in_replicaset``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tubeq_spark import InvalidOptionError

if TYPE_CHECKING:
    from tests.acceptance.support import Session
    from tubeq_spark import Queue


def test_cfg_switches_in_replicaset_back_and_forth(queue: Queue) -> None:
    """Case 210-1."""
    for value in (True, False, True, False):
        assert queue.cfg(in_replicaset=value)["in_replicaset"] is value


def test_create_tube_temporary_when_in_replicaset_is_refused(session: Session) -> None:
    """Case 210-2."""
    queue = session()
    queue.cfg(in_replicaset=True)

    with pytest.raises(InvalidOptionError):
        queue.create_tube("passing", "fifo", temporary=True)
    assert "passing" not in queue
