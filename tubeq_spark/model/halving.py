"""Finds the tasks that a handler fails at: it calls the handler with halves of those that it failed at together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.model.failures import Reason

Given = TypeVar("Given")
T = TypeVar("T")

_TWO = 2

#: So many calls in a row fail if a handler, or what it needs, is broken. To come down to one task of a million
#: needs 20.
PATIENCE = 32


@dataclass(slots=True)
class Trial:
    """What a handler has made of some tasks.

    Attributes:
        failed: The tasks that it failed at, and why.
        untried: Those of which nothing is known.
        error: Its last error, if it has done nothing, or was given up.
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
    """Find the tasks that a handler fails at, among those that it failed at together.

    Args:
        ids: The tasks.
        error: How it failed.
        read: Reads some of them, neighbours in `ids`; what it raises says nothing of these, and is raised.
        call: Calls it with what was read; what it raises is a failure of these.
        failed: Which of them it names as failed, by what it returned.
        goes_on: Asked before each call.
        through: Errors that say nothing of the tasks: they are raised.
    """
    if len(ids) < _TWO:
        return Trial(dict.fromkeys(ids, error), error=error)
    trial, parts, failing = Trial(error=error), _halves(ids), 1
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
                parts += _halves(part)
            else:
                trial.failed[part[0]] = raised
            continue
        trial.failed.update(failed(result, part))
        trial.error, failing = None, 0
    return trial


def _halves(ids: Sequence[int]) -> list[Sequence[int]]:
    """The second half, and the first one, which is next."""
    middle = len(ids) // 2
    return [ids[middle:], ids[:middle]]
