"""Sends a commit to an object store, and finds out whether it succeeded if the answer is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.errors import CommitUnknownError, StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.native import errors
from tubeq_spark.storage.native.commit_notes import is_of
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.store.patience import finding_out, sleep, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tubeq_spark.storage.store.patience import Patience

T = TypeVar("T")


class ShortLogError(Exception):
    """A log begins after the version that is searched for."""


def sent_once(
    path: str,
    version: int,
    operation_id: int,
    patience: Patience,
    send: Callable[[], T],
    read: Callable[[], Mapping[str, Any] | None],
    told: Callable[[Mapping[str, Any]], T],
) -> T:
    """Commit a version of a table on an object store.

    Args:
        path: Where the table is.
        version: The version.
        operation_id: The id by which the commit is recognised.
        patience: For how long requests are repeated after errors that may pass.
        send: Sends it, once.
        read: Reads the commit info of the version; `None` if it does not exist yet. It raises ShortLogError if it
            may have existed.
        told: Makes the result of `send` from the commit info of our commit.

    Raises:
        EngineError: Another commit has become that version, or the store refuses this one.
        CommitUnknownError: It was sent, and its outcome cannot be found out.
        StoreError: It was not sent.
    """
    is_out = False
    for wait in waits(patience, of_commit=True):
        try:
            return send()
        except Exception as error:
            if not errors.is_from_library(error) or errors.unsupported(error) is not None:
                raise
            may_be_there = is_out or errors.may_have_sent(error, version)
            commit = _look(path, operation_id, read, error, is_out=may_be_there)
            if commit is not None:
                if is_of(commit, operation_id):
                    return told(commit)
                msg = f"version {version} of {path} was committed by somebody else"
                raise EngineError(msg, Outcome.CONFLICT) from error
            is_out = is_out or errors.may_be_under_way(error, version)
            if wait is None and not is_out and errors.may_pass(error):
                msg = f"nothing was written: {reason_of(error)}"
                raise StoreError(msg, passes=True) from error
            is_refused = errors.is_conflict(error)
            if wait is None or not (is_refused or errors.may_pass(error)):
                known = Outcome.CONFLICT if is_refused else Outcome.FAILED
                raise EngineError(reason_of(error), Outcome.LOST if is_out else known) from error
        sleep(wait)
    raise AssertionError  # never: the last wait is `None`


def _look(
    path: str,
    operation_id: int,
    read: Callable[[], Mapping[str, Any] | None],
    error: Exception,
    *,
    is_out: bool,
) -> Mapping[str, Any] | None:
    """The commit info of a version; `None` if it does not exist yet.

    Args:
        path: Where the table is.
        operation_id: The operation id of our commit.
        read: As for `sent_once`.
        error: The error with which our commit failed.
        is_out: Whether our commit may have been sent.
    """
    try:
        with finding_out():
            return read()
    except ShortLogError as late:
        if not is_out:
            raise EngineError(f"the log of {path} {late}", Outcome.CONFLICT) from error
        msg = f"the log of {path} {late}"
        raise CommitUnknownError(msg, operation_id) from error
    except Exception as unseen:
        if not errors.is_from_library(unseen) or errors.is_missing(unseen):
            raise
        if not is_out:
            msg = f"storage could not be written: {reason_of(error)}"
            raise StoreError(msg, passes=errors.may_pass(error)) from error
        msg = f"the answer to a commit was lost, and so was the log: {reason_of(unseen)}"
        raise CommitUnknownError(msg, operation_id, passes=errors.may_pass(unseen)) from error
