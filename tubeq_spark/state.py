"""The state machine of a queue object."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["QUEUE_MOVES", "QueueState"]


class QueueState(StrEnum):
    """Where a `Queue` is in its life; verbs work in RUNNING only."""

    INIT = "INIT"
    STARTUP = "STARTUP"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    WAITING = "WAITING"


QUEUE_MOVES: Final[dict[QueueState, tuple[QueueState, ...]]] = {
    QueueState.INIT: (QueueState.STARTUP,),
    QueueState.STARTUP: (QueueState.RUNNING,),
    QueueState.RUNNING: (QueueState.ENDING,),
    QueueState.ENDING: (QueueState.WAITING,),
    QueueState.WAITING: (),
}
