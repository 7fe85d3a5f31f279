"""Finds the tasks at which a handler fails, by calling it again with halves of a failed batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.model.failures import Reason

Given = TypeVar("Given")
T = TypeVar("T")

_TWO = 2

#: After so many failed calls in a row, the handler, or something that it needs, counts as broken. Halving a million
#: tasks down to one needs 20 calls.
PATIENCE = 32


@dataclass(slots=True)
class Trial:
    """The result of a handler for some tasks.

    Attributes:
        failed: The failed tasks, with their reasons.
        untried: The tasks whose result is not known.
        error: The last error of the handler, if no task succeeded, or if it counts as broken.
    """

    failed: dict[int, Reason] = field(default_factory=dict)
    untried: Sequence[int] = ()
    error: Exception | None = None


def by_halves(
    ids: Sequence[int],
    error: Exception,
    read: Callable[[Sequence[int]], Given],
    call: Callable[[Given], T],
    failed: Callable[[T, Sequence[int]], Mapping[int, Reason]],
    goes_on: Callable[[], bool],
    through: tuple[type[Exception], ...] = (),
) -> Trial:
    """Find the tasks at which a handler fails, among the tasks of a failed call.

    Args:
        ids: The ids of the tasks.
        error: The error of the failed call.
        read: Reads consecutive tasks of `ids`. Its errors are raised, because no task has caused them.
        call: Calls the handler with these tasks. Its errors are failures of the tasks.
        failed: Returns the failed tasks that the handler has named in its result.
        goes_on: Called before each call; if it returns false, no more calls are made.
        through: Classes of errors that no task causes. They are raised.
    """
    if len(ids) < _TWO:
        return Trial(dict.fromkeys(ids, error), error=error)
    trial, parts, failing = Trial(error=error), halves(ids), 1
    while parts:
        if failing == PATIENCE or not goes_on():
            trial.untried = [task_id for part in parts for task_id in part]
            if failing == PATIENCE:
                trial.error = error
            break
        part = parts.pop()
        given = read(part)
        try:
            result = call(given)
        except through:
            raise
        except Exception as raised:  # noqa: BLE001  (a handler may raise anything)
            error = raised
            failing += 1
            if len(part) > 1:
                parts += halves(part)
            else:
                trial.failed[part[0]] = raised
            continue
        trial.failed.update(failed(result, part))
        trial.error, failing = None, 0
    return trial


def halves(tasks: Sequence[T]) -> list[Sequence[T]]:
    """The second half and then the first one, because the last part of the list is tried next."""
    middle = len(tasks) // 2
    return [tasks[middle:], tasks[:middle]]
