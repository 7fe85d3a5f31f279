"""A batch as a context manager: leaving it acks the remaining tasks, an exception releases them."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import Self

from tubeq_spark.errors import NotTakenError

__all__ = ["WithBlock"]


class WithBlock(ABC):
    """A batch as a context manager."""

    @abstractmethod
    def ack(self) -> int:
        """Ack the remaining tasks."""

    @abstractmethod
    def release(self) -> int:
        """Release the remaining tasks."""

    @property
    @abstractmethod
    def _is_left(self) -> bool:
        """Whether tasks remain in the batch."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if not self._is_left:
            return
        if error_type is None:
            self.ack()
        else:
            # If a lease has ended, the tasks are ready again; raise the error of the block.
            with contextlib.suppress(NotTakenError):
                self.release()
