"""Creating a tube: what every queue object is asked in the same words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.runtime.events import Callback

__all__ = ["CreatesTubes"]

T = TypeVar("T")


class CreatesTubes(ABC, Generic[T]):
    """A queue object that makes tubes of a kind."""

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
        """Create a tube, and its Delta table under its name.

        Args:
            name: 1 to 32 of `A-Za-z0-9_`, not starting with `_`; unique without regard to case.
            type: Name of a driver.
            if_not_exists: Return the tube of this name and type if there is one.
            temporary: Drop it when this queue closes, or its session is found dead.
            on_task_change: See `Tube.on_task_change`.
            pri: Default priority of its tasks.
            ttl: Default life in seconds, >= 0.
            ttr: Default time to run in seconds, > 0; the task's ttl by default.
            delay: Default delay in seconds, >= 0.
            capacity: Tasks it may hold (limfifottl).
            storage_mode: `"default"` or `"ready_buffer"` (utube types).
            schema: DDL of a typed payload; JSON by default. `CHAR`, `VARCHAR`, `TIMESTAMP_NTZ` and
                `VARIANT` need a Spark session. Its columns have other names than those of a batch and
                of a put's options.
            max_attempts: Bury a task instead of readying it after so many takes, 1 to 2147483647.
            change_feed: Keep Delta's change data feed. It needs a Spark session, which then runs the
                row verbs of this tube, whatever the queue's engine is.

        Returns:
            The tube.

        Raises:
            InvalidOptionError: A bad name, type, option or value; nothing was written.
            TubeExistsError: The name is in use (with `if_not_exists`: by another type).
            StoreError: Something else is in the place of its table, or it needs Spark and there is no
                session; no tube was made.

        Commits: the creation of the table, then 1 to the registry. Where the name was in use before,
        2 to the registry, and in between 1 to the table that the earlier tube left, 2 when its change
        feed is switched; if it stops there, whoever uses the name next goes on. A temporary tube needs
        a lease: at most 1 to the sessions. Conflicts with other creations and drops, and is then
        retried.
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
        """Create a tube, by options that were not looked at yet."""
