"""Imports the function that works on batches, by its name `module:function`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame

from tubeq_spark import FailedTasks
from tubeq_spark.programs import load_function

if TYPE_CHECKING:
    from pathlib import Path

#: The failed tasks of a batch: `FailedTasks`, or rows with only the columns `task_id` and `error`.
Failed = FailedTasks | DataFrame
Handler = Callable[[DataFrame], DataFrame | Failed | tuple[DataFrame, Failed] | None]


def load(name: str, folder: Path) -> Handler:
    """Import a handler.

    The definitions of its module are sent to executors by value, so they need not have the file.

    Args:
        name: `module:function`.
        folder: The folder that is searched for modules first.

    Raises:
        BadUseError: The function does not exist, or its module cannot be imported.
    """
    function: Handler = load_function(name, folder)
    register_pickle_by_value(sys.modules[name.partition(":")[0]])  # type: ignore[no-untyped-call]
    return function
