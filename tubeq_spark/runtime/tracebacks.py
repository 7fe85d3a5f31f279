"""Cuts the tracebacks of errors that a caller causes: they end with the caller's line and one frame of the verb.

A verb has some twenty frames inside the package, which do not help to find a wrong argument. If the logger
`tubeq_spark` is enabled for DEBUG, tracebacks stay whole.
"""

from __future__ import annotations

import functools
import inspect
import logging
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.errors import (
    InvalidOptionError,
    NotTakenError,
    QueueNotFoundError,
    QueueStateError,
    SessionError,
    TaskNotFoundError,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
log = logging.getLogger("tubeq_spark")

#: Errors that a caller causes. Other errors come from the storage, and their frames may help.
_OF_USE = (
    InvalidOptionError,
    NotTakenError,
    QueueNotFoundError,
    QueueStateError,
    SessionError,
    TaskNotFoundError,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
)
#: The package, and modules through which it calls itself. Frames of a program's functions stay.
_LEFT_OUT = frozenset({"tubeq_spark", "concurrent", "contextlib", "threading"})


def short_tracebacks(cls: type[T]) -> type[T]:
    """Decorate a class of verbs: errors of use leave its public methods with short tracebacks."""
    for name, method in [*vars(cls).items()]:
        is_public = not name.startswith("_") or name.endswith("__")
        if is_public and isinstance(method, FunctionType):
            setattr(cls, name, _short(method))
    return cls


class _Source:
    """A default value in source code."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _short(method: FunctionType) -> Callable[..., Any]:
    """Make a function with the parameters of a method, which cuts the tracebacks of its errors.

    It is compiled, because Python 3.11 checks for signals after a call with `*args`: an interrupt there would
    lose the result of a take (`storage.uninterrupted`).
    """
    declared, given, defaults = [], [], {}
    signature = inspect.signature(method)
    for name, parameter in signature.parameters.items():
        if parameter.default is not parameter.empty:
            defaults[name] = parameter.default
            parameter = parameter.replace(default=_Source(f"_defaults[{name!r}]"))  # noqa: PLW2901
        declared.append(parameter.replace(annotation=parameter.empty))
        bare = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
        given.append(f"{name}={name}" if parameter.kind is parameter.KEYWORD_ONLY else bare)
    parameters = signature.replace(parameters=declared, return_annotation=signature.empty)
    source = (
        f"def {method.__name__}{parameters}:\n"
        "    __tracebackhide__ = True\n"
        "    try:\n"
        f"        return _method({', '.join(given)})\n"
        "    except _OF_USE as error:\n"
        "        raise _cut(error)\n"
    )
    names: dict[str, Any] = {
        "__name__": __name__,
        "_OF_USE": _OF_USE,
        "_cut": _cut,
        "_defaults": defaults,
        "_method": method,
    }
    exec(compile(source, f"<{method.__qualname__}>", "exec"), names)  # noqa: S102
    verb: Callable[..., Any] = names[method.__name__]
    return functools.wraps(method)(verb)


def _cut(error: Exception) -> Exception:
    if log.isEnabledFor(logging.DEBUG):
        return error
    error.__traceback__ = _of_others(error.__traceback__)
    if error.__cause__ is not None:
        error.__cause__.__traceback__ = None
    handled = error.__context__
    # This hides an error that a verb has met and replaced. An error that the program was handling stays.
    if handled is not None and handled.__traceback__ and _is_own(handled.__traceback__):
        error.__suppress_context__ = True
    return error


def _of_others(traceback: TracebackType | None) -> TracebackType | None:
    """The part of a traceback outside the package."""
    if traceback is None:
        return None
    rest = _of_others(traceback.tb_next)
    if _is_own(traceback):
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)


def _is_own(traceback: TracebackType) -> bool:
    """Whether the outermost frame of a traceback belongs to the package."""
    module = str(traceback.tb_frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in _LEFT_OUT
