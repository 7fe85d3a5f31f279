"""Imports the function that works on batches, by its name `module:function`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame

from tubeq_spark.programs import BadUseError, reason_of

if TYPE_CHECKING:
    from pathlib import Path

Handler = Callable[[DataFrame], DataFrame | None]


def load(name: str, folder: Path) -> Handler:
    """Import a handler.

    What its module defines is sent to executors by value: they need not have the file.

    Args:
        name: `module:function`.
        folder: Where modules are looked for first.

    Raises:
        BadUseError: There is no such function, or its module cannot be imported.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        msg = f"{name!r} is no handler: must be module:function"
        raise BadUseError(msg)
    sys.path.insert(0, str(folder.resolve()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        msg = f"the module of {name!r} cannot be imported: {reason_of(error)}"
        raise BadUseError(msg) from error
    function: Handler | None = getattr(module, function_name, None)
    if not callable(function):
        msg = f"{module_name} has no function {function_name}"
        raise BadUseError(msg)
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return function
