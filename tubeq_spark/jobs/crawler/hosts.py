"""The hosts of a crawl: those of its seeds, and the rules that each gives to crawlers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tubeq_spark.jobs.crawler.fetch import load_robots
from tubeq_spark.jobs.crawler.urls import Scope, host_of, is_page

if TYPE_CHECKING:
    from collections.abc import Iterable
    from urllib.robotparser import RobotFileParser

    from tubeq_spark.jobs.crawler.settings import Settings


class Hosts:
    """The hosts, shared by all consumers of a process: each is asked for its rules once."""

    def __init__(self, settings: Settings) -> None:
        """Know no host yet."""
        self._settings = settings
        self._origins: dict[str, str] = {}
        self._robots: dict[str, RobotFileParser | None] = {}
        self._lock = threading.Lock()

    def learn(self, origins: Iterable[str]) -> None:
        """Note the hosts of URLs that were queued, by scheme and host: those of all seeds ever given."""
        with self._lock:
            pages = filter(is_page, origins)
            self._origins |= {host_of(origin): f"{origin}/" for origin in pages}

    def scope(self) -> Scope:
        """How far the crawl goes; asks hosts for their rules whose rules are not known."""
        settings = self._settings
        with self._lock:
            unknown = {h: url for h, url in self._origins.items() if not self._robots.get(h)}
            if unknown:
                self._robots |= load_robots(unknown, settings.agent, settings.limits)
            return Scope(dict(self._robots), settings.agent, settings.max_depth)
