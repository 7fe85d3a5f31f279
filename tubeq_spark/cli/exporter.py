"""`tubeq metrics --port`: an endpoint that Prometheus scrapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.cli.call import Call, until_stopped
from tubeq_spark.cli.exit_codes import BadUseError
from tubeq_spark.cli.logs import log
from tubeq_spark.model.error_text import missing, reason_of

if TYPE_CHECKING:
    from tubeq_spark.queue import Queue


def serve(call: Call, queue: Queue, port: int, host: str, ending_within: float) -> None:
    """Measure a queue for each scrape, until Ctrl-C or SIGTERM.

    Args:
        call: The call.
        queue: The queue.
        port: The port; 0 is any free one.
        host: The address to listen on.
        ending_within: Leases that end within so many seconds count as ending.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415  an extra

        from tubeq_spark.observe.prometheus import QueueScrape  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise BadUseError(str(missing(error, "prometheus"))) from None
    registry = CollectorRegistry()
    registry.register(QueueScrape(queue, log.warning, ending_within=ending_within))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise BadUseError(f"port {port} of {host}: {reason_of(error)}") from None
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{server.server_port}/metrics"
    call.show({"url": url}, url)
    try:
        with call.logging("metrics"), until_stopped():
            thread.join()
    finally:
        server.shutdown()
        server.server_close()
