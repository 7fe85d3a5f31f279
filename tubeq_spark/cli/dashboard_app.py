"""The pages of `tubeq dashboard` as an ASGI application; needs the extra `dashboard`.

Everybody who can connect to it may read. It changes nothing, and answers only requests for names of this host, so that
no page of another site can reach it by a name of its own.
"""

from __future__ import annotations

import re
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tubeq_spark.cli.values import json_text
from tubeq_spark.errors import TaskNotFoundError, TubeNotFoundError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.observe import pages
from tubeq_spark.observe.minutes import Minutes
from tubeq_spark.observe.snapshot import take_snapshot
from tubeq_spark.task import TaskState
from tubeq_spark.tube import details_of, first_tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from tubeq_spark.clock import Clock
    from tubeq_spark.observe.snapshot import Snapshot
    from tubeq_spark.queue import Queue
    from tubeq_spark.tube import Tube

#: The names of this host, with any port, because a tunnel has another port at its other end.
_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_HEADERS = {
    "content-security-policy": f"{pages.policy()}; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
#: Seconds for which a snapshot is used for all requests, and its health.
_FRESH, _FRESH_HEALTH = 1.0, 15.0
#: Seconds over which throughput is measured.
_OVER = 60.0
#: Seconds after which a browser loads the page again.
_REFRESH = 5
#: The most tasks and commits of a tube on its page.
_TASKS, _COMMITS = 50, 20
_STATES = {state.name.lower(): state for state in TaskState if state is not TaskState.DONE}


def make_app(queue: Queue, clock: Clock) -> Starlette:
    """The application that shows a queue; the clock is for the ages of snapshots."""
    dashboard = _Dashboard(queue, clock)
    routes = [Route("/", dashboard.overview), Route("/tube/{name}", dashboard.tube)]
    handlers: dict[Any, Any] = {HTTPException: _refused, TubeqError: _failed}
    guard = Middleware(BaseHTTPMiddleware, dispatch=_guarded)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)


async def _guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Refuse requests that do not name this host, and send security headers to browsers."""
    hosts = request.headers.getlist("host")
    if len(hosts) == 1 and _HOST.fullmatch(hosts[0]):
        response = await answer(request)
    else:
        reason = "This server answers to 127.0.0.1 and localhost only."
        response = _page_of(reason, HTTPStatus.FORBIDDEN)
    response.headers.update(_HEADERS)
    return response


class _Dashboard:
    """Answers requests, in threads. Requests at about the same time share one snapshot of the queue."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._minutes: dict[str, Minutes] = {}
        self._lock = threading.Lock()
        #: The last snapshots, each with its moment.
        self._kept: list[tuple[float, Snapshot]] = []

    def _look(self) -> Snapshot:
        """A snapshot of the queue, at most a second old."""
        with self._lock:
            now = self._clock.monotonic()
            if self._kept and now - self._kept[-1][0] < _FRESH:
                return self._kept[-1][1]
            self._kept = [each for each in self._kept if now - each[0] <= _OVER]
            before = health = None
            if self._kept:
                before, last = self._kept[0][1].metrics, self._kept[-1][1].health
                age = (self._clock.now() - last.at).total_seconds()
                health = last if 0 <= age < _FRESH_HEALTH else None
            found = take_snapshot(self._queue, before=before, health=health)
            self._kept.append((now, found))
            return found

    def overview(self, request: Request) -> Response:
        """The page of all tubes, which a browser refreshes unless the user has stopped that."""
        live = "still" not in request.query_params
        return HTMLResponse(pages.overview(self._look(), "tubeq", every=_REFRESH, live=live))

    def tube(self, request: Request) -> Response:
        """The page of one tube, with some of its tasks in the requested state."""
        name, look = request.path_params["name"], self._look()
        found = look.tubes.get(name)
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no tube {name!r}.")
        tube, asked = self._queue.tube(name), request.query_params
        state = asked.get("state")
        state = state if state in _STATES else None
        page = pages.tube(
            found,
            details_of(tube, _COMMITS, self._minutes.setdefault(name, Minutes())),
            at=look.at,
            state=state,
            tasks=[] if state is None else first_tasks(tube, _STATES[state], _TASKS),
            limit=_TASKS,
            why=_why(tube, asked.get("why", "")),
            payloads=asked.get("payloads") == "1",
            text_of=json_text,
        )
        return HTMLResponse(page)


def _why(tube: Tube, task_id: str) -> str | None:
    """Why a task waits; `None` if the text of the request is no id."""
    try:
        return tube.why(int(task_id))
    except ValueError:
        return None
    except TaskNotFoundError as error:
        return reason_of(error)


def _page_of(sentence: str, status: int, refresh: float | None = None) -> Response:
    return HTMLResponse(pages.page("page", sentence, refresh=refresh), status)


def _refused(_: Request, error: HTTPException) -> Response:
    return _page_of(error.detail, error.status_code)


def _failed(_: Request, error: TubeqError) -> Response:
    if isinstance(error, TubeNotFoundError):
        return _page_of(reason_of(error), HTTPStatus.NOT_FOUND)
    # The storage may answer at the next refresh.
    return _page_of(reason_of(error), HTTPStatus.INTERNAL_SERVER_ERROR, _REFRESH)
