"""The settings of a crawl, and its reports: its steps, its progress, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from tubeq_spark.jobs.crawler.fetch import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a crawl.

    Attributes:
        max_pages: The most pages of the location at the end; `None` is unlimited.
        max_depth: The most links from a seed to a page; `None` is unlimited.
        batch_size: The most tasks in a batch, >= 1; commits are per batch, so larger batches are faster.
        partitions: The number of parts of a batch that are fetched in parallel, >= 1.
        retry_delay: Seconds before a failure is tried again, >= 0.
        agent: The name by which the crawler introduces itself.
        limits: The limits of one fetch.
    """

    max_pages: int | None = None
    max_depth: int | None = None
    batch_size: int = 400
    partitions: int = 4
    retry_delay: float = 30.0
    agent: str = "tubeq-crawl/1"
    limits: Limits = field(default_factory=Limits)


class Ending(StrEnum):
    """Why a crawl ended. If consumers ended for several reasons, the first one in this order counts."""

    FINISHED = "finished"
    LIMIT = "limit"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Progress:
    """The progress of a crawl: all pages, failed fetches of this run, tasks by state."""

    pages: int
    failures: int
    tasks: Mapping[str, int]


class Watcher(Protocol):
    """Gets notified of the steps of a crawl, from the threads of its consumers."""

    def step(self, consumer: int, name: str) -> None:
        """Called when a consumer, counted from 1, begins the step `name`."""

    def progress(self, progress: Progress) -> None:
        """Called when a consumer has looked for a batch; never by two threads at once."""
