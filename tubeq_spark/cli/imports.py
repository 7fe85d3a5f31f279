"""Makes the imports of a call faster, because they take most of its time."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Packages that Arrow imports if they are installed, and does not need.
NOT_NEEDED = ("numpy", "pandas")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Import modules without garbage collections, because modules are no garbage.

    Collections during the imports and at the end take a fifth of the CPU time of `tubeq --help`
    (0.131 s, 0.106 s without; n = 9), and a third if Spark's modules are imported, too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def leave_out(*packages: str) -> Callable[[], None]:
    """Make imports of some packages fail, as if they were not installed, until the function that it returns is called.

    This is only for a process that does one thing and does not need them.
    """
    finder: Any = _LeftOut(frozenset(packages))
    sys.meta_path.insert(0, finder)
    return lambda: sys.meta_path.remove(finder)


class _LeftOut:
    # `importlib.abc`, with a base class for finders, is slow to import.
    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def find_spec(self, name: str, _path: object, _target: object = None) -> None:
        if name in self._packages:
            msg = f"{name} is left out"
            raise ModuleNotFoundError(msg, name=name)
