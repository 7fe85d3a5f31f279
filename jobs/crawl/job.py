"""The job of a crawler, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job of a crawler.

    Attributes:
        location: The folder of the queue and of the page table.
        seeds: Normalised URLs to begin with. Only their hosts are visited, and those of earlier seeds.
        max_pages: The most pages of the location at the end; `None` is unlimited.
        max_depth: The most links from a seed to a page; `None` is unlimited.
        consumers: The number of consumers, a thread and a session each, >= 1.
        batch_size: The most tasks of a batch, >= 1; commits are per batch, so larger batches are faster.
        threads: The number of parallel fetches of a batch, >= 1.
        timeout: The most seconds for a page, > 0.
        retry_delay: Seconds before a failure is tried again, > 0.
        lease: Seconds after a crawler's last sign of life before its tasks come back, > 0.
        agent: The name by which the crawler introduces itself.
    """

    location: str
    seeds: Sequence[str]
    max_pages: int | None = None
    max_depth: int | None = None
    consumers: int = 1
    batch_size: int = 400
    threads: int = 16
    timeout: float = 10.0
    retry_delay: float = 30.0
    lease: float = 60.0
    agent: str = "tubeq-crawl/1"


class Ending(StrEnum):
    """Why a crawl ended. If consumers ended for several reasons, the first one in this order counts."""

    FINISHED = "Finished: every page within reach was fetched, refused or buried."
    LIMIT = "The limit of pages is reached; a higher --max-pages goes on from here."
    STOPPED = "Stopped, and nothing is lost: the same --location goes on from here."
