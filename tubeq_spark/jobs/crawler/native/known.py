"""The URLs of a crawl that a process has seen, and a guess at the waiting tasks of each host.

With the seen URLs it need not read the tube and the page table for each batch. By the guess, a take is as large as
the number of tasks of one host; only the tube decides which tasks are taken.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Known:
    """The seen URLs and waiting tasks, shared by the consumers of a process. Thread-safe."""

    def __init__(self) -> None:
        """Begin without URLs."""
        self._seen: set[str] = set()
        #: By host, a number for each waiting task. Lower numbers are taken first.
        self._waiting: dict[str, deque[int]] = defaultdict(deque)
        self._held: set[str] = set()
        self._lock = threading.Lock()

    def unseen(self, urls: Mapping[str, int]) -> dict[str, int]:
        """The URLs among these that were never seen."""
        with self._lock:
            return {url: depth for url, depth in urls.items() if url not in self._seen}

    def saw(self, urls: Iterable[str]) -> None:
        """Record that these URLs are queued or stored."""
        with self._lock:
            self._seen.update(urls)

    def origins(self) -> set[str]:
        """The origins (scheme and host) of all seen URLs."""
        with self._lock:
            return {origin_of(url) for url in self._seen}

    def wait(self, hosts: Iterable[str], first: int) -> None:
        """Record that tasks of these hosts are ready, in this order; `first` is the number of the first one."""
        with self._lock:
            for number, host in enumerate(hosts, start=first):
                self._waiting[host].append(number)

    def next_ready(self) -> int:
        """The number of waiting tasks of the next host; 0 if none is known."""
        with self._lock:
            free = [
                waiting
                for host, waiting in self._waiting.items()
                if waiting and host not in self._held
            ]
            return len(min(free, key=lambda waiting: waiting[0])) if free else 0

    def took(self, hosts: Mapping[str, int]) -> None:
        """Record that so many tasks of these hosts were taken, so that the hosts are busy."""
        with self._lock:
            self._held.update(hosts)
            for host, count in hosts.items():
                waiting = self._waiting[host]
                for _ in range(min(count, len(waiting))):
                    waiting.popleft()

    def left(self, hosts: Iterable[str]) -> None:
        """Record that these hosts are free again."""
        with self._lock:
            self._held.difference_update(hosts)


def origin_of(url: str) -> str:
    """Scheme and host of a normalised URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
