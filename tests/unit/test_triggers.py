"""Which triggers the streams of programs ask for: some platforms have `availableNow` only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark.streams.process import start_ticking

if TYPE_CHECKING:
    from collections.abc import Callable


class Stream:
    """Stands in for a session and for what makes a stream of it; keeps the triggers."""

    def __init__(self) -> None:
        self.triggers: list[dict[str, Any]] = []
        self.streams = 0

    @property
    def readStream(self) -> Stream:  # noqa: N802  (as Spark has it)
        """Begin a stream."""
        self.streams += 1
        return self

    @property
    def writeStream(self) -> Stream:  # noqa: N802
        """Say what becomes of it."""
        return self

    def trigger(self, **options: Any) -> Stream:
        """Say when it runs."""
        self.triggers.append(options)
        return self

    def __getattr__(self, _name: str) -> Callable[..., Stream]:
        return lambda *_args, **_options: self


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [(None, {"availableNow": True}), ("1 second", {"processingTime": "1 second"})],
)
def test_start_ticking_when_it_is_to_run_once_asks_for_available_now_only(
    trigger: str | None, expected: dict[str, Any]
) -> None:
    spark = Stream()

    start_ticking(spark, lambda _goes_on: None, trigger)  # type: ignore[arg-type]

    assert spark.triggers == [expected]
