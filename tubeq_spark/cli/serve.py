"""`tubeq top report dashboard`, and the endpoint of `tubeq metrics --port`."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.cli.call import Call, queue_of, until_stopped
from tubeq_spark.cli.options import flag, seconds, whole, word
from tubeq_spark.cli.table import lines_of, show_each
from tubeq_spark.errors import TubeNotFoundError
from tubeq_spark.observe import columns

if TYPE_CHECKING:
    from tubeq_spark.observe.snapshot import TubeSnapshot
    from tubeq_spark.queue import Queue

_HOST = "127.0.0.1"
#: The number of commits of each tube in which conflicts are counted.
_COMMITS = 200
#: Seconds between two reads. A read takes some milliseconds natively, and nearly a second on Spark.
_INTERVAL = {"native": 0.5, "spark": 2.0}
_COLUMNS = columns.of_tubes(
    "tube type ready taken delayed buried oldest done added/s done/s paused"
)


def top(
    ctx: typer.Context,
    interval: Annotated[
        float | None,
        seconds("Time between refreshes [default: 0.5, on Spark 2]", least=0.1),
    ] = None,
    refreshes: Annotated[int, whole("Number of refreshes; 0 = until stopped", least=0)] = 0,
    once: Annotated[bool, flag("--once", "Print the table once")] = False,
) -> None:
    """Show a live table of the tubes, until Ctrl-C.

    Rates count what all processes do; they appear after the first refresh.
    """
    # Only this command needs these imports.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with queue_of(ctx) as (call, queue), until_stopped():
        from tubeq_spark.observe.snapshot import with_flows  # noqa: PLC0415  as in call

        screen, before = Console(highlight=False), None
        is_live = screen.is_terminal and not call.json
        with Live(console=screen, auto_refresh=False) if is_live else nullcontext() as live:
            for number in count(1):
                found = queue.metrics()
                tubes = [*with_flows(found, before).values()]
                if live is None:
                    show_each(call, tubes, _COLUMNS, partial(_as_dict, number))
                else:
                    live.update(Text("\n".join(lines_of(tubes, _COLUMNS))), refresh=True)
                if number == (1 if once else refreshes):
                    return
                before = found
                call.outside.clock.sleep(interval or _INTERVAL[queue.engine])


def _as_dict(look: int, tube: TubeSnapshot) -> dict[str, Any]:
    flow = None if tube.flow is None else asdict(tube.flow)
    return {"look": look, "tube": tube.name, "flow": flow, **asdict(tube.metrics)}


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
            call.logged("dashboard"),
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
        with call.logged("metrics"), until_stopped():
            thread.join()
    finally:
        server.shutdown()
        server.server_close()
