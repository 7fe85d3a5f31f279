"""Finds where readers of a log begin, and its newest version.

A log grows at its end, by one file for each commit, and others shorten it at its beginning, before
a checkpoint, while it is read. So a version is the newest one if the next version does not exist
and, read after that, the version itself still exists. If it does not, the log is read again from
its beginning.

It lists the log once. `_last_checkpoint` is only a hint, by which a listing may be shorter: it may be
older than the log, or name a missing file.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.log.actions import Actions, UnknownLogError, damaged
from tubeq_spark.storage.log.facts import BEGINNING, LogFacts, UnreadableCheckpointError, checkpoint
from tubeq_spark.storage.log.log_files import (
    checkpoint_name,
    checkpoints_in,
    commit_file,
    commit_name,
    moved_on,
)
from tubeq_spark.storage.log.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubeq_spark.storage.log.log_files import LogFiles

log = logging.getLogger(__name__)
#: How often a log is read again if others have shortened it meanwhile.
_TRIES = 20
#: How often it is listed before a missing file counts as lost.
_SURE = 3


def newest(
    files: LogFiles,
    seen: Callable[[int, Actions], None] = lambda _version, _actions: None,
) -> Snapshot:
    """The newest version.

    Args:
        files: The log.
        seen: Called with each commit after the version at which the reading begins.

    Raises:
        EngineError: There is no log.
        DamagedFileError: A file of the log is damaged or missing.
        UnknownLogError: This package cannot read it.
        OSError: It cannot be read.
    """
    for tries in range(_TRIES):
        try:
            begins = _begun(files, is_sure=tries >= _SURE, whole=tries > 0)
        except FileNotFoundError:
            # A listed file is gone, because the log has moved on.
            continue
        found = moved_on(files, begins, seen)
        if files.goes_on_after(found.version):
            continue
        # The commit of the checkpoint's version may be removed already.
        if files.exists(commit_name(found.version)) or _last_listed(files) == found.version:
            return found
    raise UnknownLogError(f"the log changes too fast: {files}")


def _begun(files: LogFiles, *, is_sure: bool, whole: bool) -> Snapshot:
    """The version at which readers begin.

    Args:
        files: The log.
        is_sure: Whether a file that was not listed counts as missing. The log may have been shortened
            meanwhile, or the file may be new: another listing shows that.
        whole: Whether to list the whole log, however long.

    Raises:
        EngineError: There is no log.
        FileNotFoundError: A listed file is gone, or one was not listed: list again.
        DamagedFileError: No beginning leads to the newest version.
        UnknownLogError: This package cannot read it.
    """
    listed = LogFacts.listed(files, whole=whole)
    starts = listed.checkpoints[::-1]
    if listed.unread(starts):
        raise UnknownLogError("a checkpoint of several files")
    if not (listed.versions or starts) and listed.is_whole:
        msg = f"the table at {str(files).removesuffix('/_delta_log')} does not exist"
        raise EngineError(msg, Outcome.FAILED, missing=True)
    bad: tuple[int, UnreadableCheckpointError] | None = None
    for start in (*starts, BEGINNING):
        if _hole(listed, start) is not None:
            break
        if start == BEGINNING:
            return Snapshot.first(0, files.commit(0))
        try:
            return Snapshot.first(start, checkpoint(files, start))
        except UnreadableCheckpointError as error:
            log.warning("%s/%s is passed over: %s", files, checkpoint_name(start), error)
            bad = bad or (start, error)
    if not listed.is_whole:
        raise FileNotFoundError(str(files))
    if bad is not None:
        fault = (
            f"is no whole checkpoint, and the log does not lead on without it ({reason_of(bad[1])})"
        )
        raise damaged(f"{files}/{checkpoint_name(bad[0])}", fault)
    hole = _hole(listed, max(starts, default=BEGINNING)) or 0
    file = commit_file(files, hole)
    if not is_sure or files.exists(commit_name(hole)):
        raise FileNotFoundError(file)
    raise damaged(file, "is missing, though later ones are there")


def _hole(listed: LogFacts, start: int) -> int | None:
    """The first missing version after a version, with later ones; `None` if none is missing."""
    after = [v for v in listed.versions if v > start]
    return next((place for place, v in enumerate(after, start + 1) if place != v), None)


def _last_listed(files: LogFiles) -> int:
    """The newest version of which a log has files; -1 if there is none."""
    listed = LogFacts.listed(files, whole=False)
    others = (file.version for file in checkpoints_in(listed.files).values())
    return max([*listed.versions, *others], default=-1)


def checkpoints_until(files: LogFiles, most: int) -> Iterator[int]:
    """The versions of checkpoints of one file up to a version, newest first."""
    found: set[int] = set()
    for whole in (False, True):
        listed = LogFacts.listed(files, whole=whole)
        for version in reversed(listed.checkpoints):
            if version <= most and version not in found:
                found.add(version)
                yield version
        if listed.is_whole:
            return
