"""What a process knows of its crawl: every URL that was ever seen, and what waits of each host.

The first spares reading the tube and the page table for each batch. The second is a guess, by which a
take is made as large as what one host has: the tube alone decides what is taken.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Known:
    """Shared by the consumers of a process; for threads."""

    def __init__(self) -> None:
        """Know nothing."""
        self._seen: set[str] = set()
        #: By host, a number for each task that waits: lower ones are taken first.
        self._waiting: dict[str, deque[int]] = defaultdict(deque)
        self._held: set[str] = set()
        self._lock = threading.Lock()

    def unseen(self, urls: Mapping[str, int]) -> dict[str, int]:
        """Those of some URLs that were never seen."""
        with self._lock:
            return {url: depth for url, depth in urls.items() if url not in self._seen}

    def saw(self, urls: Iterable[str]) -> None:
        """These URLs are queued, or stored."""
        with self._lock:
            self._seen.update(urls)

    def origins(self) -> set[str]:
        """Scheme and host of all that was seen."""
        with self._lock:
            return {origin_of(url) for url in self._seen}

    def wait(self, hosts: Iterable[str], first: int) -> None:
        """Tasks of these hosts are ready, in this order, the first with this number."""
        with self._lock:
            for number, host in enumerate(hosts, start=first):
                self._waiting[host].append(number)

    def next_ready(self) -> int:
        """How many wait of the host whose turn it is; 0 where none is known."""
        with self._lock:
            free = [
                waiting
                for host, waiting in self._waiting.items()
                if waiting and host not in self._held
            ]
            return len(min(free, key=lambda waiting: waiting[0])) if free else 0

    def took(self, hosts: Mapping[str, int]) -> None:
        """So many tasks of these hosts were taken, and the hosts with them."""
        with self._lock:
            self._held.update(hosts)
            for host, count in hosts.items():
                waiting = self._waiting[host]
                for _ in range(min(count, len(waiting))):
                    waiting.popleft()

    def left(self, hosts: Iterable[str]) -> None:
        """These hosts are free again."""
        with self._lock:
            self._held.difference_update(hosts)


def origin_of(url: str) -> str:
    """Scheme and host of a normalised URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
