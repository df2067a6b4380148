"""The application: pages, API, metrics and health behind one guard."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import shmq
from shmq.extras.console.access import Caller, visible
from shmq.extras.console.api import events, openapi, websocket
from shmq.extras.console.api.operation import load_operations
from shmq.extras.console.api.routes import admit, problem_answer, routes
from shmq.extras.console.context import Console, in_thread
from shmq.extras.console.pages.endpoints import error_page, page_routes, wants_page
from shmq.extras.console.pages.login import login_routes
from shmq.extras.console.problem import Problem
from shmq.extras.console.request_checks import HEADERS, Guard
from shmq.metrics.exposition import CONTENT_TYPE, render
from shmq.metrics.families import CONSOLE


def application(console: Console) -> ASGIApp:
    """The whole console."""
    load_operations()
    inner: list[BaseRoute] = [
        Route("/healthz", _answer_healthz),
        Route("/readyz", _answer_readyz),
        *routes(),
        *openapi.routes(),
    ]
    inner.append(Route("/metrics", _answer_metrics))
    inner += [*events.routes(), *websocket.routes(), *login_routes(), *page_routes()]
    return _make_application(console, inner, metrics_open=console.settings.metrics_open)


def metrics_application(console: Console) -> ASGIApp:
    """Only /metrics and health, for an address of their own."""
    return _make_application(
        console,
        [
            Route("/healthz", _answer_healthz),
            Route("/readyz", _answer_readyz),
            Route("/metrics", _answer_metrics),
        ],
        metrics_open=console.settings.metrics_bind is not None or console.settings.metrics_open,
        pages=False,
    )


def _make_application(
    console: Console, inner: list[BaseRoute], *, metrics_open: bool, pages: bool = True
) -> ASGIApp:
    prefix = console.settings.prefix
    made = Starlette(
        routes=[Mount(prefix, routes=inner)] if prefix else inner,
        exception_handlers={
            Exception: _answer_failure,
            404: _make_unknown_error,
            405: _answer_wrong_method,
            Problem: _answer_failure,
            shmq.ShmqError: _answer_failure,
        },
    )
    made.state.console = console
    made.state.metrics_open = metrics_open
    made.state.pages = pages
    return _Guarded(made, console)


class _Guarded:
    """Asks the guard before each request, and adds the headers of safety to each answer."""

    def __init__(self, inner: Starlette, console: Console) -> None:
        self._inner = inner
        self._guard = Guard(console)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {key.lower() for key, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (key.lower().encode(), value.encode())
                        for key, value in HEADERS.items()
                        if key.lower().encode() not in there
                    ),
                ]
            await send(message)

        try:
            self._guard.check(Request(scope))
        except Problem as problem:
            await problem_answer(problem)(scope, receive, with_headers)
            return
        await self._inner(scope, receive, with_headers)


async def _answer_failure(request: Request, error: Exception) -> Response:
    return error_page(request, error) if wants_page(request) else problem_answer(error)


async def _make_unknown_error(request: Request, _: Exception) -> Response:
    return await _answer_failure(
        request, Problem(404, "unknown-path", f"page {request.url.path!r} does not exist")
    )


async def _answer_wrong_method(request: Request, error: Exception) -> Response:
    headers = dict(getattr(error, "headers", None) or {"Allow": "GET"})
    return await _answer_failure(
        request,
        Problem(
            405,
            "unknown-path",
            f"{request.method} is not a method of {request.url.path}: use {headers['Allow']}",
            headers=headers,
        ),
    )


async def _answer_healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _answer_readyz(request: Request) -> Response:
    console: Console = request.app.state.console
    problem = await in_thread(_explain_not_ready, console)
    return PlainTextResponse(f"{problem or 'ready'}\n", 503 if problem else 200)


def _explain_not_ready(console: Console) -> str | None:
    try:
        console.observer.latest()
    except Exception as error:  # noqa: BLE001 - any of them means: not ready
        return str(error)
    return console.observer.problem or console.observer.old()


async def _answer_metrics(request: Request) -> Response:
    console: Console = request.app.state.console
    caller = Caller(None)
    if not request.app.state.metrics_open:
        caller = await admit(console, request)
    pattern = request.query_params.get("queue")
    text = await in_thread(_render_metrics, console, caller, pattern)
    return Response(text, media_type=CONTENT_TYPE)


def _render_metrics(console: Console, caller: Caller, pattern: str | None) -> bytes:
    old = console.observer.old()
    if old is not None:  # a failed scrape is an alert; numbers of long ago are none
        raise shmq.ConnectionLost(old)
    return render(
        visible(caller, console.observer.latest()),
        most_queues=console.settings.metrics_queues,
        pattern=pattern,
        extra=(
            (CONSOLE["failed logins"], [((), console.logins.total)]),
            (CONSOLE["sessions"], [((), len(console.sessions))]),
        ),
    )
