"""Models a file system, and the states that a crash may leave on its disk, for machines that cannot mount one.

It follows which contents and which names a program has synced. Of everything else a crash leaves any
part: a new name may be there or not, a removed one may be back, a content that was not synced may be
empty, cut or whole, each independent of the others. No file system is worse.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tubeq_spark.storage.store import local_files

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    import pytest


#: The names in directories, by the directory's path below the root: files have a number, directories none.
Names = dict[str, dict[str, int | None]]


@dataclass(frozen=True)
class Moment:
    """A moment at which the power may be cut.

    Attributes:
        ended: How many verbs had been acknowledged.
        flushed: How many, when the last sync of the whole file system began.
        names: What directories hold, as programs see them.
        contents: What files hold, by their numbers.
        synced_names: What of the names is on the disk.
        synced_contents: What of the contents is on the disk.
    """

    ended: int
    flushed: int
    names: Names
    contents: dict[int, bytes]
    synced_names: Names
    synced_contents: dict[int, bytes]

    def states(self, dice: random.Random, mixed: int) -> Iterator[dict[str, bytes | None]]:
        """States that the disk may be in: the least, the names without their contents, and some mixed.

        Yields:
            The contents of files and, as `None`, directories by their paths below the root.
        """
        yield self._state(lambda *_: False, lambda _: b"")
        yield self._state(lambda *_: True, lambda _: b"")
        for _ in range(mixed):
            likely = dice.random()
            yield self._state(
                lambda *_: dice.random() < likely,  # noqa: B023  (it is used at once)
                lambda whole: dice.choice((b"", whole[: len(whole) // 2], whole)),
            )

    def _state(
        self, is_new: Callable[[], bool], cut: Callable[[bytes], bytes]
    ) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        left = [""]
        while left:
            directory = left.pop()
            for name, number in self._listed(directory, is_new).items():
                path = os.path.join(directory, name)  # noqa: PTH118  (texts are enough)
                found[path] = None if number is None else self._content(number, cut)
                if number is None:
                    left.append(path)
        return found

    def _listed(self, directory: str, is_new: Callable[[], bool]) -> dict[str, int | None]:
        """The names of a directory: each one that was added, removed or replaced is so or is not yet."""
        now, then = self.names.get(directory, {}), self.synced_names.get(directory, {})
        listed: dict[str, int | None] = {}
        for name in sorted({*now, *then}):
            source = now
            if now.get(name, -1) != then.get(name, -1) and not is_new():
                source = then
            if name in source:
                listed[name] = source[name]
        return listed

    def _content(self, number: int, cut: Callable[[bytes], bytes]) -> bytes:
        synced, whole = self.synced_contents.get(number), self.contents.get(number)
        if synced is None:
            return cut(whole or b"")
        return synced


@dataclass
class Recorder:
    """Follows a directory, and notes a moment before and after each sync.

    Attributes:
        root: The directory.
        keep: Another one on the same file system: no number of a file is used again.
        ended: How many verbs were acknowledged; the program counts.
        moments: What was noted.
    """

    root: Path
    keep: Path
    ended: int = 0
    moments: list[Moment] = field(default_factory=list)
    _flushed: int = 0
    _names: Names = field(default_factory=dict)
    _contents: dict[int, bytes] = field(default_factory=dict)
    _changing: threading.RLock = field(default_factory=threading.RLock)

    def follow(self, patch: pytest.MonkeyPatch) -> None:
        """Note what is synced from now on; the disk itself is left in peace."""

        def sync(file: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{file}"))  # noqa: PTH115
            if path.is_relative_to(self.root):
                self._around(lambda: self._sync(path))

        def sync_all(path: str | Path) -> None:
            if not Path(path).exists():
                raise FileNotFoundError(path)
            if Path(path).is_relative_to(self.root):
                self._around(self._sync_all)

        patch.setattr(os, "fsync", sync)
        patch.setattr(local_files, "sync_file_system", sync_all)

    def _around(self, sync: Callable[[], None]) -> None:
        with self._changing:
            self.note()
            sync()
            self.note()

    def note(self) -> None:
        """Note the moment that is now."""
        with self._changing:
            names, contents = self._look()
            synced = {directory: dict(held) for directory, held in self._names.items()}
            self.moments.append(
                Moment(self.ended, self._flushed, names, contents, synced, dict(self._contents))
            )

    def _sync(self, path: Path) -> None:
        if path.is_dir():
            self._names[self._below(path)] = _listing(path)
        else:
            self._contents[self._number(path)] = path.read_bytes()

    def _sync_all(self) -> None:
        self._flushed = self.ended
        self._names, self._contents = self._look()

    def _look(self) -> tuple[Names, dict[int, bytes]]:
        names: Names = {}
        contents: dict[int, bytes] = {}
        for directory, _, files in os.walk(self.root):
            names[self._below(Path(directory))] = _listing(Path(directory))
            for file in files:
                path = Path(directory) / file
                contents[self._number(path)] = path.read_bytes()
        return names, contents

    def _number(self, path: Path) -> int:
        number = path.stat().st_ino
        kept = self.keep / str(number)
        if not kept.exists():
            kept.hardlink_to(path)
        return number

    def _below(self, path: Path) -> str:
        return "" if path == self.root else str(path.relative_to(self.root))


def _listing(directory: Path) -> dict[str, int | None]:
    with os.scandir(directory) as entries:
        return {each.name: None if each.is_dir() else each.inode() for each in entries}


def restore(state: dict[str, bytes | None], place: Path) -> None:
    """Write a state of the disk to a directory, as if after the next boot."""
    for path, content in state.items():
        target = place / path
        if content is None:
            target.mkdir(parents=True)
        else:
            target.write_bytes(content)
