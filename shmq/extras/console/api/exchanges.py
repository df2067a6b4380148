"""Exchanges: their list, one with its bindings, a publish, and where a key would go."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

import shmq
from shmq.api.exchange import ExchangeKind
from shmq.api.options import Match, TargetKind
from shmq.client.shared.differences import check_same
from shmq.extras.console.api.messages import NewMessage, properties_of
from shmq.extras.console.api.operation import (
    LONGEST,
    Answer,
    Call,
    Parameter,
    Wait,
    ensure,
    operation,
    view_as,
)
from shmq.extras.console.api.routes import decode
from shmq.extras.console.api.rows import PAGE, Page, Table
from shmq.extras.console.problem import Problem, problem_of
from shmq.model.routing.trace import Shown, trace
from shmq.protocol.opcodes import Right

#: The columns of the list.
COLUMNS: Final = {
    "name": "text",
    "kind": "text",
    "bindings": "number",
    "alternate": "text",
    "published": "number",
    "unrouted": "number",
    "problem": "text",
}
_TABLE: Final = Table(COLUMNS)
_NAME: Final = Parameter("name", "string", "the exchange's name", most=255)

Kind = Literal["direct", "topic", "fanout", "headers"]
assert get_args(Kind) == get_args(ExchangeKind)


class BindingView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One binding: which messages are passed on, and to which target."""

    target: str
    kind: TargetKind = "queue"
    #: The key of a direct exchange, or the pattern of a topic exchange.
    key: str = ""
    #: For a headers exchange: what a message must have; null as a value: any value.
    headers: dict[str, Any] | None = None
    #: For a headers exchange: whether all of them, or any one.
    match: Match = "all"


class ExchangeView(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange, with the bindings to what the caller may see."""

    name: str
    kind: str
    alternate: str | None
    #: Messages published to it since it was created; null: they are not counted.
    published: int | None
    #: How many of them reached no queue or stream.
    unrouted: int | None
    bindings: list[BindingView]


class NewExchange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an exchange is to be; what is left out is not compared with one that exists."""

    kind: Kind | msgspec.UnsetType = msgspec.UNSET
    #: The exchange that gets the messages that no binding matches.
    alternate: str | msgspec.UnsetType | None = msgspec.UNSET


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there was anything to change."""

    changed: bool


class Publish(NewMessage, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to be published."""

    #: The routing key.
    key: str = ""
    #: Whether a message that reaches no queue or stream is rejected as unroutable; null: as true
    #: for a direct or headers exchange, as false for a topic or fanout exchange.
    mandatory: bool | None = None


class PublishAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How many copies were put."""

    delivered: int
    #: Copies that were not put, because a queue knew their dedupe id.
    duplicates: int


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange on the way of a message."""

    exchange: str
    kind: str
    #: The bindings that match.
    matched: list[BindingView]
    #: The exchange that gets the message because no binding matches.
    alternate: str | None


class RouteView(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message would go."""

    queues: list[str]
    streams: list[str]
    #: The exchanges that it would pass, in order.
    steps: list[StepView]
    #: Whether it would also go where the caller may see nothing.
    hidden: bool


@operation("GET", "/exchanges", *PAGE, answer=Page, tag="exchanges")
def list_exchanges(call: Call) -> Page:
    """List exchanges, in pages."""
    caller = call.caller
    found = {
        one.name: {
            "name": one.name,
            "kind": one.kind,
            "bindings": one.bindings,
            "alternate": _hide_invisible(call, one.alternate),
            "published": one.published,
            "unrouted": one.unrouted,
            "problem": one.problem,
        }
        for one in call.latest.exchanges
        if caller.sees("exchange", one.name)
    }
    return _TABLE.page(call, found, lambda name: found[name])


def _hide_invisible(call: Call, alternate: str | None) -> str | None:
    shown = alternate is not None and call.caller.sees("exchange", alternate)
    return alternate if shown else None


@operation("GET", "/exchanges/{name}", _NAME, answer=ExchangeView, tag="exchanges")
def get_exchange(call: Call) -> ExchangeView:
    """Show one exchange with its bindings."""
    call.see("exchange", call["name"])
    with call.console.broker.exchange(call["name"]) as exchange:
        return _make_view(call, exchange)


def _make_view(call: Call, exchange: shmq.Exchange) -> ExchangeView:
    stats = exchange.stats()
    return ExchangeView(
        name=exchange.name,
        kind=exchange.kind,
        alternate=_hide_invisible(call, exchange.alternate),
        published=stats.published,
        unrouted=stats.unrouted,
        bindings=[
            view_as(BindingView, one)
            for one in exchange.bindings()
            if call.caller.sees(one.kind, one.target)
        ],
    )


@operation("PUT", "/exchanges/{name}", _NAME, body=NewExchange, answer=ExchangeView,
           tag="exchanges", also=(201,), audit="exchange.create")  # fmt: skip
def put_exchange(call: Call) -> Answer:
    """Create the exchange, or see that it is there with this kind and this alternate.

    201 if it was made, 200 if it existed so, 409 with the differences otherwise.
    """
    name = call["name"]
    call.need(Right.ADMIN, "exchange", name)
    given = {
        key: value
        for key, value in (("kind", call.body.kind), ("alternate", call.body.alternate))
        if value is not msgspec.UNSET
    }
    if given.get("alternate") is not None:
        call.need(Right.PRODUCE, "exchange", given["alternate"])
    broker = call.console.broker
    exchange, status = ensure(
        name, given, broker.exchange, broker.create_exchange, shmq.NoSuchExchange
    )
    with exchange:
        try:
            check_same(exchange, given)
        except shmq.ExchangeExists as error:
            raise _hide_alternate(call, name, error) from None
        return Answer(value=_make_view(call, exchange), status=status)


def _hide_alternate(call: Call, name: str, error: shmq.ExchangeExists) -> shmq.ExchangeExists:
    """The error without an alternate that the caller may not see."""
    differences = dict(error.differences)
    if "alternate" in differences:
        wanted, there = differences["alternate"]
        differences["alternate"] = wanted, _hide_invisible(call, there)
    return shmq.ExchangeExists.of(name, differences)


@operation("DELETE", "/exchanges/{name}", _NAME, tag="exchanges", status=204,
           audit="exchange.delete")  # fmt: skip
def delete_exchange(call: Call) -> Answer:
    """Delete the exchange and all bindings from it and to it; the queues stay."""
    call.need(Right.ADMIN, "exchange", call["name"])
    call.console.broker.delete_exchange(call["name"])
    return Answer(status=204)


@operation("POST", "/exchanges/{name}/bind", _NAME, body=BindingView, answer=Changed,
           tag="exchanges", audit="exchange.bind")  # fmt: skip
def bind_exchange(call: Call) -> Changed:
    """Pass matching messages on to a queue, a stream or another exchange."""
    call.need(Right.ADMIN, "exchange", call["name"])
    given = call.body
    call.need(Right.PRODUCE, given.kind, given.target)
    with call.console.broker.exchange(call["name"]) as exchange:
        return Changed(changed=exchange.bind(**msgspec.structs.asdict(given)))


@operation("POST", "/exchanges/{name}/unbind", _NAME, body=BindingView, answer=Changed,
           tag="exchanges", audit="exchange.unbind")  # fmt: skip
def unbind_exchange(call: Call) -> Changed:
    """Remove a binding; give what it was made with."""
    call.need(Right.ADMIN, "exchange", call["name"])
    with call.console.broker.exchange(call["name"]) as exchange:
        return Changed(changed=exchange.unbind(**msgspec.structs.asdict(call.body)))


@operation(
    "POST",
    "/exchanges/{name}/publish",
    _NAME,
    Parameter("Idempotency-Key", "string", "the dedupe id of the message", None, 1, 255,
              place="header"),
    Parameter("timeout", "number", "how long to wait for room, in seconds", 0.0, 0, LONGEST),
    body=Publish,
    answer=PublishAnswer,
    status=201,
    tag="exchanges",
    waits=True,
)  # fmt: skip
def publish_message(call: Call) -> PublishAnswer:
    """Put one copy into each queue and stream that the key or the headers lead to."""
    call.need(Right.PRODUCE, "exchange", call["name"])
    body, properties = properties_of(call.body)
    properties["mandatory"] = call.body.mandatory
    if call["Idempotency-Key"] is not None:
        properties["dedupe_id"] = call["Idempotency-Key"]
    wait = Wait(call, call["timeout"])
    with call.console.broker.exchange(call["name"]) as exchange:
        try:
            # A queue behind it may keep to the disk: that is not known here.
            done = wait.put(exchange.publish, body, call.body.key, disk=True, **properties)
        except shmq.PublishRefused as error:
            raise _make_problem(error) from error
    return PublishAnswer(delivered=done.delivered, duplicates=done.duplicates)


def _make_problem(error: shmq.PublishRefused) -> Problem:
    """The problem of a publish that some queues refused: with the reason of the first of them."""
    why = [found for found in map(problem_of, error.refused.values()) if found is not None]
    first = why[0] if why else Problem(500, "failed", "")
    return Problem(
        first.status,
        first.code,
        str(error),
        delivered=error.delivered,
        duplicates=error.duplicates,
        refused={name: str(each) for name, each in error.refused.items()},
    )


@operation(
    "GET",
    "/exchanges/{name}/route",
    _NAME,
    Parameter("key", "string", "the routing key", "", most=255),
    Parameter("header", "string", 'headers, as a JSON object: {"kind":"a"}', None, most=1024),
    answer=RouteView,
    tag="exchanges",
)
def route_of(call: Call) -> RouteView:
    """Show where a message would go, and publish none."""
    call.see("exchange", call["name"])
    headers = {} if call["header"] is None else _parse_headers(call["header"])
    hidden = False

    def look(name: str) -> Shown | None:
        nonlocal hidden
        if not call.caller.sees("exchange", name):
            hidden = True
            return None
        with call.console.broker.exchange(name) as found:
            return Shown(found.kind, found.alternate, found.bindings())

    steps = trace(call["name"], call["key"], headers, look)
    matched = [one for step in steps for one in step.matched]
    shown = [one for one in matched if call.caller.sees(one.kind, one.target)]
    return RouteView(
        queues=sorted({one.target for one in shown if one.kind == "queue"}),
        streams=sorted({one.target for one in shown if one.kind == "stream"}),
        steps=[
            StepView(
                exchange=step.exchange,
                kind=step.kind,
                matched=[view_as(BindingView, one) for one in step.matched if one in shown],
                alternate=_hide_invisible(call, step.alternate),
            )
            for step in steps
        ],
        hidden=hidden or len(shown) < len(matched),
    )


def _parse_headers(text: str) -> dict[str, Any]:
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise Problem.invalid(f"header: {error}") from None
    found: dict[str, Any] = decode(content, dict[str, Any])
    return found
