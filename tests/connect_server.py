"""Starts a Spark Connect server on loopback, in a process that ends with the one that started it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tests.programs import served
from tubeq_spark import local_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def connected(url: str) -> SparkSession:
    """A new session on a server."""
    return SparkSession.builder.remote(url).create()


@contextmanager
def connect_server(warehouse: Path) -> Iterator[str]:
    """Run a server until the block is left; gives its URL.

    Args:
        warehouse: Where its catalog keeps tables; also its working directory.
    """
    with served(__file__, warehouse) as port:
        yield f"sc://127.0.0.1:{port}"


def serve(warehouse: str) -> None:
    """Start a server, tell its port, and serve until standard input ends."""
    spark = local_session(
        "tubeq-connect-server",
        **{
            "spark.master": "local[2]",
            "spark.sql.warehouse.dir": warehouse,
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
        },
    )
    services = spark._jvm.org.apache.spark.sql.connect.service
    service = getattr(getattr(services, "SparkConnectService$"), "MODULE$")
    sys.stdout.write(f"{service.localPort()}\n")
    sys.stdout.flush()
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    serve(sys.argv[1])
