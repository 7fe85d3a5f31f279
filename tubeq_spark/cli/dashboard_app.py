"""The pages of `tubeq dashboard` as an ASGI application; needs the extra `dashboard`.

Everybody who can connect to it may read. It answers only requests for names of this host, so that no page of
another site can reach it by a name of its own. It changes something only if a request comes from one of its own
pages and has the token.
"""

from __future__ import annotations

import re
import secrets
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route

from tubeq_spark.cli.call import json_text
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
    # With `no-referrer` a browser would send no origin with the dashboard's own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
#: Seconds for which a snapshot is used for all requests, and its health.
_FRESH, _FRESH_HEALTH = 1.0, 15.0
#: Seconds over which throughput is measured, and the number of snapshots that are kept for that.
_OVER, _KEPT = 60.0, 120
#: Seconds after which a browser loads the page again.
_REFRESH = 5
#: The most tasks and commits of a tube on its page.
_TASKS, _COMMITS = 50, 20
#: The most bytes of a form. The forms of the dashboard have a number and a token.
_MOST_BODY = 4_096
_STATES = {state.name.lower(): state for state in TaskState if state is not TaskState.DONE}


def make_app(queue: Queue, clock: Clock, token: str | None) -> Starlette:
    """The application.

    Args:
        queue: The queue to show.
        clock: The clock for the ages of snapshots.
        token: The token that changes need; `None` if nothing can be changed.
    """
    dashboard = _Dashboard(queue, _Looks(queue, clock), token)
    routes = [
        Route("/", dashboard.overview, methods=["GET"]),
        Route("/tube/{name}", dashboard.tube, methods=["GET"]),
    ]
    if token is not None:
        routes.append(Route("/tube/{name}/{change}", dashboard.change, methods=["POST"]))
    handlers: dict[Any, Any] = {HTTPException: _refused, TubeqError: _failed}
    guard = Middleware(BaseHTTPMiddleware, dispatch=_guarded)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)


async def _guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Refuse requests that do not come from this host or its pages, and send security headers to browsers."""
    reason = _refusal(request)
    if reason is None:
        response = await answer(request)
    else:
        response = _page_of(reason, HTTPStatus.FORBIDDEN)
    response.headers.update(_HEADERS)
    return response


def _refusal(request: Request) -> str | None:
    """Why a request is refused; `None` if it is not."""
    hosts, origins = (request.headers.getlist(name) for name in ("host", "origin"))
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
        return "This server answers to 127.0.0.1 and localhost only."
    if request.method not in ("GET", "HEAD") and origins != [f"http://{hosts[0]}"]:
        return "Changes are made from this server's own pages only."
    return None


class _Looks:
    """The last snapshots of a queue. Requests at about the same time share one."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: list[tuple[float, Snapshot]] = []
        self._health_at = 0.0

    def look(self, *, anew: bool = False) -> Snapshot:
        """A snapshot of the queue, at most a second old.

        Args:
            anew: Whether it must be a new one.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._kept and not anew and now - self._kept[-1][0] < _FRESH:
                return self._kept[-1][1]
            self._kept = [each for each in self._kept if now - each[0] <= _OVER][-_KEPT:]
            before = self._kept[0][1].metrics if self._kept else None
            health = None
            if self._kept and now - self._health_at < _FRESH_HEALTH:
                health = self._kept[-1][1].health
            else:
                self._health_at = now
            found = take_snapshot(self._queue, before=before, health=health)
            self._kept.append((now, found))
            return found


class _Dashboard:
    """Answers requests. Reads and writes of the queue run in threads."""

    def __init__(self, queue: Queue, looks: _Looks, token: str | None) -> None:
        self._queue = queue
        self._looks = looks
        self._token = token
        self._minutes: dict[str, Minutes] = {}

    def overview(self, request: Request) -> Response:
        """The page of all tubes, which a browser refreshes unless the user has stopped that."""
        live = "still" not in request.query_params
        return HTMLResponse(pages.overview(self._looks.look(), "tubeq", every=_REFRESH, live=live))

    def tube(self, request: Request) -> Response:
        """The page of one tube, with some of its tasks in the requested state."""
        name = request.path_params["name"]
        # After a change the page must not show an older snapshot.
        kicked = request.query_params.get("kicked", "")
        is_changed = bool(kicked) or "changed" in request.query_params
        look = self._looks.look(anew=is_changed)
        found = look.tubes.get(name)
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no tube {name!r}.")
        tube, asked = self._queue.tube(name), request.query_params
        state = asked.get("state")
        state = state if state in _STATES else None
        number = asked.get("why", "")
        page = pages.tube(
            found,
            details_of(tube, _COMMITS, self._minutes.setdefault(name, Minutes())),
            at=look.at,
            kicked=kicked if _is_number(kicked) else None,
            can_change=self._token is not None,
            state=state,
            tasks=[] if state is None else first_tasks(tube, _STATES[state], _TASKS),
            limit=_TASKS,
            asked=number,
            why=_why(tube, int(number)) if _is_number(number) else None,
            payloads=asked.get("payloads") == "1",
            text_of=json_text,
        )
        return HTMLResponse(page)

    async def change(self, request: Request) -> Response:
        """Kick buried tasks of a tube, pause or resume it; then show it."""
        form = await self._form_of(request)
        change = request.path_params["change"]
        if change not in ("kick", "pause", "resume"):
            raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no change {change!r}.")
        count, task = form.get("count", [""])[-1], form.get("task", [""])[-1]
        if change == "kick" and not _is_number(task) and (not _is_number(count) or len(count) > 9):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "How many tasks is a whole number.")
        name = request.path_params["name"]

        def changed() -> dict[str, int]:
            tube = self._queue.tube(name)
            if change == "kick":
                kicked = len(tube.kick_many([int(task)])) if task else tube.kick(int(count))
                return {"kicked": kicked}
            (tube.pause if change == "pause" else tube.resume)()
            return {"changed": 1}

        what = await run_in_threadpool(changed)
        where = f"/tube/{quote(name)}?{urlencode(what)}"
        return RedirectResponse(where, HTTPStatus.SEE_OTHER)

    async def _form_of(self, request: Request) -> dict[str, list[str]]:
        """The fields of a form, if it has the token."""
        form = parse_qs(await _body_of(request))
        token = form.get("token", [""])[-1]
        if not secrets.compare_digest(token.encode(), (self._token or "").encode()):
            msg = "The token is not that of this server, which it printed when it started."
            raise HTTPException(HTTPStatus.FORBIDDEN, msg)
        return form


def _is_number(text: str) -> bool:
    """Whether a text of a request is an integer of a usual length."""
    return text.isascii() and text.isdecimal() and len(text) < 20


def _why(tube: Tube, task_id: int) -> str:
    try:
        return tube.why(task_id)
    except TaskNotFoundError as error:
        return reason_of(error)


async def _body_of(request: Request) -> str:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BODY:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "This is no form of ours.")
    return body.decode("latin-1")


def _page_of(sentence: str, status: int, refresh: float | None = None) -> Response:
    return HTMLResponse(pages.page("page", sentence, refresh=refresh), status)


def _refused(_: Request, error: HTTPException) -> Response:
    return _page_of(error.detail, error.status_code)


def _failed(_: Request, error: TubeqError) -> Response:
    if isinstance(error, TubeNotFoundError):
        return _page_of(reason_of(error), HTTPStatus.NOT_FOUND)
    # The storage may answer at the next refresh.
    return _page_of(reason_of(error), HTTPStatus.INTERNAL_SERVER_ERROR, _REFRESH)
