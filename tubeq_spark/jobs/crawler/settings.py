"""The settings of a crawl, and what it reports: its steps, its progress, how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from tubeq_spark.jobs.crawler.fetch import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to crawl.

    Attributes:
        max_pages: How many pages the location may have in the end; `None` is unlimited.
        max_depth: How many links away from the seeds it goes; `None` is unlimited.
        batch_size: Tasks in a batch, >= 1; commits are per batch, so fewer and larger are faster.
        partitions: Parts of a batch that are fetched at the same time, >= 1.
        retry_delay: Seconds before a failure is tried again, >= 0.
        agent: The name by which the crawler introduces itself.
        limits: What one fetch may cost.
    """

    max_pages: int | None = None
    max_depth: int | None = None
    batch_size: int = 400
    partitions: int = 4
    retry_delay: float = 30.0
    agent: str = "tubeq-crawl/1"
    limits: Limits = field(default_factory=Limits)


class Ending(StrEnum):
    """Why a crawl ended; what comes first is said of consumers that ended for several reasons."""

    FINISHED = "finished"
    LIMIT = "limit"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Progress:
    """Where a crawl stands: pages in all, failed fetches of this run, tasks by state."""

    pages: int
    failures: int
    tasks: Mapping[str, int]


class Watcher(Protocol):
    """Is notified of what the crawl does, from the threads of its consumers."""

    def step(self, consumer: int, name: str) -> None:
        """A consumer, counted from 1, now does `name`."""

    def progress(self, progress: Progress) -> None:
        """A consumer has looked for a batch; one at a time tells it."""
