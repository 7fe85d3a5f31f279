"""The names of the files in a Delta log, and of the checksums beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: The file that names the checkpoint that readers begin with.
LAST_CHECKPOINT = "_last_checkpoint"
#: A file that was prepared to become part of a log (`.tmp`) is left over when it is so many seconds old.
LEFT_SECONDS = 3600.0
_COMMIT = re.compile(r"(\d{20})\.json")
#: A commit, its checksum, commits compacted into one file, or a checkpoint.
_FILE = re.compile(
    r"(\d{20})\.(?:(json|crc)|\d{20}\.(compacted)\.json|(checkpoint)(?:\.(.+))?\.(parquet|json))"
)
#: Between a checkpoint's kind and its ending, if it has several files: the number of this one, and how many.
_PART = re.compile(r"\d{10}\.(\d{10})")
#: A file of one version, or of a range of versions, or the checksum of such a file.
_OF_VERSIONS = re.compile(r"\.?(\d{20})\.(?:(\d{20})\.)?")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a log, by its name.

    Attributes:
        version: Its version; of compacted commits the first.
        kind: "json" is a commit, "crc" its checksum by Delta; else "compacted" or "checkpoint".
        part: Of a checkpoint what stands before the ending; empty if the checkpoint is this file alone.
        is_parquet: Of a checkpoint whether it is Parquet.
    """

    version: int
    kind: str
    part: str = ""
    is_parquet: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether this is a checkpoint of one Parquet file, as the queue writes them."""
        return self.is_parquet and not self.part

    @property
    def files(self) -> int:
        """Of how many Parquet files the checkpoint is; 0 if it has files that its name does not tell of."""
        if self.is_plain:
            return 1
        found = _PART.fullmatch(self.part) if self.is_parquet else None
        return 0 if found is None else int(found[1])


def log_file(name: str) -> LogFile | None:
    """The file of a log that has a name; `None`: no version's, or the checksum by Hadoop of one."""
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    version, plain, compacted, checkpoint, part, ending = found.groups()
    kind = plain or compacted or checkpoint
    return LogFile(int(version), kind, part or "", ending == "parquet")


def checkpoints_in(names: Iterable[str]) -> dict[str, LogFile]:
    """The files of checkpoints among some names."""
    found = ((name, log_file(name)) for name in names if ".checkpoint." in name)
    return {name: file for name, file in found if file is not None}


def commit_file(log: object, version: int) -> str:
    """The path of a commit."""
    # As text: each verb asks for some.
    return f"{log}/{version:020}.json"


def versions_of(names: Iterable[str]) -> list[int]:
    """The versions of the commits among some names, in order."""
    return sorted(int(found[1]) for found in map(_COMMIT.fullmatch, names) if found)


def version_of(name: str) -> int | None:
    """The version, or the first one, of a file or of the checksum of one; `None`: it has none."""
    found = _OF_VERSIONS.match(name)
    return None if found is None else int(found[1])


def names_after(names: Iterable[str], version: int) -> Iterator[str]:
    """The names of files of later versions, including checksum files."""
    for name in names:
        found = _OF_VERSIONS.match(name)
        if found is not None and int(found[2] or found[1]) > version:
            yield name


def checksum_of(file: Path) -> Path:
    """The path of Hadoop's checksum of a file; with another one Hadoop refuses the file."""
    return file.with_name(f".{file.name}.crc")
