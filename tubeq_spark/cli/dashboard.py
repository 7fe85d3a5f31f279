"""`tubeq dashboard`: a page about the queue in a browser on this host."""

from __future__ import annotations

import secrets
import socket
from typing import Annotated

import typer

from tubeq_spark.cli.call import queue_of, until_stopped
from tubeq_spark.cli.exit_codes import BadUseError
from tubeq_spark.cli.options import whole
from tubeq_spark.model.error_text import missing, reason_of

_HOST = "127.0.0.1"


def dashboard(
    ctx: typer.Context,
    port: Annotated[int, whole("0 = any free port", least=0, most=65_535)] = 8_333,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Allow kicks, with a token that is printed"),
    ] = False,
) -> None:
    """Show the queue in a browser on this host, until stopped.

    Every user of this host can read everything, payloads included. Changes need --allow-changes.
    """
    token = secrets.token_urlsafe(18) if allow_changes else None
    with queue_of(ctx) as (call, queue):
        try:
            import uvicorn  # noqa: PLC0415  the extra may be missing

            from tubeq_spark.cli.dashboard_app import make_app  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise BadUseError(str(missing(error, "dashboard"))) from None
        with _listening(port) as listener:
            app = make_app(queue, call.outside.clock, token)
            config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
            found = listener.getsockname()[1]
            url = f"http://{_HOST}:{found}/"
            call.show({"url": url} | ({} if token is None else {"token": token}), url)
            if token is not None and not call.json:
                call.show({}, f"token for changes: {token}")
            with call.logging("dashboard"), until_stopped():
                uvicorn.Server(config).run(sockets=[listener])


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        raise BadUseError(f"port {port} of {_HOST}: {reason_of(error)}") from None
