"""A task queue for people who live in Spark: Tarantool's tubes, stored in Delta tables."""

from __future__ import annotations

from tubeq_spark.batch import Batch
from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.config import QueueConfig
from tubeq_spark.drivers import Driver
from tubeq_spark.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidOptionError,
    NotTakenError,
    QueueStateError,
    SessionError,
    StoreError,
    TaskNotFoundError,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
    TubeqError,
)
from tubeq_spark.health import Health, Problem
from tubeq_spark.metrics import QueueMetrics, TubeMetrics
from tubeq_spark.queue import Queue
from tubeq_spark.spark_session import local_session, spark_conf
from tubeq_spark.state import QueueState
from tubeq_spark.sweeper import SweepReport, TubeSweep
from tubeq_spark.task import PutItem, PutResult, Task, TaskState
from tubeq_spark.tube import Tube

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Clock",
    "CommitUnknownError",
    "ConflictError",
    "Driver",
    "Health",
    "InvalidOptionError",
    "NotTakenError",
    "Problem",
    "PutItem",
    "PutResult",
    "Queue",
    "QueueConfig",
    "QueueMetrics",
    "QueueState",
    "QueueStateError",
    "SessionError",
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
    "__version__",
    "local_session",
    "spark_conf",
]
