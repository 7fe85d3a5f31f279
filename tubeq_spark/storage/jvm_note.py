"""The note beside a table's lock file that says in which JVM a statement may be running."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tubeq_spark.errors import CommitUnknownError, StoreError, TubeqError
from tubeq_spark.rules.error_text import reason_of
from tubeq_spark.storage.outcome import Outcome, outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.clock import Clock
    from tubeq_spark.storage.committer import Committer, CommitterFile
    from tubeq_spark.storage.processes import Processes

__all__ = ["NOTE_SUFFIX", "is_answered", "wait_for_other_jvm", "write_note"]

log = logging.getLogger(__name__)

#: How the name of the note ends.
NOTE_SUFFIX = ".committing"
#: Seconds between two looks whether another process's JVM is gone, and how long it is waited for.
_LOOK, _PATIENCE = 0.05, 30.0


def wait_for_other_jvm(
    committer: Callable[[], Committer | None], note: CommitterFile, wall: Clock, here: Processes
) -> bool:
    """Wait until no other JVM can be committing; returns whether a statement may be running in our own.

    Raises:
        StoreError: It may still be running there when nobody waits any longer.
    """
    left = note.read()
    if left is None:
        return False
    own = committer()
    if own is not None and left.is_same(own):
        return True
    until = wall.monotonic() + _PATIENCE
    if not left.is_gone(here):
        log.warning("%s: %s may still be committing: waiting for its end", note.path, left)
    while not left.is_gone(here):
        if wall.monotonic() >= until:
            msg = (
                f"{left} may still be committing for a client that was killed or interrupted, and "
                f"would overwrite what others commit; nothing was written. End that process; if "
                f"it has ended, or runs no statement of this table, remove {note.path}"
            )
            raise StoreError(msg)
        wall.sleep(_LOOK)
    note.clear()
    return False


def write_note(note: CommitterFile, committer: Committer) -> None:
    """Note who may be committing from now on.

    Raises:
        StoreError: It cannot be written.
    """
    try:
        note.write(committer)
    except OSError as error:
        msg = f"{note.path} cannot be written, so nothing is committed: {reason_of(error)}"
        raise StoreError(msg) from error


def is_answered(error: Exception) -> bool:
    """Whether a statement that raised is known to have ended."""
    if isinstance(error, TubeqError):
        return not isinstance(error, CommitUnknownError)
    return outcome_of(error) is not Outcome.LOST
