"""The hosts of a crawl, which are those of its seeds, and the robots.txt rules of each."""

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
    """The hosts, shared by all consumers of a process. The rules of each host are fetched once."""

    def __init__(self, settings: Settings) -> None:
        """Begin without hosts."""
        self._settings = settings
        self._origins: dict[str, str] = {}
        self._robots: dict[str, RobotFileParser | None] = {}
        self._lock = threading.Lock()

    def learn(self, origins: Iterable[str]) -> None:
        """Note the hosts of all seeds ever given, by the origins (scheme and host) of queued URLs."""
        with self._lock:
            pages = filter(is_page, origins)
            self._origins |= {host_of(origin): f"{origin}/" for origin in pages}

    def scope(self) -> Scope:
        """The scope of the crawl. It fetches unknown rules of hosts."""
        settings = self._settings
        with self._lock:
            unknown = {h: url for h, url in self._origins.items() if not self._robots.get(h)}
            if unknown:
                self._robots |= load_robots(unknown, settings.agent, settings.limits)
            return Scope(dict(self._robots), settings.agent, settings.max_depth)
