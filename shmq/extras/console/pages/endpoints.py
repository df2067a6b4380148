"""The routes of the pages: who calls is checked, forms are read, and failures are pages too."""

from __future__ import annotations

import functools
import hmac
import logging
import secrets
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import anyio
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from shmq.extras.console.access import Caller
from shmq.extras.console.api.routes import API, admit, read_body
from shmq.extras.console.context import Console, in_thread
from shmq.extras.console.pages.rendering import render_page
from shmq.extras.console.pages.visit import PAGES, Page, Redirect, Shown, Visit, load_pages
from shmq.extras.console.problem import Problem, problem_of
from shmq.extras.console.request_checks import caller_of, check_change
from shmq.host.supervision.audit import Actor, Event, record

log = logging.getLogger("shmq.console")

_STATIC: Final = Path(__file__).with_name("static")
#: How many pages are made at a time.
_THREADS: Final = 16
#: The largest form, in bytes, and its most fields.
_MOST_FORM: Final = 4 << 20
_MOST_FIELDS: Final = 32
#: What forms show where there are no sessions: no page of another site can read it.
_ANYONE: Final = secrets.token_urlsafe(32)


def page_routes() -> list[BaseRoute]:
    """A route for each page, and one for the files that they refer to."""
    load_pages()
    return [
        *(Route(one.path, _make_endpoint(one), methods=[one.method]) for one in PAGES),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]


@functools.cache
def _make_limiter() -> anyio.CapacityLimiter:
    return anyio.CapacityLimiter(_THREADS)


def _make_endpoint(row: Page) -> Any:
    async def endpoint(request: Request) -> Response:
        console: Console = request.app.state.console
        caller = caller_of(console, request)
        if caller is None and "authorization" not in request.headers:
            return _to_login(console, request)
        try:
            caller = await admit(console, request)
            visit = await _visit(console, caller, request)
            found = await in_thread(row.handler, visit, limiter=_make_limiter())
            return answer_of(visit, found)
        except Exception as error:  # noqa: BLE001 - each failure is shown in a page
            if isinstance(error, Problem) and error.refuses_right and caller is not None:
                _audit_refusal(caller, request, error.code)
            return error_page(request, error)

    return endpoint


def _audit_refusal(caller: Caller, request: Request, code: str) -> None:
    actor = Actor(who=caller.name, peer=caller.peer, via="http")
    below = request.url.path.rpartition("/")[2]
    record(Event.RIGHT_REFUSED, request.path_params.get("name", ""), code, actor, page=below)


def _to_login(console: Console, request: Request) -> Response:
    path = request.url.path
    back = f"?next={quote(path)}" if request.method == "GET" else ""
    return RedirectResponse(f"{console.settings.prefix}/login{back}", 303)


async def _visit(console: Console, caller: Caller, request: Request) -> Visit:
    csrf = csrf_of(console, caller)
    form: dict[str, str] = {}
    if request.method == "POST":
        form = await form_of(request)
        given = form.pop("csrf", "")
        if not caller.bearer and not hmac.compare_digest(
            given.encode("utf-8", "surrogateescape"), csrf.encode()
        ):
            raise Problem(403, "csrf", "this form is of an earlier login: load the page again")
        check_change(console, caller, given)
    return Visit(
        console=console,
        caller=caller,
        path=request.path_params,
        query=dict(request.query_params),
        form=form,
        csrf=csrf,
    )


def csrf_of(console: Console, caller: Caller) -> str:
    """What the forms of this caller's pages must send back."""
    session = console.sessions.find(caller.session) if caller.session is not None else None
    return session.csrf if session is not None else _ANYONE


async def form_of(request: Request, most: int = _MOST_FORM) -> dict[str, str]:
    """The fields of a form. Raises Problem for what is none, is too large or comes too slowly."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        raise Problem(415, "invalid", "send the form as application/x-www-form-urlencoded")
    found = await read_body(request, most)
    try:
        fields = parse_qsl(
            found.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError:
        raise Problem.invalid("the form is not UTF-8, or has too many fields") from None
    return dict(fields)


def answer_of(visit: Visit, found: Shown | Redirect) -> Response:
    """The page as a response; it is kept by no cache."""
    settings = visit.console.settings
    if isinstance(found, Redirect):
        return RedirectResponse(settings.prefix + found.path, 303)
    return _make_html(
        render_page(
            found.template,
            {
                "prefix": settings.prefix,
                "namespace": visit.console.broker.namespace,
                "csrf": visit.csrf,
                "who": visit.caller.name if visit.caller.session is not None else None,
                "changes": settings.allow_changes,
                "old": visit.console.observer.old(),
                "seen": visit.seen,
                **found.values,
            },
        )
    )


def _make_html(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return HTMLResponse(
        text.encode("utf-8", "replace"), status, {**(headers or {}), "Cache-Control": "no-store"}
    )


# ---- failures ----


def wants_page(request: Request) -> bool:
    """Whether a failure is shown in a page: to a browser, and not below the API."""
    prefix = request.app.state.console.settings.prefix
    below = request.url.path.removeprefix(prefix)
    return not below.startswith(f"{API}/") and "text/html" in request.headers.get("accept", "")


def error_page(request: Request, error: Exception) -> Response:
    """Any failure as a page with a way back; one of the console itself is logged."""
    # A page reads numbers itself: a wrong type is a fault of its own.
    problem = None if isinstance(error, TypeError) else problem_of(error)
    if problem is None:
        log.error("a page failed by a fault of the console", exc_info=error)
        problem = Problem(
            500, "failed", f"internal error: {type(error).__name__}: the console's log has more"
        )
    console: Console = request.app.state.console
    # Strangers see no more than the problem, and beside /metrics there are no pages.
    caller = caller_of(console, request) if request.app.state.pages else None
    values = {
        "prefix": console.settings.prefix,
        "namespace": console.broker.namespace if caller is not None else None,
        "csrf": csrf_of(console, caller) if caller is not None else "",
        "who": caller.name if caller is not None and caller.session is not None else None,
        "old": None,
        "changes": console.settings.allow_changes,
        "seen": None,
        "problem": problem.as_dict(),
    }
    headers = {key: value for key, value in problem.headers.items() if key != "WWW-Authenticate"}
    return _make_html(render_page("error.html", values), problem.status, headers)
