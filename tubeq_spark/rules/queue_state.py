"""The states of a queue object, from its opening until it is closed."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["QueueState"]


class QueueState(StrEnum):
    """The state of a `Queue` object; verbs work only in RUNNING."""

    INIT = "INIT"
    STARTUP = "STARTUP"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    WAITING = "WAITING"
