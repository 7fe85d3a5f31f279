"""The method `create_tube`, which all queue classes share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.runtime.events import Callback

__all__ = ["CreatesTubes"]

T = TypeVar("T")


class CreatesTubes(ABC, Generic[T]):
    """A queue class that creates tubes."""

    def create_tube(  # noqa: PLR0913  (the contract)
        self,
        name: str,
        type: str = "fifo",
        *,
        if_not_exists: bool = False,
        temporary: bool = False,
        on_task_change: Callback | None = None,
        pri: int | None = None,
        ttl: float | None = None,
        ttr: float | None = None,
        delay: float | None = None,
        capacity: int | None = None,
        storage_mode: str = "default",
        schema: str | None = None,
        max_attempts: int | None = None,
        change_feed: bool = False,
    ) -> T:
        """Create a tube, with a Delta table of the same name.

        Args:
            name: 1 to 32 of `A-Za-z0-9_`, not starting with `_`; unique without regard to case.
            type: Name of a driver.
            if_not_exists: Whether to return an existing tube of this name and type.
            temporary: Whether to drop the tube when this queue closes, or when its session is dead.
            on_task_change: See `Tube.on_task_change`.
            pri: Default priority of its tasks.
            ttl: Default time to live in seconds, >= 0.
            ttr: Default time to run in seconds, > 0; the task's ttl by default.
            delay: Default delay in seconds, >= 0.
            capacity: Most tasks that it may hold (limfifottl).
            storage_mode: `"default"` or `"ready_buffer"` (utube types).
            schema: DDL of a typed payload; JSON by default. `CHAR`, `VARCHAR`, `TIMESTAMP_NTZ` and
                `VARIANT` need a Spark session. Its columns must not have the names of a batch's
                columns or of a put's options.
            max_attempts: Bury a task instead of making it ready again after this many takes, 1 to
                2147483647.
            change_feed: Enable Delta's change data feed. It needs a Spark session. Spark then runs
                the row verbs of this tube, also with the native engine.

        Returns:
            The tube.

        Raises:
            InvalidOptionError: A bad name, type, option or value; nothing was written.
            TubeExistsError: A tube has this name (with `if_not_exists`: a tube of another type).
            StoreError: Another table or file is in the place of its table, or it needs Spark and
                the queue has no session; no tube was created.

        Commits: the creation of the table, then 1 to the registry. If a dropped tube had the name,
        2 to the registry, and in between 1 to the table of the earlier tube, or 2 if its change
        feed is switched on or off; if this is interrupted, the next program that uses the name
        finishes it. A temporary tube needs a lease: at most 1 to the sessions. Conflicts with other
        creations and drops, and is retried.
        """
        options = {
            "if_not_exists": if_not_exists,
            "temporary": temporary,
            "on_task_change": on_task_change,
            "pri": pri,
            "ttl": ttl,
            "ttr": ttr,
            "delay": delay,
            "capacity": capacity,
            "storage_mode": storage_mode,
            "schema": schema,
            "max_attempts": max_attempts,
            "change_feed": change_feed,
        }
        return self._create(name, type, options)

    @abstractmethod
    def _create(self, name: str, type: str, options: Mapping[str, Any]) -> T:
        """Create a tube from options that are not checked yet."""
