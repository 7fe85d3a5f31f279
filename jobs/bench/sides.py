"""What is measured on one engine: a queue, and the bare calls of what that engine stands on."""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import TYPE_CHECKING, Protocol

from bench.plan import Engine
from tubeq_spark.programs import BadUseError, how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.plan import Form, Session
    from bench.subjects import Subject
    from bench.subqueues import Load
    from tubeq_spark import Batch, Queue, Tube

__all__ = ["Side", "choose"]

_PACKAGES = {Engine.NATIVE: "deltalake", Engine.SPARK: "pyspark"}


class Side(Protocol):
    """A queue on one engine, and tables of its own beside it."""

    session: Session
    #: At a location of this run alone.
    queue: Queue

    def versions(self) -> dict[str, str]:
        """The versions of what has a say in the numbers."""
        ...

    def version(self, tube: Tube) -> int:
        """The latest version of a tube's table."""
        ...

    def subject(self, tube: Tube, form: Form, batch: int) -> Subject:
        """The verbs of a tube."""
        ...

    def floor(self, tube: Tube, form: Form, batch: int) -> Subject:
        """The bare calls, on a new table of the same shape as a tube's."""
        ...

    def filling(self, tube: Tube, load: Load) -> Callable[[], int]:
        """Puts all tasks of a load, and returns how many."""
        ...

    def take(self, tube: Tube, n: int, per_utube: int) -> Batch:
        """Take as a consumer does that has a batch at a time, its tasks at hand."""
        ...


def choose(asked: str | None) -> tuple[Engine, ...]:
    """The engines to measure: those asked for, or else those that are here.

    Args:
        asked: "native", "spark" or "both"; `None`: what there is.

    Raises:
        BadUseError: One is not here.
    """
    here = tuple(engine for engine in Engine if _is_here(engine))
    wanted = here or tuple(Engine)
    if asked is not None:
        wanted = tuple(Engine) if asked == "both" else (Engine(asked),)
    for engine in wanted:
        if importlib.util.find_spec(_PACKAGES[engine]) is None:
            msg = f"{_PACKAGES[engine]} is not installed: {how_to_install(engine)}"
            raise BadUseError(msg)
    return wanted


def _is_here(engine: Engine) -> bool:
    if importlib.util.find_spec(_PACKAGES[engine]) is None:
        return False
    # Whoever asks for Spark by its name is told what it misses.
    return engine is Engine.NATIVE or "JAVA_HOME" in os.environ or shutil.which("java") is not None
