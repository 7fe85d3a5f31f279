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

#: What the failed tasks of a batch are named by: rows with the columns `task_id` and `error` alone, or this.
Failed = FailedTasks | DataFrame
Handler = Callable[[DataFrame], DataFrame | Failed | tuple[DataFrame, Failed] | None]


def load(name: str, folder: Path) -> Handler:
    """Import a handler.

    What its module defines is sent to executors by value: they need not have the file.

    Args:
        name: `module:function`.
        folder: Where modules are looked for first.

    Raises:
        BadUseError: There is no such function, or its module cannot be imported.
    """
    function: Handler = load_function(name, folder)
    register_pickle_by_value(sys.modules[name.partition(":")[0]])  # type: ignore[no-untyped-call]
    return function
