"""Recognises functions of programs whose code does not run when they are called."""

from __future__ import annotations

import functools
import inspect
from typing import Any


def is_async(function: object) -> bool:
    """Whether a function, or a callable object, is a coroutine function."""
    return inspect.iscoroutinefunction(_called(function))


def is_generator(function: object) -> bool:
    """Whether a function, or a callable object, is a generator function, asynchronous or not."""
    called = _called(function)
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def _called(function: object) -> Any:
    """The function that runs when an object is called."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return getattr(function, "__call__", None)  # noqa: B004  (it is looked at, not called)


def require_run(result: object) -> None:
    """Refuse the result of a function whose code has not run.

    Raises:
        TypeError: The result is a coroutine or a generator.
    """
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        # Otherwise Python warns that it was never awaited.
        result.close()
    elif not inspect.isasyncgen(result):
        return
    kind = type(result).__name__.replace("_", " ")
    msg = f"the handler returned a {kind}: nothing of it has run"
    raise TypeError(msg)
