"""Login and logout: a token becomes the cookie of a session."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from shmq.extras.console.access import LIFETIME, Caller
from shmq.extras.console.api.routes import slow_down
from shmq.extras.console.context import Console
from shmq.extras.console.pages.endpoints import error_page, form_of
from shmq.extras.console.pages.rendering import render_page
from shmq.extras.console.problem import Problem
from shmq.extras.console.request_checks import COOKIE, caller_of, peer_address
from shmq.host.supervision.login_failures import source_of

#: The longest token that is looked at, in characters.
_MOST_TOKEN: Final = 1024
#: The largest form of a caller that has not logged in yet, in bytes.
_MOST_FORM: Final = 16 << 10


def login_routes() -> list[Route]:
    """The form, what it sends, and the way out."""
    return [
        Route("/login", _show_form, methods=["GET"]),
        Route("/login", _handle_login, methods=["POST"]),
        Route("/logout", _handle_logout, methods=["POST"]),
    ]


async def _show_form(request: Request) -> Response:
    console: Console = request.app.state.console
    back = _own_path(console, request.query_params.get("next", ""))
    if caller_of(console, request) is not None:
        return RedirectResponse(back, 303)
    return _render_login(console, back)


async def _handle_login(request: Request) -> Response:
    console: Console = request.app.state.console
    try:
        form = await form_of(request, _MOST_FORM)
    except Problem as problem:
        return error_page(request, problem)
    back = _own_path(console, form.get("next", ""))
    shown = form.get("token", "").strip()
    token = console.access.find(shown) if 0 < len(shown) <= _MOST_TOKEN else None
    if token is None:
        await slow_down(console, request)
        return _render_login(console, back, "This token is not accepted.", 401)
    console.logins.succeeded(source_of(peer_address(request)))
    console.sessions.end(request.cookies.get(COOKIE, ""))
    session = console.sessions.begin(token)
    answer = RedirectResponse(back, 303)
    answer.set_cookie(
        COOKIE,
        session.id,
        max_age=int(LIFETIME),
        path=console.settings.prefix or "/",
        secure=console.settings.tls is not None,
        httponly=True,
        samesite="strict",
    )
    return answer


async def _handle_logout(request: Request) -> Response:
    console: Console = request.app.state.console
    caller = caller_of(console, request)
    if caller is not None and caller.session is not None:
        try:
            await _end(console, caller, request)
        except Problem as problem:
            return error_page(request, problem)
    answer = RedirectResponse(f"{console.settings.prefix}/login", 303)
    answer.delete_cookie(COOKIE, path=console.settings.prefix or "/")
    return answer


async def _end(console: Console, caller: Caller, request: Request) -> None:
    form = await form_of(request, _MOST_FORM)
    session = console.sessions.find(caller.session or "")
    if session is None or not session.shows(form.get("csrf", "")):
        raise Problem(403, "csrf", "this form is of an earlier login: load the page again")
    console.sessions.end(session.id)


def _own_path(console: Console, given: str) -> str:
    """The path to return to: one of this console's pages, and of no other host."""
    start = f"{console.settings.prefix}/"
    plain = given.isprintable() and len(given) <= 2048 and "\\" not in given
    if plain and given.startswith(start) and not given.startswith("//"):
        return given
    return start


def _render_login(
    console: Console, back: str, problem: str | None = None, status: int = 200
) -> Response:
    values = {
        "prefix": console.settings.prefix,
        "namespace": None,
        "csrf": "",
        "who": None,
        "changes": False,
        "next": back,
        "problem": problem,
    }
    return HTMLResponse(render_page("login.html", values), status, {"Cache-Control": "no-store"})
