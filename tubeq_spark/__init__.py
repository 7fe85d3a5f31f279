"""A task queue for Spark: tubes of tasks with priorities, delays, leases, stored in Delta tables.

The names of this package are imported when they are first used. So `tubeq` can switch the garbage
collector off before it imports these modules, because a call of `tubeq` ends before a collection would pay.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tubeq_spark import errors

if TYPE_CHECKING:
    from tubeq_spark.batch import Batch
    from tubeq_spark.clock import Clock, SystemClock
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.errors import (
        CommitUnknownError,
        ConflictError,
        InvalidOptionError,
        NotTakenError,
        QueueNotFoundError,
        QueueStateError,
        SessionError,
        StoreError,
        TaskNotFoundError,
        TubeBusyError,
        TubeExistsError,
        TubeNotFoundError,
        TubeqError,
    )
    from tubeq_spark.model.failures import Backoff, Bury, FailedTasks
    from tubeq_spark.model.reports import (
        BatchReport,
        CheckReport,
        CopyReport,
        Damage,
        QueueMetrics,
        SessionInfo,
        SweepReport,
        TubeMetrics,
        TubeSweep,
        UtubeCounts,
    )
    from tubeq_spark.model.states import QueueState
    from tubeq_spark.model.takes import Rate
    from tubeq_spark.model.tube_types import Driver
    from tubeq_spark.observe.health import Health, Problem
    from tubeq_spark.queue import Queue
    from tubeq_spark.storage.spark.guarded_write import guarded_write
    from tubeq_spark.storage.spark.spark_session import delta_package, local_session
    from tubeq_spark.storage.spark.spark_settings import spark_conf
    from tubeq_spark.task import PutItem, PutResult, Task, TaskState
    from tubeq_spark.tube import Tube
    from tubeq_spark.workers.handlers import WorkReport

__version__ = "0.1.0"

_MODULES = {
    "batch": ("Batch",),
    "clock": ("Clock", "SystemClock"),
    "config": ("QueueConfig",),
    "model.failures": ("Backoff", "Bury", "FailedTasks"),
    "model.takes": ("Rate",),
    "model.tube_types": ("Driver",),
    "errors": tuple(errors.__all__),
    "observe.health": ("Health", "Problem"),
    "queue": ("Queue",),
    "model.reports": (
        "BatchReport",
        "CheckReport",
        "CopyReport",
        "Damage",
        "QueueMetrics",
        "SessionInfo",
        "SweepReport",
        "TubeMetrics",
        "TubeSweep",
        "UtubeCounts",
    ),
    "storage.spark.spark_session": ("delta_package", "local_session"),
    "storage.spark.spark_settings": ("spark_conf",),
    "model.states": ("QueueState",),
    "task": ("PutItem", "PutResult", "Task", "TaskState"),
    "tube": ("Tube",),
    "workers.handlers": ("WorkReport",),
    "storage.spark.guarded_write": ("guarded_write",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Backoff",
    "Batch",
    "BatchReport",
    "Bury",
    "CheckReport",
    "Clock",
    "CommitUnknownError",
    "ConflictError",
    "CopyReport",
    "Damage",
    "Driver",
    "FailedTasks",
    "Health",
    "InvalidOptionError",
    "NotTakenError",
    "Problem",
    "PutItem",
    "PutResult",
    "Queue",
    "QueueConfig",
    "QueueMetrics",
    "QueueNotFoundError",
    "QueueState",
    "QueueStateError",
    "Rate",
    "SessionError",
    "SessionInfo",
    "StoreError",
    "SweepReport",
    "SystemClock",
    "Task",
    "TaskNotFoundError",
    "TaskState",
    "Tube",
    "TubeBusyError",
    "TubeExistsError",
    "TubeMetrics",
    "TubeNotFoundError",
    "TubeSweep",
    "TubeqError",
    "UtubeCounts",
    "WorkReport",
    "__version__",
    "delta_package",
    "guarded_write",
    "local_session",
    "spark_conf",
]


def __getattr__(name: str) -> object:
    """Import the module that defines a name. It is called once for each name."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
