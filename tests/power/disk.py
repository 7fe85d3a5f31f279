"""Mounts ext4 from a file by a loop device, and cuts its power; this needs root and Linux."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import time
import uuid
from pathlib import Path
from typing import Self

import pytest

#: EXT4_IOC_SHUTDOWN, and its flag that writes nothing more, the file system's journal included.
_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2
#: Directory entries and removals are durable after a second rather than after five.
_OPTIONS = "loop,noatime,commit=1"
#: Seconds for processes that were killed to let go of their files.
_PATIENCE = 20.0


def require_root() -> None:
    """Skip a test of an ordinary user. For root nothing is skipped: what does not work there fails."""
    if os.geteuid() != 0:
        pytest.skip("POWER CUTS ARE NOT TESTED: only root can mount a file system")


class Disk:
    """Such a file system, mounted for the time of a block."""

    def __init__(self, directory: Path, megabytes: int = 256) -> None:
        """Keep it in a new directory."""
        self._image = _memory(directory, megabytes << 20) / f"tubeq-{uuid.uuid4()}.img"
        #: Where it is mounted.
        self.path = directory / "disk"
        self._megabytes = megabytes

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(self._megabytes << 20)
        _run("mkfs.ext4", "-q", "-F", "-m0", str(self._image))
        self._mount()
        return self

    def __exit__(self, *_: object) -> None:
        _run("umount", "-l", str(self.path))
        self._image.unlink()

    def sync(self) -> None:
        """Write down all that there is."""
        _run("sync", "-f", str(self.path))

    def cut(self) -> None:
        """Cut its power: from now on every call fails, and what was not written down is gone."""
        directory = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(directory)

    def restart(self) -> None:
        """Mount it again; whoever has used it is gone."""
        until = time.monotonic() + _PATIENCE
        # Not lazily: the same file system would be mounted once more, cut as it is.
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("umount", str(self.path))
                break
            if time.monotonic() > until:
                _run("umount", str(self.path))
            time.sleep(0.05)
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", _OPTIONS, str(self._image), str(self.path))


def _memory(directory: Path, size: int) -> Path:
    """A directory in memory that has room, where other programs' writes hold up no sync; else this one."""
    memory = Path("/dev/shm")
    is_large = memory.is_dir() and shutil.disk_usage(memory).free > 2 * size
    return memory if is_large else directory


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        error = subprocess.CalledProcessError(done.returncode, command)
        error.add_note(done.stderr)
        raise error
