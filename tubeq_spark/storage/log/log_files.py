"""The files of a log: their names, how one read of the log sees them, and the commits that came too late to be among them.

Commits are removed when the log's retention is over, by the store's clock. So a process that was paused for
long may commit a version that others had, and have removed: the store accepts this commit, and nobody will ever
read it. If the answer to a commit comes late, counted from the look that found its version free, the commit is
compared with the files of the log. The store tells when each of them was written.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.log.actions import Actions, DataFile, known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.store.store import Entry, Store

log = logging.getLogger(__name__)
#: The file that names the checkpoint that readers begin with.
LAST_CHECKPOINT = "_last_checkpoint"
#: A file that was prepared for a log (`.tmp`) counts as left over when it is this many seconds old.
LEFT_SECONDS = 3600.0
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(.+))?\.(parquet|json)")
#: A file of one version, or of a range of versions, or the checksum of such a file.
_OF_VERSIONS = re.compile(r"\.?(\d{20})\.(?:(\d{20})\.)?")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file of a checkpoint, by its name.

    Attributes:
        version: The version.
        is_plain: Whether it is a checkpoint of one Parquet file, the kind that the queue writes.
        is_parquet: Whether it is Parquet.
    """

    version: int
    is_plain: bool
    is_parquet: bool


def checkpoints_in(names: Iterable[str]) -> dict[str, Checkpoint]:
    """The files of checkpoints among some names."""
    matches = ((name, _CHECKPOINT.fullmatch(name)) for name in names)
    found: dict[str, Checkpoint] = {}
    for name, match in matches:
        if match is not None:
            is_parquet = match[3] == "parquet"
            found[name] = Checkpoint(int(match[1]), is_parquet and not match[2], is_parquet)
    return found


def commit_file(log: object, version: int) -> str:
    """The path of a commit."""
    # Text is faster than a `Path`, and each verb needs some of these.
    return f"{log}/{version:020}.json"


def versions_of(names: Iterable[str]) -> list[int]:
    """The versions of the commits among some names, in order."""
    return sorted(int(found[1]) for found in map(_COMMIT.fullmatch, names) if found)


def version_of(name: str) -> int | None:
    """The version (or the first one) of a file or of its checksum; `None` if it has none."""
    found = _OF_VERSIONS.match(name)
    return None if found is None else int(found[1])


def names_after(names: Iterable[str], version: int) -> Iterator[str]:
    """The names of files of later versions, including checksum files."""
    for name in names:
        found = _OF_VERSIONS.match(name)
        if found is not None and int(found[2] or found[1]) > version:
            yield name


def checksum_of(file: Path) -> Path:
    """The path of Hadoop's checksum of a file. Hadoop refuses a file whose checksum is wrong."""
    return file.with_name(f".{file.name}.crc")


def is_elsewhere(path: str) -> bool:
    """Whether a file in a log belongs to another table, as in a shallow clone; it is not checked."""
    return ":" in path or path.startswith("/")


def commit_name(version: int) -> str:
    """The name of a commit."""
    return f"{version:020}.json"


def checkpoint_name(version: int) -> str:
    """The name of a checkpoint."""
    return f"{version:020}.checkpoint.parquet"


def pointer(log: LogFiles) -> Mapping[str, Any] | None:
    """The contents of `_last_checkpoint`, such as its "version".

    Returns:
        `None` if it is missing or cannot be read, which does no harm here.
    """
    try:
        return pointer_in(log.read(LAST_CHECKPOINT))
    except FileNotFoundError:
        return None


def pointer_in(text: bytes) -> Mapping[str, Any] | None:
    """The fields of a `_last_checkpoint`, "version" and "size" as numbers; `None` if it cannot be read."""
    try:
        last = json.loads(text)
        return {**last, "version": int(last["version"]), "size": int(last.get("size") or 0)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


#: The directory of a log, below that of its table.
LOG = "_delta_log"
#: The clocks of a store's hosts differ by no more than this many seconds.
SKEW = 2.0
#: On an object store commits are kept for this many hours at least.
KEPT_HOURS = 2


class LogFiles:
    """The log of a table. Where requests are dear, a file is read once, even if others change the log meanwhile."""

    def __init__(self, store: Store, most: int = 1, first: int = 1) -> None:
        """Read nothing yet.

        Args:
            store: The files of the table.
            most: How many commits one request asks for at most. With 1 nothing is remembered.
            first: How many the first request asks for.
        """
        self.store, self._most = store, most
        #: Whether requests are dear, so that it asks for commits ahead.
        self.reads_ahead = most > 1
        self._held: dict[str, bytes | None] = {}
        #: The tags of files that were read or listed.
        self.tags: dict[str, str | None] = {}
        self._listed: dict[str, Entry] = {}
        #: The last version of a commit in a listing; `None`: nothing was listed.
        self._end: int | None = None
        #: How many commits the next request asks for, at least.
        self._asked = 0
        self._first = min(first, most)

    def __str__(self) -> str:
        return f"{self.store}/{LOG}"

    def read(self, name: str) -> bytes:
        """The contents of a file."""
        if not self.reads_ahead:
            return self._content(name)
        if name not in self._held:
            self._fetch(name)
        found = self._held[name]
        if found is None:
            raise FileNotFoundError(f"{self}/{name}")
        return found

    def _fetch(self, name: str) -> None:
        names = [name]
        if name.endswith(".json"):
            first, count = int(name[:20]), max(self._asked, self._first)
            # The first two requests ask for one commit each: mostly there are no more.
            self._asked = min(2 * count, self._most) if self._asked or count > 1 else 1
            self._first = 1
            if self._end is not None:
                count = min(self._end - first + 1, self._most)
            # A commit that is not in the listing did not exist.
            names = [commit_name(first + n) for n in range(count)]
            self._held[name] = None
        self.fetch(names)

    def fetch(self, names: Sequence[str]) -> None:
        """Read some files at the same time, where requests are dear."""
        if self.reads_ahead:
            self._held.update(zip(names, self.store.together(self._get, names), strict=True))

    def _get(self, name: str) -> bytes | None:
        try:
            return self._content(name)
        except FileNotFoundError:
            return None

    def _content(self, name: str) -> bytes:
        listed = self._listed.get(name)
        size = 0 if listed is None else listed.size
        content, self.tags[name] = self.store.get(f"{LOG}/{name}", size=size)
        return content

    def commit(self, version: int) -> Actions:
        """The actions of a commit. Raises as `known`, and `FileNotFoundError` if it is not there."""
        name = commit_name(version)
        return known(self.read(name), f"{self}/{name}")

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        if self.reads_ahead and name in self._listed:
            return True
        with suppress(FileNotFoundError):
            if name.endswith(".json"):
                # The caller reads a commit next, so it is read at once.
                self.read(name)
            else:
                self.store.get(f"{LOG}/{name}", span=(0, 1))
            return True
        return False

    def goes_on_after(self, version: int) -> bool:
        """Whether a listing has commits after a version, which others removed before they were read."""
        return self._end is not None and self._end > version

    def is_in_order(self) -> bool:
        """Whether the listed commits were written one after the other, so that none of them came too late."""
        times = [self._listed[commit_name(v)].at for v in versions_of(self._listed)]
        return all(first <= then + SKEW for first, then in itertools.pairwise(times))

    def begin(self, version: int) -> int:
        """The first of the listed commits that lead to a version one after the other, without those that came too late."""
        listed = self._listed
        while version and (before := listed.get(commit_name(version - 1))) is not None:
            after = listed.get(commit_name(version))
            if after is not None and before.at > after.at + SKEW:
                break
            version -= 1
        return version

    def list_from(self, after: str = "") -> dict[str, Entry]:
        """List the files whose names come after a name."""
        self._listed = {file.name: file for file in self.store.list(LOG, after)}
        self._end = max(versions_of(self._listed), default=-1)
        self.tags.update((name, file.tag) for name, file in self._listed.items())
        return self._listed

    def forget(self) -> None:
        """Read everything again, because others write and remove files."""
        self._held.clear()

    def put(self, name: str, content: bytes) -> None:
        """Write or replace a file, as a whole or not at all."""
        self.store.put(f"{LOG}/{name}", content)


def moved_on(
    files: LogFiles,
    found: Snapshot,
    seen: Callable[[int, Actions], None] = lambda _version, _actions: None,
) -> Snapshot:
    """Apply all commits that follow a version.

    Args:
        files: The log.
        found: The version.
        seen: Called with each commit.

    Raises:
        DamagedFileError: A commit is damaged.
        UnknownLogError: This package cannot read it.
        OSError: It cannot be read.
    """
    commits: list[Actions] = []
    # Until the next one does not exist.
    with suppress(FileNotFoundError):
        while True:
            version = found.version + 1 + len(commits)
            commits.append(files.commit(version))
            seen(version, commits[-1])
    return found.after(*commits) if commits else found


def are_there(store: Store, files: Sequence[DataFile]) -> bool:
    """Whether data files still exist: others may have removed them, because no version names them yet."""
    try:
        store.together(lambda file: store.get(file.path, span=(0, 1)), files)
    except FileNotFoundError:
        return False
    return True


def removed_if_late(store: Store, version: int, operation_id: int) -> bool:
    """Whether a commit came too late; if so, remove it.

    Args:
        store: The files of its table.
        version: The version that the commit has made.
        operation_id: The operation id of the commit.

    Raises:
        CommitUnknownError: Nobody can find out whether it came too late.
    """
    unknown = f"it is not known whether version {version} came too late: "
    try:
        after = commit_name(version - 2) if version > 1 else ""
        is_late = _is_late(version, LogFiles(store).list_from(after))
        if is_late:
            log.warning("%s: version %d came too late, and is removed", store, version)
            store.delete([f"{LOG}/{commit_name(version)}"])
    except OSError as error:
        raise CommitUnknownError(unknown + reason_of(error), operation_id) from error
    if is_late is None:
        raise CommitUnknownError(f"{unknown}the log was shortened since", operation_id)
    return is_late


def _is_late(version: int, listed: Mapping[str, Entry]) -> bool | None:
    """Whether others had committed and removed a version before this commit of it; `None` if nobody can tell.

    Commits are removed only before a checkpoint that is as old as their retention. So a later version that is older than
    the commit proves it.

    Args:
        version: The version.
        listed: The files of the log from the version before it on.
    """
    mine = listed.get(commit_name(version))
    later = [file.at for file in listed.values() if (version_of(file.name) or 0) > version]
    if mine is not None and min(later, default=mine.at) < mine.at - SKEW:
        return True
    is_led_to = version == 0 or commit_name(version - 1) in listed
    return False if mine is not None and is_led_to else None
