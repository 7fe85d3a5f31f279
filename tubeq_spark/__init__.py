"""A task queue for Spark: tubes of tasks with priorities, delays, leases, stored in Delta tables.

The names of this package are imported when they are first used. So `tubeq` can switch the garbage
collector off before it imports these modules, because a call of `tubeq` ends before a collection would pay.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tubeq_spark import errors

if TYPE_CHECKING:
    from tubeq_spark.batch import Batch as Batch
    from tubeq_spark.clock import Clock as Clock
    from tubeq_spark.clock import SystemClock as SystemClock
    from tubeq_spark.config import QueueConfig as QueueConfig
    from tubeq_spark.errors import CommitUnknownError as CommitUnknownError
    from tubeq_spark.errors import ConflictError as ConflictError
    from tubeq_spark.errors import InvalidOptionError as InvalidOptionError
    from tubeq_spark.errors import NotTakenError as NotTakenError
    from tubeq_spark.errors import QueueNotFoundError as QueueNotFoundError
    from tubeq_spark.errors import QueueStateError as QueueStateError
    from tubeq_spark.errors import SessionError as SessionError
    from tubeq_spark.errors import StoreError as StoreError
    from tubeq_spark.errors import TaskNotFoundError as TaskNotFoundError
    from tubeq_spark.errors import TubeBusyError as TubeBusyError
    from tubeq_spark.errors import TubeExistsError as TubeExistsError
    from tubeq_spark.errors import TubeMovedError as TubeMovedError
    from tubeq_spark.errors import TubeNotFoundError as TubeNotFoundError
    from tubeq_spark.errors import TubeqError as TubeqError
    from tubeq_spark.model.failures import Backoff as Backoff
    from tubeq_spark.model.failures import Bury as Bury
    from tubeq_spark.model.failures import FailedTasks as FailedTasks
    from tubeq_spark.model.reports import BatchReport as BatchReport
    from tubeq_spark.model.reports import CheckReport as CheckReport
    from tubeq_spark.model.reports import CopyReport as CopyReport
    from tubeq_spark.model.reports import Damage as Damage
    from tubeq_spark.model.reports import QueueMetrics as QueueMetrics
    from tubeq_spark.model.reports import SessionInfo as SessionInfo
    from tubeq_spark.model.reports import SweepReport as SweepReport
    from tubeq_spark.model.reports import TubeMetrics as TubeMetrics
    from tubeq_spark.model.reports import TubeSweep as TubeSweep
    from tubeq_spark.model.reports import UtubeCounts as UtubeCounts
    from tubeq_spark.model.takes import Rate as Rate
    from tubeq_spark.model.tube_types import Driver as Driver
    from tubeq_spark.observe.health import Health as Health
    from tubeq_spark.observe.health import Problem as Problem
    from tubeq_spark.queue import Queue as Queue
    from tubeq_spark.storage.spark.guarded_write import guarded_write as guarded_write
    from tubeq_spark.storage.spark.spark_session import delta_package as delta_package
    from tubeq_spark.storage.spark.spark_session import local_session as local_session
    from tubeq_spark.storage.spark.spark_session import spark_conf as spark_conf
    from tubeq_spark.task import PutItem as PutItem
    from tubeq_spark.task import PutResult as PutResult
    from tubeq_spark.task import QueueState as QueueState
    from tubeq_spark.task import Task as Task
    from tubeq_spark.task import TaskState as TaskState
    from tubeq_spark.tube import Tube as Tube
    from tubeq_spark.workers.handlers import WorkReport as WorkReport

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
    "storage.spark.spark_session": ("delta_package", "local_session", "spark_conf"),
    "task": ("PutItem", "PutResult", "QueueState", "Task", "TaskState"),
    "tube": ("Tube",),
    "workers.handlers": ("WorkReport",),
    "storage.spark.guarded_write": ("guarded_write",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = list(_HOMES)


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
