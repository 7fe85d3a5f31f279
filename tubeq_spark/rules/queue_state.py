"""The states of a queue object, from its opening until it is closed."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["QueueState"]


class QueueState(StrEnum):
    """Where a `Queue` is in its life; verbs work in RUNNING only."""

    INIT = "INIT"
    STARTUP = "STARTUP"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    WAITING = "WAITING"
