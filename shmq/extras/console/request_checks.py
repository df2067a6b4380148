"""The checks of each request: Host, Origin, CSRF and the caller; the headers of each answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from shmq.extras.console.access import Caller
from shmq.extras.console.context import Console
from shmq.extras.console.problem import Problem

COOKIE: Final = "shmq_session"
CSRF_HEADER: Final = "x-shmq-csrf"

#: The headers of every answer. No script, style, font or picture comes from another host.
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def _host(value: str) -> str:
    """The host of ``HOST:PORT``, in lower case; empty for one that is not a host."""
    try:
        return (urlsplit(f"//{value}").hostname or "").lower()
    except ValueError:
        return ""


def peer_of(connection: HTTPConnection) -> str:
    """The caller's address and port; "local" of a Unix socket."""
    client = connection.client
    return f"{client.host}:{client.port}" if client is not None and client.host else "local"


def peer_address(connection: HTTPConnection) -> str:
    """The caller's address alone, by which failed logins are counted."""
    client = connection.client
    return client.host if client is not None and client.host else "local"


class Guard:
    """Refuses requests to another name of this host, or from another site."""

    def __init__(self, console: Console) -> None:
        settings = console.settings
        self._hosts = _LOOPBACK | {host.lower() for host in settings.hosts}
        self._local = settings.bind.is_local
        self._any = not self._local and not settings.hosts

    def check(self, connection: HTTPConnection) -> None:
        """Raise Problem for a Host or an Origin that is not this console's.

        A name that a foreign site lets point to 127.0.0.1 (DNS rebinding) is such a Host.
        """
        shown = connection.headers.getlist("host")
        host = _host(shown[0]) if len(shown) == 1 else ""
        if not host or not (self._any or host in self._hosts):
            raise Problem(
                421,
                "wrong-host",
                f"this console is not {', '.join(shown)[:80] or 'without a name'}: open it as "
                f"{', '.join(sorted(self._hosts))}, or start it with --host NAME",
            )
        origin = connection.headers.get("origin")
        if origin is not None and not self._is_own(origin, shown[0]):
            raise Problem(403, "csrf", f"a page of {origin[:80]} may not use this console")

    @staticmethod
    def _is_own(origin: str, host: str) -> bool:
        try:
            return urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return False


def caller_of(console: Console, connection: HTTPConnection) -> Caller | None:
    """Who calls; None if a token is wanted and there is none that is accepted."""
    peer = peer_of(connection)
    shown = connection.headers.get("authorization")
    if shown is not None:
        scheme, _, value = shown.partition(" ")
        token = console.access.find(value.strip()) if scheme.lower() == "bearer" else None
        if token is not None:
            return Caller(token, peer, bearer=True)
        if console.access.asks:
            return None
    if not console.access.asks:
        return Caller(None, peer, bearer=False)
    session = console.sessions.find(connection.cookies.get(COOKIE, ""))
    if session is None or not console.access.still(session.token):
        return None
    return Caller(session.token, peer, session=session.id)


def check_change_allowed(console: Console) -> None:
    """Raise Problem if this console changes nothing."""
    if not console.settings.allow_changes:
        raise Problem(
            403, "read-only", "this console only shows: start it with --allow-changes to change"
        )


def check_change(console: Console, caller: Caller, given: str | None) -> None:
    """Raise Problem for a change that is not allowed, or that a foreign page might have sent.

    ``given`` is the CSRF token of the request. A request that shows its token itself needs none.
    """
    check_change_allowed(console)
    if caller.bearer:
        return
    if caller.session is None:
        good = bool(given)  # any value: no foreign page can send this header
        remedy = "send it with any value, which no page of another site can"
    else:
        session = console.sessions.find(caller.session)
        good = session is not None and session.shows(given or "")
        remedy = "load the page again, or show a token by Authorization: Bearer TOKEN"
    if not good:
        raise Problem(403, "csrf", f"the header X-Shmq-CSRF is missing or wrong: {remedy}")
