"""`tubeq report dashboard`, and the endpoint of `tubeq metrics --port`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tubeq_spark.cli.call import Call, queue_of, until_stopped
from tubeq_spark.cli.logs import logged
from tubeq_spark.cli.options import seconds, whole, word
from tubeq_spark.errors import TubeNotFoundError

if TYPE_CHECKING:
    from tubeq_spark.queue import Queue

_HOST = "127.0.0.1"
#: The number of commits of each tube in which conflicts are counted.
_COMMITS = 200


def report(
    ctx: typer.Context,
    html: Annotated[Path, word("FILE", "File to write")],
    over: Annotated[
        float, seconds("Time over which throughput is measured; 0 = not measured")
    ] = 2.0,
) -> None:
    """Write an HTML page about the queue to a file.

    The page has no payloads and loads nothing from the network.
    """
    with queue_of(ctx) as (call, queue):
        from tubeq_spark.observe.pages import overview  # noqa: PLC0415  as in call
        from tubeq_spark.observe.snapshot import take_snapshot  # noqa: PLC0415
        from tubeq_spark.tube import details_of  # noqa: PLC0415

        found = take_snapshot(queue)
        if over:
            call.outside.clock.sleep(over)
            found = take_snapshot(queue, before=found.metrics, health=found.health)
        details = {}
        for name in found.tubes:
            with suppress(TubeNotFoundError):  # the tube was dropped meanwhile
                details[name] = details_of(queue.tube(name), _COMMITS)
        page = overview(found, f"tubeq: {found.location}", details)
        html.write_text(page, encoding="utf-8")
        shown = {"file": str(html), "problems": len(found.health.problems)}
        call.show(shown, f"wrote {html}")


def dashboard(
    ctx: typer.Context,
    port: Annotated[int, whole("0 = any free port", least=0, most=65_535)] = 8_333,
) -> None:
    """Show the queue in a browser on this host, until stopped.

    Every user of this host can read everything, payloads included.
    """
    import socket  # noqa: PLC0415  other calls start without it

    with queue_of(ctx) as (call, queue):
        import uvicorn  # noqa: PLC0415  the extra may be missing

        from tubeq_spark.cli.dashboard_app import make_app  # noqa: PLC0415

        with (
            socket.create_server((_HOST, port)) as listener,
            logged(call, "dashboard"),
            until_stopped(),
        ):
            app = make_app(queue, call.outside.clock)
            config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
            url = f"http://{_HOST}:{listener.getsockname()[1]}/"
            call.show({"url": url}, url)
            uvicorn.Server(config).run(sockets=[listener])


def serve_metrics(call: Call, queue: Queue, port: int, host: str) -> None:
    """Measure a queue for each scrape of Prometheus, until Ctrl-C or SIGTERM.

    Args:
        call: The call.
        queue: The queue.
        port: The port; 0 is any free one.
        host: The address to listen on.
    """
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415

    from tubeq_spark.observe.prometheus import QueueCollector  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(QueueCollector(queue))
    server, thread = start_http_server(port, host, registry)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{server.server_port}/metrics"
    call.show({"url": url}, url)
    try:
        with logged(call, "metrics"), until_stopped():
            thread.join()
    finally:
        server.shutdown()
        server.server_close()
