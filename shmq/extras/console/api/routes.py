"""The routes of the API: one request is checked, decoded, handled in a thread, and answered."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import anyio
import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route

from shmq.api.names import check_name
from shmq.errors import NotFound
from shmq.extras.console.access import Caller
from shmq.extras.console.api.operation import (
    EVENT_PREFIX,
    OPERATIONS,
    Answer,
    Call,
    Operation,
    Parameter,
)
from shmq.extras.console.context import Console, in_thread
from shmq.extras.console.problem import Problem, problem_of
from shmq.extras.console.request_checks import (
    CSRF_HEADER,
    caller_of,
    check_change,
    peer_address,
    peer_of,
)
from shmq.host.supervision.audit import Actor, Event, Value, record
from shmq.host.supervision.login_failures import source_of
from shmq.suggestions import suggest

log = logging.getLogger("shmq.console")

API: Final = "/api/v1"
#: The largest body of a request, in bytes.
MOST_BODY: Final = 64 << 20
#: How long the body of a request may take to arrive, in seconds.
PATIENCE: Final = 60
#: How many requests are handled at a time, and how many of them may wait for messages.
_THREADS: Final = 32
_WAITING: Final = 64

#: The parts of paths that are names, and what they name in the text of a refusal.
NAMED: Final = {"name": "entity", "group": "group"}

#: The fields of a body that the audit has, and those of an answer with their names there.
_ASKED: Final = ("target", "key", "kind", "alternate", "where", "to", "partitions")
_DONE: Final = {"count": "messages", "changed": "changed", "version": "version"}

_PART: Final = re.compile(r"\{(\w+)\}")


def routes() -> list[Route]:
    """A route for each path, with all of its methods."""
    by_path: dict[str, dict[str, Operation]] = {}
    for one in OPERATIONS:
        by_path.setdefault(one.path, {})[one.method] = one
    # A path with a fixed part stands before one with a name in its place.
    ordered = sorted(by_path.items(), key=lambda row: _PART.sub("~", row[0]))
    return [
        Route(API + path, _make_endpoint(methods), methods=[*methods, *_OTHERS - methods.keys()])
        for path, methods in ordered
    ]


_OTHERS: Final = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}


def _make_endpoint(methods: Mapping[str, Operation]) -> Any:
    async def endpoint(request: Request) -> Response:
        asked = "GET" if request.method == "HEAD" else request.method
        found = methods.get(asked)
        if found is None:
            allowed = ", ".join(sorted(methods))
            raise Problem(
                405,
                "unknown-path",
                f"{request.method} is not a method of {request.url.path}: use {allowed}",
                headers={"Allow": allowed},
            )
        try:
            return await _answer(found, request)
        except Exception as error:  # noqa: BLE001 - each becomes problem details
            return problem_answer(error)

    return endpoint


@functools.cache
def _choose_limiter(waits: bool) -> anyio.CapacityLimiter:
    return anyio.CapacityLimiter(_WAITING if waits else _THREADS)


async def _answer(row: Operation, request: Request) -> Response:
    console: Console = request.app.state.console
    caller = await admit(console, request)
    if row.changes:
        check_change(console, caller, request.headers.get(CSRF_HEADER))
    call = Call(
        console=console,
        caller=caller,
        given=given_of(row, request),
        body=await _read_body(row, request),
        headers={key.lower(): value for key, value in request.headers.items()},
    )
    return await answer_call(row, call)


async def admit(console: Console, request: HTTPConnection) -> Caller:
    """Return the caller. Raises Problem 401, after a delay that grows with the failed attempts."""
    caller = caller_of(console, request)
    if caller is not None:
        if caller.bearer:
            console.logins.succeeded(source_of(peer_address(request)))
        return caller
    if "authorization" in request.headers:
        await slow_down(console, request)
    raise unauthorized()


async def slow_down(console: Console, request: HTTPConnection) -> None:
    """Count a failed login of the caller's address, audit it, and wait as long as that asks."""
    source = source_of(peer_address(request))
    details = console.logins.failed(source)
    if details is not None:
        actor = Actor(who=None, peer=peer_of(request), via="http")
        record(Event.LOGIN_FAILED, "", "unauthorized", actor, **details)
    await anyio.sleep(console.logins.delay(source))


def unauthorized() -> Problem:
    """The reply to a request without a valid token."""
    return Problem(
        401,
        "unauthorized",
        "this console requires a token: send the header Authorization: Bearer TOKEN",
        headers={"WWW-Authenticate": 'Bearer realm="shmq"'},
    )


async def answer_call(row: Operation, call: Call) -> Response:
    """Run the handler in a thread, and make its answer a response."""
    limiter = _choose_limiter(row.waits)
    if row.waits and limiter.available_tokens <= 0:
        raise Problem(503, "too-many", f"{_WAITING} requests wait already: try again")
    found = await in_thread(_handle_audited, row, call, limiter=limiter)
    answer = found if isinstance(found, Answer) else Answer(value=found, status=row.status)
    content = answer.content
    if content is None:
        content = b"" if answer.status == 204 else encode(answer.value)
    return Response(
        content, answer.status, {**answer.headers, "Cache-Control": "no-store"}, answer.media
    )


def _handle_audited(row: Operation, call: Call) -> Any:
    """Handle the call; what changes a definition, and a refused right, is written to the audit."""
    name = next((str(call.given[part]) for part in _PART.findall(row.path)), "")
    actor = Actor(who=call.caller.name, peer=call.caller.peer, via="http")
    try:
        found = row.handler(call)
    except Exception as raised:
        error = call.not_found(raised) if isinstance(raised, NotFound) else raised
        problem = problem_of(error)
        code = problem.code if problem is not None else "failed"
        if problem is not None and problem.refuses_right:
            record(
                Event.RIGHT_REFUSED,
                name,
                code,
                actor,
                operation=row.name,
                **_describe_request(call),
            )
        elif row.audit is not None:
            record(Event(row.audit), name, code, actor, **_describe_request(call))
        if error is not raised:
            raise error from raised
        raise
    if row.audit is not None:
        record(
            Event(row.audit),
            name,
            "ok",
            actor,
            **_describe_request(call),
            **_describe_result(found),
        )
    return found


def _describe_request(call: Call) -> dict[str, Value]:
    """What the audit has of a request beside its name: the group, and the target of a binding."""
    found = {"group": call.given.get("group")} if "group" in call.given else {}
    if isinstance(call.body, msgspec.Struct):
        found |= {name: getattr(call.body, name, None) for name in _ASKED}
    return {name: value for name, value in found.items() if isinstance(value, str | int)}


def _describe_result(found: Any) -> dict[str, Value]:
    """What the audit has of an answer: how many messages, and whether there was a change."""
    counts = {key: getattr(found, name, None) for name, key in _DONE.items()}
    return {key: value for key, value in counts.items() if isinstance(value, str | int)}


def given_of(row: Operation, request: Request) -> dict[str, Any]:
    """The parts of the path and the checked parameters. Raises Problem for an unknown one."""
    known = {one.name: one for one in row.parameters if one.place == "query"}
    given: dict[str, Any] = {one.name: one.default for one in row.parameters}
    for key, value in request.query_params.multi_items():
        if key not in known:
            raise Problem.invalid(f"unknown parameter {key[:80]!r}: {suggest(key, known)}")
        given[key] = known[key].read(value)
    for one in row.parameters:
        if one.place == "header" and (shown := request.headers.get(one.name)) is not None:
            given[one.name] = one.read(shown)
    for one in row.parameters:
        if one.required and given[one.name] is None:
            raise Problem.invalid(f"{one.name} is missing: {one.text}")
    for name, part in request.path_params.items():
        if name in NAMED:
            check_name(part, NAMED[name])
        declared = next((one for one in row.parameters if one.name == name), Parameter(name))
        given[name] = declared.read(part)
    return given


async def _read_body(row: Operation, request: Request) -> Any:
    if row.body is None:
        await read_body(request, 0)
        return None
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_event = row.events and any(name.startswith(EVENT_PREFIX) for name in request.headers)
    if media not in row.media and not is_event:
        raise Problem(
            415,
            "invalid",
            f"Content-Type {media[:80] or 'missing'!r}: use {' or '.join(row.media)}",
        )
    content = await read_body(request, MOST_BODY)
    if row.body is bytes:
        return (media, content)
    return decode(content, row.body)


def decode(content: bytes, kind: Any) -> Any:
    """The body as an object of ``kind``. Raises Problem that names the field."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Problem.invalid(f"the body is not what is asked for: {error}") from None


def _make_too_large(request: Request, most: int) -> Problem:
    if not most:
        return Problem.invalid(f"{request.method} {request.url.path} takes no body")
    return Problem(413, "too-large", f"the body has more than {most} bytes")


async def read_body(request: Request, most: int) -> bytes:
    """The body. Raises Problem 413 beyond ``most`` bytes, before they are in memory, and 408."""
    found = bytearray()
    with anyio.move_on_after(PATIENCE) as scope:
        async for piece in request.stream():
            found += piece
            if len(found) > most:
                raise _make_too_large(request, most)
    if scope.cancelled_caught:
        raise Problem(
            408,
            "too-slow",
            f"only {len(found)} bytes of the body came within {PATIENCE} s: send it at once",
            headers={"Connection": "close"},
        )
    return bytes(found)


def encode(value: Any) -> bytes:
    """The value as JSON; bytes as Base64."""
    return msgspec.json.encode(value, enc_hook=_convert_foreign)


def _convert_foreign(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset | set | range):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


def problem_answer(error: Exception) -> Response:
    """The problem details of any failure; one of the console itself is logged."""
    problem = problem_of(error)
    if problem is None:
        log.error("a request failed by a fault of the console", exc_info=error)
        problem = Problem(
            500, "failed", f"internal error: {type(error).__name__}: the console's log has more"
        )
    return Response(
        encode(problem.as_dict()),
        problem.status,
        {**problem.headers, "Cache-Control": "no-store"},
        "application/problem+json",
    )
