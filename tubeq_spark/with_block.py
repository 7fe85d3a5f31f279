"""What leaving a `with` block does to a batch: what is left of it is acked, or released on an exception."""

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
        """Remove what is left of it for good."""

    @abstractmethod
    def release(self) -> int:
        """Give what is left of it back."""

    @property
    @abstractmethod
    def _is_left(self) -> bool:
        """Whether anything is left of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if not self._is_left:
            return
        if error_type is None:
            self.ack()
        else:
            # When the lease has ended the tasks are back in the tube; the error is the story.
            with contextlib.suppress(NotTakenError):
                self.release()
