"""Reads a commit file of a log completely, and refuses an incomplete one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tubeq_spark.rules.commit_text import changes_in, fault_of, fewer_than_told
from tubeq_spark.storage.durability.log_names import commit_file

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CommitFile", "DamagedCommitError", "read_commit"]


class DamagedCommitError(ValueError):
    """A commit file is incomplete; the message says why, without its subject."""


@dataclass(slots=True)
class CommitFile:
    """The file actions of a commit.

    Attributes:
        version: Its version.
        adds: The actions that add files, by the paths of the files.
        removes: The actions that remove files, by their paths.
        metadata: The table's new metadata, if it changes.
        protocol: Its new protocol, if that changes.
    """

    version: int
    adds: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    removes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None

    def take(self, kind: str, action: Mapping[str, Any] | None) -> None:
        """Add an action; other kinds are ignored."""
        if action is None:
            return
        if kind == "add":
            int(action["size"])
            self.adds[unquote(action["path"])] = action
        elif kind == "remove":
            self.removes[unquote(action["path"])] = action
        elif kind == "metaData":
            self.metadata = action
        elif kind == "protocol":
            self.protocol = action


def read_commit(log: Path, version: int) -> CommitFile:
    """Read a commit.

    Raises:
        DamagedCommitError: It is not as it was written.
        OSError: It cannot be read.
    """
    text = Path(commit_file(log, version)).read_bytes()
    fault = fault_of(text)
    if fault:
        raise DamagedCommitError(fault)
    found, info = CommitFile(version), dict[str, Any]()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            for kind, action in json.loads(line).items():
                found.take(kind, action)
                if kind == "commitInfo":
                    info = action
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"cannot be read: line {number} is no action of a commit"
            raise DamagedCommitError(msg) from error
    fault = fewer_than_told(info, len(found.adds), len(found.removes), changes=changes_in(text))
    if fault:
        raise DamagedCommitError(fault)
    return found
