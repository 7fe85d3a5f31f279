"""A model of a file system that loses its power: what of a directory may be there after that.

All that a process does below a directory is seen: what it creates, writes, links, renames and removes, and
what it syncs. The content of a file is durable as it was at its last sync, a name as it was when its
directory was synced. All else may be there or not. So a power cut leaves one of many states; those that
are asked for are

- `SYNCED`: only what was synced,
- `REMOVED`: the same, and all removals came through,
- `EMPTY` and `HALF`: all names came through, and files that were not synced are empty, or cut in half,
- any number: of each name and each file either, at random.
"""

from __future__ import annotations

import os
import random
import stat
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tubeq_spark.storage import disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pytest

__all__ = ["EMPTY", "HALF", "KINDS", "REMOVED", "SYNCED", "Files", "Recorder", "Sync", "write"]

SYNCED, REMOVED, EMPTY, HALF = "synced", "removed", "empty", "half"
KINDS = (SYNCED, REMOVED, EMPTY, HALF)
#: What may be left: the content of each file by its path; `None` for a directory.
Files: TypeAlias = "dict[str, bytes | None]"
#: The names in a directory, by what tells one file from another.
_Names: TypeAlias = "dict[str, int]"
#: Calls that change a directory, or make it durable.
_CALLS = ("fsync", "link", "replace", "rename", "unlink", "remove", "rmdir")


@dataclass(frozen=True, slots=True)
class Sync:
    """A sync.

    Attributes:
        path: What was synced, below the directory; empty: the file system as a whole, or the directory.
        is_whole: Whether it was the file system.
    """

    path: str
    is_whole: bool = False

    @property
    def kind(self) -> str:
        """What it was the sync of."""
        if self.is_whole:
            return "file system"
        name = self.path.rpartition("/")[2]
        for part, kind in _KINDS_OF_FILES:
            if part in name:
                return kind
        return ("parent of the location", "location", "table")[len(Path(self.path).parts)]


#: What the name of a file or directory tells of it.
_KINDS_OF_FILES = (
    ("_delta_log", "log"),
    ("_last_checkpoint", "pointer"),
    (".checkpoint.parquet", "checkpoint"),
    ("part-", "data file"),
    (".json", "commit"),
    ("=", "partition"),
)


@dataclass(slots=True)
class _Seen:
    """What was seen of the directory at one moment."""

    names: dict[int, _Names] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)


class Recorder:
    """Watches a directory. For threads."""

    def __init__(self, root: Path, leaves_out: Callable[[Sync], bool] = lambda _: False) -> None:
        """Watch a directory from now on; what is there is durable.

        Args:
            root: The directory.
            leaves_out: Which syncs do nothing.
        """
        self.root = root
        #: Called before each change and sync.
        self.at_event: Callable[[], None] = lambda: None
        #: Called after each sync.
        self.at_sync: Callable[[Sync], None] = lambda _: None
        self._leaves_out = leaves_out
        self._guard = threading.RLock()
        #: Opened, so that no number is used again: what tells one file from another.
        self._pinned: dict[int, int] = {}
        self._directories: set[int] = set()
        self._read: dict[int, tuple[tuple[int, int], bytes]] = {}
        self._root = os.stat(root).st_ino
        self._live = _Seen()
        self._durable = _Seen()
        self._look()
        self._sync_all()

    def close(self) -> None:
        """Watch no longer."""
        for file in self._pinned.values():
            os.close(file)

    @contextmanager
    def watching(self, patched: pytest.MonkeyPatch) -> Iterator[None]:
        """Watch what this process does in a block."""
        with patched.context() as patch:
            for name in _CALLS:
                patch.setattr(os, name, self._watched(getattr(os, name), name == "fsync"))
            patch.setattr(disk, "sync_file_system", self._sync_file_system)
            yield

    def state(self, kind: str | int) -> Files:
        """What may be left if the power is cut now; `kind` as this module tells, or a seed."""
        with self._guard:
            self._look()
            chosen = _Chosen(self._durable, self._live, kind)
            files: Files = {}
            self._fill(files, self._root, "", chosen)
            return files

    # -- what happens ----------------------------------------------------------------------

    def _watched(self, call: Callable[..., object], is_sync: bool) -> Callable[..., object]:  # noqa: FBT001
        def watched(first: object, *rest: object, **options: object) -> object:
            with self._guard:
                if not is_sync:
                    if self._is_ours(first):
                        self.at_event()
                    return call(first, *rest, **options)
                file = int(first)  # type: ignore[call-overload]
                path = Path(os.readlink(f"/proc/self/fd/{file}"))
                if not path.is_relative_to(self.root):
                    return call(first)
                self.at_event()
                self._synced(file, Sync(str(path.relative_to(self.root)).removeprefix(".")))
                return None

        return watched

    def _is_ours(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and str(path).startswith(str(self.root))

    def _synced(self, file: int, sync: Sync) -> None:
        if not self._leaves_out(sync):
            self._look()
            number = os.fstat(file).st_ino
            if number in self._live.names:
                self._durable.names[number] = dict(self._live.names[number])
            elif number in self._live.contents:
                self._durable.contents[number] = self._live.contents[number]
        self.at_sync(sync)

    def _sync_file_system(self, _path: str | Path) -> None:
        with self._guard:
            self.at_event()
            sync = Sync("", is_whole=True)
            if not self._leaves_out(sync):
                self._look()
                self._sync_all()
            self.at_sync(sync)

    def _sync_all(self) -> None:
        self._durable.names |= {number: dict(names) for number, names in self._live.names.items()}
        self._durable.contents |= self._live.contents

    # -- what is there -----------------------------------------------------------------------

    def _look(self) -> None:
        """See what is there now."""
        self._live = _Seen()
        pending = [(self._root, str(self.root))]
        while pending:
            number, directory = pending.pop()
            names: _Names = {}
            self._live.names[number] = names
            with os.scandir(directory) as found:
                for entry in found:
                    try:
                        what = entry.stat(follow_symlinks=False)
                        if what.st_ino not in self._pinned:
                            self._pinned[what.st_ino] = os.open(entry.path, os.O_PATH)
                    except FileNotFoundError:
                        continue
                    names[entry.name] = what.st_ino
                    if stat.S_ISDIR(what.st_mode):
                        self._directories.add(what.st_ino)
                        pending.append((what.st_ino, entry.path))
                    else:
                        self._live.contents[what.st_ino] = self._content(entry.path, what)

    def _content(self, path: str, what: os.stat_result) -> bytes:
        version = (what.st_size, what.st_mtime_ns)
        known = self._read.get(what.st_ino)
        if known is None or known[0] != version:
            known = self._read[what.st_ino] = (version, Path(path).read_bytes())
        return known[1]

    def _fill(self, files: Files, directory: int, path: str, chosen: _Chosen) -> None:
        for name, number in sorted(chosen.names(directory).items()):
            below = f"{path}{name}"
            if number in self._directories:
                files[below] = None
                self._fill(files, number, f"{below}/", chosen)
            else:
                files[below] = chosen.content(number)



class _Chosen:
    """One of the states that may be left."""

    def __init__(self, durable: _Seen, live: _Seen, kind: str | int) -> None:
        self._durable, self._live, self._kind = durable, live, kind
        self._random = random.Random(kind) if isinstance(kind, int) else None

    def names(self, directory: int) -> Mapping[str, int]:
        durable = self._durable.names.get(directory, {})
        live = self._live.names.get(directory, {})
        if self._kind == SYNCED:
            return durable
        if self._kind == REMOVED:
            return {name: number for name, number in durable.items() if name in live}
        if self._random is None:
            return live
        chosen = {
            name: self._random.choice((durable, live)).get(name)
            for name in sorted({*durable, *live})
        }
        return {name: number for name, number in chosen.items() if number is not None}

    def content(self, number: int) -> bytes:
        durable = self._durable.contents.get(number)
        live = self._live.contents.get(number, durable or b"")
        if self._kind in (SYNCED, REMOVED):
            return durable or b""
        if durable == live:
            return live
        half, kind = live[: len(live) // 2], self._kind
        if self._random is not None:
            return self._random.choice((durable or b"", b"", half, live))
        return half if kind == HALF else b""


def write(files: Files, to: Path) -> None:
    """Write a state to a new directory."""
    to.mkdir(parents=True)
    for path, content in files.items():
        if content is None:
            (to / path).mkdir()
        else:
            (to / path).write_bytes(content)
