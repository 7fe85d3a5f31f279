"""Gives tests clients of their S3, and controls which of its answers are late or lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.request import Request, urlopen

from tubeq_spark import Queue, QueueConfig
from tubeq_spark.storage.store.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from tubeq_spark.clock import Clock

__all__ = ["COMMIT", "Store", "before_commit", "served"]

ROOT = Path(__file__).parents[2]
#: The request that commits a version.
COMMIT = r"^PUT .*/_delta_log/\d{20}\.json$"


@dataclass
class Store:
    """An S3 with an empty bucket."""

    url: str

    #: What locations there begin with.
    root: ClassVar[str] = "s3://bucket"

    @property
    def options(self) -> dict[str, str]:
        """What the native engine needs to reach it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "aws_conditional_put": "etag",
        }

    def open(
        self,
        location: str,
        clock: Clock | None = None,
        options: dict[str, str] | None = None,
        **settings: Any,
    ) -> Queue:
        """Open a queue, with more options for the storage, and settings."""
        return Queue(
            None,
            location,
            engine="native",
            storage_options=self.options | (options or {}),
            config=QueueConfig(**settings),
            clock=clock,
        )

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """A client of another make."""
        import boto3  # noqa: PLC0415  (it comes with the emulation)

        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        with contextlib.closing(client):
            yield client

    def create_bucket(self) -> None:
        """Make the bucket of all tests."""
        with self.client() as client:
            client.create_bucket(Bucket="bucket")

    def keys(self, prefix: str) -> set[str]:
        """What is stored there."""
        with self.client() as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix)
            return {found["Key"] for page in pages for found in page.get("Contents", ())}

    def make_older(self, seconds: float) -> None:
        """Let everything have been stored so much earlier."""
        self._ask(f"/-/older/{seconds}")

    def delay(self, seconds: float) -> None:
        """Let each answer take so much longer from now on."""
        self._ask(f"/-/delay/{seconds}")

    @contextlib.contextmanager
    def accepting(self) -> Iterator[Callable[[str], None]]:
        """Yield what lets the credentials of all access keys but one expire, for the time of a block."""
        try:
            yield lambda key: (self._ask(f"/-/accept/{key}"), None)[1]
        finally:
            self._ask("/-/accept/")

    @contextlib.contextmanager
    def overwriting(self) -> Iterator[None]:
        """Ignore the conditions of puts for the time of a block, as some stores do."""
        self._ask("/-/overwrites/1")
        try:
            yield
        finally:
            self._ask("/-/overwrites/0")

    def lose(self, match: str = COMMIT, **how: Any) -> None:
        """Lose the answers to requests from now on, as a `Losing` of the server says."""
        self._ask("/-/lose", {"match": match} | how)

    def answer(self) -> None:
        """Answer each request again."""
        self._ask("/-/answer")

    @contextlib.contextmanager
    def losing(self, match: str = COMMIT, **how: Any) -> Iterator[None]:
        """Lose answers for the time of a block."""
        self.lose(match, **how)
        try:
            yield
        finally:
            self.answer()

    def requests(self) -> list[tuple[str, int | None]]:
        """Method and path of all requests since this was asked last, and the store's own status."""
        return [(line, status) for line, status, _, _ in self._log()]

    def rounds(self) -> tuple[int, int]:
        """How many requests there were since this was asked last, and how many of them in sequence."""
        rows, last, rounds = self._log(), 0.0, 0
        for _, _, began, ended in sorted(rows, key=lambda row: row[3]):
            if began >= last:
                last, rounds = ended, rounds + 1
        return len(rows), rounds

    def _log(self) -> list[tuple[str, int | None, float, float]]:
        """What of each request the server has noted."""
        found: list[tuple[str, int | None, float, float]] = json.loads(self._ask("/-/log"))
        return found

    def commits(self) -> list[tuple[str, int | None]]:
        """Those of `requests` that would commit a version."""
        return [row for row in self.requests() if re.search(COMMIT, row[0])]

    def _ask(self, path: str, what: object = None) -> bytes:
        data = None if what is None else json.dumps(what).encode()
        with urlopen(Request(f"{self.url}{path}", data)) as answer:
            said: bytes = answer.read()
        return said


Kind = TypeVar("Kind", bound=Store)


@contextlib.contextmanager
def served(kind: type[Kind] = Store, **environment: str) -> Iterator[Kind]:  # type: ignore[assignment]
    """A server of its own process, for the time of a block, as a kind of store."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.concurrency.s3_server"],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        found = kind(f"http://127.0.0.1:{int(server.stdout.readline())}")
        found.create_bucket()
        yield found
    finally:
        server.kill()
        server.communicate()


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any], times: int = 1) -> None:
    """Let something happen right before the next commits to the tube `work`."""
    put, left = ObjectStore.put_if_absent, [times]

    def beaten(files: ObjectStore, name: str, content: bytes, _needs: object = ()) -> str | None:
        if f"{files}".endswith("/work") and left[0]:
            left[0] -= 1
            acts, left[0] = left[0], 0
            act()
            left[0] = acts
        return put(files, name, content)

    monkeypatch.setattr(ObjectStore, "put_if_absent", beaten)
