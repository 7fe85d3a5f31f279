"""Makes the imports of a call short, which are most of it."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What Arrow imports wherever it is installed, and does without elsewhere.
NOT_NEEDED = ("numpy", "pandas")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Import without looking for garbage: modules are none.

    To look for some among them, now and at the end, is a fifth of the CPU time of `tubeq --help`
    (0.131 s, 0.106 s without; n = 9), and a third where Spark's modules are imported, too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def leave_out(*packages: str) -> None:
    """Have packages found missing from now on, which others import wherever they are installed.

    For a process that does one thing and does not need them: in any other they would be missed.
    """
    sys.meta_path.insert(0, _LeftOut(frozenset(packages)))


class _LeftOut(MetaPathFinder):
    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def find_spec(self, name: str, _path: object, _target: object = None) -> None:
        if name in self._packages:
            msg = f"{name} is left out"
            raise ModuleNotFoundError(msg, name=name)
