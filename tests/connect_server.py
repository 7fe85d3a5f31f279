"""A Spark Connect server on loopback, in a process that ends with the one that started it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tests.programs import environment
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
    served = environment()
    # Set in a process that is a client; the server is a classic one.
    served.pop("SPARK_CONNECT_MODE_ENABLED", None)
    with subprocess.Popen(
        [sys.executable, __file__, str(warehouse)],
        cwd=warehouse,
        env=served,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            assert port.isdecimal(), "the server did not start: see its stderr"
            yield f"sc://127.0.0.1:{port}"
        finally:
            # It ends when nobody holds the other end of its input: also after a crash of ours.
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


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
