"""The log of a table on an object store, as one look reads it."""

from __future__ import annotations

import itertools
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.storage.durability.log_names import versions_of
from tubeq_spark.storage.native.delta_log import versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tubeq_spark.storage.store.store import Entry, Store

#: The directory of a log, below that of its table.
LOG = "_delta_log"
#: The clocks of a store's hosts differ by no more than so many seconds.
SKEW = 2.0
#: Commits are kept for so many hours at least.
KEPT_HOURS = 2
#: How many commits that follow a known one are asked for at the same time, at most.
AHEAD = 16


class StoreLog:
    """The log of a table as one look reads it. A file is read once, even if others change the log meanwhile."""

    def __init__(self, files: Store, uri: str, ahead: int = 0) -> None:
        """Read nothing yet. The first request for commits asks for `ahead` of them at the same time."""
        self._files, self._uri = files, uri
        self._held: dict[str, bytes | None] = {}
        self.tags: dict[str, str | None] = {}
        self._listed: dict[str, Entry] = {}
        #: The last version of a commit in a listing; `None`: nothing was listed.
        self._end: int | None = None
        #: How many commits the next request asks for, at least.
        self._asked = 0
        self._ahead = min(ahead, AHEAD)

    def __str__(self) -> str:
        return f"{self._uri}/{LOG}"

    def read(self, name: str) -> bytes:
        """The contents of a file."""
        if name not in self._held:
            self._fetch(name)
        content = self._held[name]
        if content is None:
            raise FileNotFoundError(f"{self}/{name}")
        return content

    def _fetch(self, name: str) -> None:
        names = [name]
        if name.endswith(".json"):
            first, count = int(name[:20]), max(self._asked, self._ahead, 1)
            # The first two requests ask for one commit each: mostly there are no more.
            self._asked = min(2 * count, AHEAD) if self._asked or count > 1 else 1
            self._ahead = 0
            if self._end is not None:
                count = min(self._end - first + 1, AHEAD)
            # A commit that is not in the listing did not exist.
            names = [versions.commit_name(first + n) for n in range(count)]
            self._held[name] = None
        self._fetch_all(names)

    def fetch(self, some: Iterable[int]) -> None:
        """Read the commits of some versions at the same time."""
        self._fetch_all([versions.commit_name(version) for version in some])

    def _fetch_all(self, names: Sequence[str]) -> None:
        for each, content in zip(names, self._files.together(self._get, names), strict=True):
            self._held[each] = content

    def _get(self, name: str) -> bytes | None:
        listed = self._listed.get(name)
        try:
            content, self.tags[name] = self._files.get(
                f"{LOG}/{name}", size=0 if listed is None else listed.size
            )
        except FileNotFoundError:
            return None
        return content

    def goes_on_after(self, version: int) -> bool:
        """Whether a listing has commits after a version, which others removed before they were read."""
        return self._end is not None and self._end > version

    def is_in_order(self) -> bool:
        """Whether the listed commits were written one after the other, so that none of them came too late."""
        times = [self._listed[versions.commit_name(v)].at for v in versions_of(self._listed)]
        return all(first <= then + SKEW for first, then in itertools.pairwise(times))

    def begin(self, version: int) -> int:
        """The first of the listed commits that lead to a version one after the other, without those that came too late."""
        listed = self._listed
        while version and (before := listed.get(versions.commit_name(version - 1))) is not None:
            after = listed.get(versions.commit_name(version))
            if after is not None and before.at > after.at + SKEW:
                break
            version -= 1
        return version

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        if name in self._listed:
            return True
        with suppress(FileNotFoundError):
            if name.endswith(".json"):
                # The caller reads a commit next, so it is read at once.
                self.read(name)
            else:
                self._files.get(f"{LOG}/{name}", span=(0, 1))
            return True
        return False

    def list_from(self, after: str | None) -> dict[str, Entry]:
        """List the files whose names come after a name."""
        self._listed = {file.name: file for file in self._files.list(LOG, after or "")}
        self._end = max(versions_of(self._listed), default=-1)
        self.tags.update((name, file.tag) for name, file in self._listed.items())
        return self._listed

    def names(self, *, whole: bool) -> tuple[Sequence[str], bool]:
        """The names of the log's files, and whether these are all. A missing log has none."""
        if whole:
            # Everything is read again, because others write and remove files.
            self._held.clear()
        last = None if whole else versions.pointer(self)
        # The files of that checkpoint, and those after it.
        after = None if last is None else f"{last['version']:020}"
        return list(self.list_from(after)), after is None

    def parquet(self, name: str) -> pa.NativeFile:
        """A Parquet file, opened to read."""
        return pa.BufferReader(self.read(name))

    @contextmanager
    def replacing(self, name: str) -> Iterator[pa.NativeFile]:
        """Write a file in a block. It appears as a whole after the block."""
        sink = pa.BufferOutputStream()
        yield sink
        self._files.put(f"{LOG}/{name}", sink.getvalue().to_pybytes())
