"""Case 090: asking which tubes there are (the grants of that file are the storage's business)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubeq_spark import Queue


def test_tubes_follow_create_and_drop(queue: Queue, other: Queue) -> None:
    """Case 090-17."""

    def seen() -> list[object]:
        return [queue.tubes(), *(name in other for name in ("test1", "test2", "test3"))]

    assert seen() == [[], False, False, False]
    test2 = queue.create_tube("test2", "fifo")
    test1 = queue.create_tube("test1", "fifottl")
    assert seen() == [["test1", "test2"], True, True, False]
    test2.drop()
    assert seen() == [["test1"], True, False, False]
    test1.drop()
    assert seen() == [[], False, False, False]
