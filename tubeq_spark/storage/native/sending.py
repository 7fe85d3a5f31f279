"""Sends a commit to an object store, and finds out whether it succeeded if the answer is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.errors import CommitUnknownError, StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.native import errors
from tubeq_spark.storage.native.commit_notes import is_of
from tubeq_spark.storage.native.handles import read
from tubeq_spark.storage.native.store_client import sleep, waits
from tubeq_spark.storage.outcome import EngineError, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from deltalake import DeltaTable

    from tubeq_spark.storage.native.handles import Table

T = TypeVar("T")


def sent(
    table: Table,
    snapshot: DeltaTable,
    operation_id: int,
    send: Callable[[], T],
    told: Callable[[Mapping[str, Any]], T],
) -> T:
    """Commit the version that follows a snapshot.

    Args:
        table: The table.
        snapshot: The snapshot.
        operation_id: What the commit is known by.
        send: Sends it, once.
        told: What `send` would have returned, by what the log says of the commit.

    Raises:
        EngineError: Another commit has become that version, or the store refuses this one.
        CommitUnknownError: It was sent, and nobody can tell what became of it.
        StoreError: It was not sent.
    """
    if not table.is_far:
        return send()
    version, is_out = snapshot.version() + 1, False
    for wait in waits(table.patience, of_commit=True):
        try:
            return send()
        except Exception as error:
            if not errors.is_from_library(error) or errors.unsupported(error) is not None:
                raise
            may_be_there = is_out or errors.may_have_sent(error, version)
            commit = _look(table, version, operation_id, error, is_out=may_be_there)
            if commit is not None:
                if is_of(commit, operation_id):
                    return told(commit)
                msg = f"version {version} of {table.path} was committed by somebody else"
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
    table: Table, version: int, operation_id: int, error: Exception, *, is_out: bool
) -> Mapping[str, Any] | None:
    """The commit info of a version; `None` if it does not exist yet.

    Args:
        table: The table.
        version: The version.
        operation_id: Of the commit that was to be it.
        error: What that failed with.
        is_out: Whether it may have been sent.
    """
    try:
        # This first: unlike the reading of a file it lets other threads run while nothing answers.
        with table.newest() as newest:
            last = newest.version()
        found = _commit_info(table, version) if last >= version else None
    except Exception as unseen:
        if not errors.is_from_library(unseen) or errors.is_missing(unseen):
            raise
        if not is_out:
            msg = f"storage could not be written: {reason_of(error)}"
            raise StoreError(msg, passes=errors.may_pass(error)) from error
        msg = f"the answer to a commit was lost, and so was the log: {reason_of(unseen)}"
        raise CommitUnknownError(msg, operation_id, passes=errors.may_pass(unseen)) from error
    if found is None and last >= version:
        msg = f"the log of {table.path} begins after version {version}"
        raise CommitUnknownError(msg, operation_id) from error
    return found


def _commit_info(table: Table, version: int) -> Mapping[str, Any] | None:
    """The commit info of a commit; `None` if the version does not exist."""
    text = read(table.path, table.options, f"_delta_log/{version:020}.json")
    if text is None:
        return None
    actions = (json.loads(line) for line in text.splitlines() if line.strip())
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
