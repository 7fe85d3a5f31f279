"""`tubeq metrics --port`: an endpoint that Prometheus scrapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tubeq_spark.cli.call import Call
from tubeq_spark.cli.program import BadUseError
from tubeq_spark.rules.error_text import reason_of
from tubeq_spark.rules.installing import missing

if TYPE_CHECKING:
    from tubeq_spark.queue import Queue

__all__ = ["metrics", "serve"]


def metrics(
    ctx: typer.Context,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Serve them to Prometheus; 0: any that is free")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; all of this host by 0.0.0.0")] = (
        "127.0.0.1"
    ),
) -> None:
    """Serve metrics to Prometheus until Ctrl-C: counts, ages and sizes, no payloads."""
    call: Call = ctx.obj
    with call.queue() as queue:
        serve(call, queue, port, host)


def serve(call: Call, queue: Queue, port: int, host: str) -> None:
    """Measure a queue for each scrape, until Ctrl-C."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415  an extra

        from tubeq_spark.observe.prometheus import QueueScrape  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise BadUseError(str(missing(error, "prometheus"))) from None
    registry = CollectorRegistry()
    registry.register(QueueScrape(queue, call.tell))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        msg = f"port {port} of {host}: {reason_of(error)}"
        raise BadUseError(msg) from None
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{server.server_port}/metrics"
    call.show({"url": url}, url)
    try:
        thread.join()
    except KeyboardInterrupt:
        return  # that is how it ends
    finally:
        server.shutdown()
        server.server_close()
