"""Ends processes between any two system calls at tables on local files, and proves the order of their syncs.

The files are real, in memory. What a call changes is copied to the simulated storage, whose journal is checked.
"""

from __future__ import annotations

import builtins
import errno
import json
import os
import re
import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.simulation.line import Finding
from tests.simulation.sim_client import EVERY, SimBackground, virtual_time
from tests.simulation.sim_store import Faults, SimStore
from tubeq_spark.errors import CommitUnknownError, StoreError
from tubeq_spark.storage.durability import synced_log
from tubeq_spark.storage.durability.synced_log import synced_log_of
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.tidying import LocalRetention
from tubeq_spark.storage.native.plain_table import LocalTable
from tubeq_spark.storage.store import local_files
from tubeq_spark.storage.store.local_files import SyncError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from random import Random

    import pyarrow as pa

    from tests.simulation.sim_store import Process
    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.log.log_reader import Base
    from tubeq_spark.storage.log.next_version import Change
    from tubeq_spark.storage.log.snapshot import Snapshot

#: The calls of the system before which a process may be paused or end; the first ones change files.
_CALLS = ("link", "unlink", "replace", "rename", "rmdir", "mkdir", "stat", "listdir")
#: Those that may fail; a link that fails may be there.
_MAY_FAIL = ("link", "replace", "mkdir")
_LOG_FILE = re.compile(r".*/_delta_log/(\d{20})\.(json|checkpoint\.parquet)")


class LockedError(StoreError):
    """Another process holds the lock of the table. A real one waits; here it does something else."""


class DiskStore(SimStore):
    """A storage whose files are real, and which knows what a power cut would leave of them."""

    def __init__(self, rng: Random) -> None:
        """Begin with an empty directory."""
        super().__init__(rng)
        memory = "/dev/shm"
        found = tempfile.mkdtemp(prefix="tubeq-sim-", dir=memory if Path(memory).is_dir() else None)
        self.root = found
        #: The inodes of files whose contents are synced, and the synced names.
        self._contents: set[int] = set()
        self._names: set[str] = set()
        self._inodes: dict[str, int] = {}
        self._checked = -1
        self._is_inside = False

    def write(self, process: str, name: str, content: bytes) -> str:
        """Write or replace a file."""
        del process
        with self._inside():
            path = Path(self.root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.copy()
        return self.files[name].tag

    def remove(self, process: str, names: Iterable[str]) -> None:
        """Remove files."""
        del process
        with self._inside():
            for name in names:
                Path(self.root, name).unlink(missing_ok=True)
        self.copy()

    @contextmanager
    def _inside(self) -> Iterator[None]:
        before, self._is_inside = self._is_inside, True
        try:
            yield
        finally:
            self._is_inside = before

    def copy(self) -> None:
        """Copy to the storage what has changed on the disk, with the time of the simulation."""
        with self._inside():
            who = "other" if self.current is None else self.current.name
            found = {p: p.stat().st_ino for p in Path(self.root).rglob("*") if p.is_file()}
            there = {str(path.relative_to(self.root)): inode for path, inode in found.items()}
            super().remove(who, [name for name in [*self.files] if name not in there])
            for name in sorted(there):
                if self._inodes.get(name) != there[name]:
                    path = Path(self.root, name)
                    super().write(who, name, path.read_bytes())
                    os.utime(path, (self.now, self.now))
                    self._names.discard(name)
            self._inodes = there
            self._contents &= {*there.values()}

    # -- what is on the disk -----------------------------------------------------------------------

    def sync_file(self, path: str | Path) -> None:
        """Sync the contents of a file."""
        self._step(f"sync {path}")
        self.copy()
        with self._inside():
            self._contents.add(Path(path).stat().st_ino)

    def sync_directory(self, path: str | Path) -> None:
        """Sync the names in a directory."""
        self._step(f"sync names {path}")
        self.copy()
        with self._inside():
            self._names |= {os.path.relpath(found, self.root) for found in Path(path).iterdir()}

    def sync_all(self, path: str | Path) -> None:
        """Sync everything."""
        self._step(f"sync all {path}")
        self.copy()
        with self._inside():
            for found in Path(self.root).rglob("*"):
                self._names.add(str(found.relative_to(self.root)))
                self._contents.add(found.stat().st_ino)

    def is_durable(self, name: str) -> bool:
        """Whether a file is as it is after a power cut, too."""
        path = Path(name)
        names = {str(path), *(str(p) for p in path.parents if len(p.parts) > 2)}
        return names <= self._names and self._inodes.get(name) in self._contents

    def check_synced(self, table: str, version: int) -> None:
        """Check that a version and all before it are on the disk."""
        for number in range(self._checked + 1, version + 1):
            name = f"{table}/_delta_log/{number:020}.json"
            if name in self.files:
                actions = [json.loads(line) for line in self.files[name].content.splitlines()]
                added = [f"{table}/{a['add']['path']}" for a in actions if "add" in a]
                for file in (name, *(path for path in added if path in self.files)):
                    if not self.is_durable(file):
                        raise Finding(f"{file} of an acknowledged version is not on the disk")
        self._checked = max(self._checked, version)

    def _check_call(self, call: str, paths: tuple[str, ...]) -> None:
        """Check the order of a change of names and the syncs before it."""
        if call == "link" and Path(paths[0]).stat().st_ino not in self._contents:
            raise Finding("a commit gets its name before its content is on the disk")
        found = _LOG_FILE.fullmatch(paths[0]) if call == "unlink" else None
        if found is not None:
            later = [
                _LOG_FILE.fullmatch(f"/{name}") for name in self.files if self.is_durable(name)
            ]
            if not any(f and f[2] != "json" and int(f[1]) > int(found[1]) for f in later):
                raise Finding(f"{paths[0]} is removed before a checkpoint is on the disk")

    # -- calls of the system -----------------------------------------------------------------------

    def _step(self, told: str) -> None:
        if self.current is not None and not self._is_inside:
            self.current.step(told.replace(self.root, ""))
            self.note(self.current.name, told.replace(self.root, ""))
            if told.startswith("sync") and self.current.fails_perhaps():
                raise OSError(errno.EIO, "the disk fails")

    def stepped(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """A call of the system before which a process may be paused or end."""

        def run(path: Any, *rest: Any, **more: Any) -> Any:
            if self._is_inside or self.current is None or not str(path).startswith(self.root):
                return real(path, *rest, **more)
            self._step(f"{call} {path}")
            with self._inside():
                self._check_call(call, (str(path), *map(str, rest)))
            fails = call in _MAY_FAIL and self.current.fails_perhaps()
            try:
                if not fails or (call == "link" and self.rng.random() < 0.5):
                    done = real(path, *rest, **more)
            finally:
                if call in _CALLS[:4]:
                    self.copy()
            if fails:
                raise OSError(errno.EIO, "the disk fails", str(path))
            return done

        return run


class _LogsOfProcesses:
    """What a process remembers of the logs that it syncs."""

    def __init__(self, world: SimStore) -> None:
        self._world = world

    def _of_now(self) -> dict[str, Any]:
        assert self._world.current is not None
        found: dict[str, Any] = self._world.current.memory.setdefault("logs", {})
        return found

    def get(self, key: str) -> Any:
        return self._of_now().get(key)

    def __setitem__(self, key: str, value: object) -> None:
        self._of_now()[key] = value


class LocalTables:
    """Opens tables of local files."""

    #: Answers of the system are not lost.
    faults = (
        Faults(crash=0.003, pause=0.002),
        Faults(refused=0.01, crash=0.001),
        Faults(pause=0.002),
    )

    def __init__(self, rng: Random, directory: str) -> None:
        """Make a storage for the table at a directory."""
        self.world, self._directory = DiskStore(rng), directory
        self.holder: Process | None = None

    @property
    def is_locked(self) -> bool:
        """Whether a process holds the table's lock."""
        return self.holder is not None

    def open(self, process: Process) -> LocalTable:
        """Open the table for a process."""
        process.memory.setdefault("background", SimBackground(process))
        directory = Path(self.world.root, self._directory)
        return _LockedTable(self, process, directory)

    @contextmanager
    def locked(self, process: Process) -> Iterator[None]:
        """Hold the table's lock in a block. The system releases it when the process ends."""
        if self.holder is not None:
            raise LockedError("the table is locked")
        self.holder = process
        try:
            yield
        finally:
            self.holder = None

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Let the modules of a table use the time, the calls and the syncs of the simulation."""
        world = self.world
        with ExitStack() as stack, virtual_time(world):
            for module, name, value in (
                (tidying, "EVERY", EVERY),
                (LocalRetention, "versions", 2 * EVERY),
                (synced_log, "_known", _LogsOfProcesses(world)),
                (local_files, "sync_file", world.sync_file),
                (local_files, "sync_directory", world.sync_directory),
                (local_files, "sync_file_system", world.sync_all),
                *((os, call, world.stepped(call, getattr(os, call))) for call in _CALLS),
            ):
                stack.enter_context(patch.object(module, name, value))
            reading = world.stepped("open", builtins.open)
            stack.enter_context(patch.object(local_files, "open", reading, create=True))
            try:
                yield
            finally:
                shutil.rmtree(world.root)


class _LockedTable(LocalTable):
    """A table of which each commit is synced before its lock is released."""

    def __init__(self, tables: LocalTables, process: Process, directory: Path) -> None:
        super().__init__(directory)
        self._tables, self._process = tables, process

    @contextmanager
    def writing(self, *, as_known: bool = False) -> Iterator[Base]:
        with self._tables.locked(self._process):
            synced_log_of(self.directory).require_trust()
            with super().writing(as_known=as_known) as found:
                yield found

    def create(self, before: Snapshot, change: Change) -> None:
        with self._tables.locked(self._process):
            super().create(before, change)

    def commit(self, base: Base, change: Change) -> Sequence[tuple[DataFile, pa.Table]]:
        written = super().commit(base, change)
        try:
            synced_log_of(self.directory).sync_commit()
        except SyncError as error:
            raise CommitUnknownError(str(error), change.note.operation_id) from error
        self._tables.world.check_synced(self._tables._directory, base.snapshot.version + 1)
        return written
