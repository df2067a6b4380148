"""``shmq exchange`` and ``shmq publish``: exchanges, and messages published to one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

import shmq
from shmq.api import ExchangeKind
from shmq.cli.queue import delete_one
from shmq.cli.shared import params
from shmq.cli.shared.audited import audited
from shmq.cli.shared.flags import Group, connected, json_flag, yes_flag
from shmq.cli.shared.messages import checked_properties, decode, message_flags, open_lines
from shmq.cli.shared.names import (
    EXCHANGE,
    QUEUE,
    STREAM,
    complete_exchanges,
    complete_names,
    complete_queues,
    complete_streams,
    exchange_name,
    kind_of,
    new_name,
)
from shmq.cli.shared.output import (
    also_shown,
    cell,
    counted,
    name_cell,
    note,
    quoted,
    show,
    show_json,
    show_table,
    table,
)
from shmq.client.shared.name_texts import with_texts
from shmq.host.supervision.audit import Event
from shmq.host.supervision.signals import Stop

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Group, epilog="Example: shmq exchange bind events orders --key 'order.#'")
def exchange() -> None:
    """Make, bind, list and delete exchanges.

    An exchange puts a copy of each published message in every queue whose binding matches.
    """


@exchange.command(epilog="Example: shmq exchange create audit --kind fanout")
@new_name("EXCHANGE")
@click.option(
    "--kind",
    type=click.Choice(get_args(ExchangeKind)),
    default="direct",
    show_default=True,
    help="Route by equal key, by key pattern, to every binding, or by headers.",
)
@click.option(
    "--alternate",
    type=params.text,
    metavar="NAME",
    shell_complete=complete_exchanges,
    help="The exchange for messages that no binding matches.  [default: none]",
)
@json_flag
@connected
def create(
    broker: shmq.Broker, /, name: str, kind: ExchangeKind, alternate: str | None, as_json: bool
) -> None:
    """Make an exchange.

    Repeating the command with the same options changes nothing; other options are refused.
    """
    with audited(broker, Event.EXCHANGE_CREATE, name, kind=kind, alternate=alternate):
        broker.create_exchange(name, kind, alternate).close()
    if as_json:
        definition = {"exchange": name, "kind": kind, "alternate": alternate}
        show_json({"namespace": broker.namespace, **definition})
    else:
        show(f"exchange {quoted(name)} ({kind}) is ready in namespace {broker.namespace!r}")


def _add_binding_flags(command: F) -> F:
    for decorate in reversed(
        (
            exchange_name,
            click.argument(
                "target", type=params.name, metavar="[TARGET]", required=False,
                shell_complete=complete_names,
            ),
            click.option(
                "-q", "--queue", type=params.name, metavar="NAME", shell_complete=complete_queues,
                help="The same as TARGET: a queue.",
            ),
            click.option(
                "--stream", type=params.name, metavar="NAME", shell_complete=complete_streams,
                help="The same as TARGET: a stream.",
            ),
            click.option(
                "--to", type=params.name, metavar="NAME", shell_complete=complete_exchanges,
                help="The same as TARGET: an exchange.",
            ),
            click.option(
                "-k", "--key", type=params.text, default="", metavar="KEY",
                help="The key. For a topic exchange a pattern: * is one word, # any number.",
            ),
            click.option(
                "--header", "headers", type=params.wanted_header, multiple=True,
                metavar="KEY[=VALUE]",
                help="For a headers exchange: a header, with any value or VALUE; may be repeated.",
            ),
            click.option(
                "--match", type=click.Choice(["all", "any"]), default="all", show_default=True,
                help="For a headers exchange: which of the headers a message must have.",
            ),
            json_flag,
        )
    ):  # fmt: skip
        command = decorate(command)
    return command


@exchange.command(epilog="Example: shmq exchange bind events orders --key 'order.#'")
@_add_binding_flags
@connected
def bind(broker: shmq.Broker, /, name: str, as_json: bool, **given: Any) -> None:
    """Bind an exchange to a queue, a stream or another exchange."""
    target, binding = _resolve_binding(broker, **given)
    with (
        audited(broker, Event.EXCHANGE_BIND, name, target=target, key=binding["key"]) as details,
        broker.exchange(name) as found,
    ):
        details["changed"] = made = found.bind(target, **binding)
    _report(name, target, as_json, "bound", made, "is already bound in this way")


@exchange.command(epilog="Example: shmq exchange unbind events orders --key 'order.#'")
@_add_binding_flags
@connected
def unbind(broker: shmq.Broker, /, name: str, as_json: bool, **given: Any) -> None:
    """Remove a binding; give the options that it was made with."""
    target, binding = _resolve_binding(broker, **given)
    with (
        audited(broker, Event.EXCHANGE_UNBIND, name, target=target, key=binding["key"]) as details,
        broker.exchange(name) as found,
    ):
        details["changed"] = done = found.unbind(target, **binding)
    _report(name, target, as_json, "unbound", done, "is not bound in this way")


def _resolve_binding(
    broker: shmq.Broker,
    target: str | None,
    queue: str | None,
    stream: str | None,
    to: str | None,
    key: str,
    headers: tuple[tuple[str, str | None], ...],
    match: str,
) -> tuple[str, dict[str, Any]]:
    """The name of the target, and the other arguments of a bind."""
    flags = {QUEUE: queue, STREAM: stream, EXCHANGE: to}
    given = [(kind, name) for kind, name in flags.items() if name is not None]
    if len(given) + (target is not None) != 1:
        raise click.UsageError(
            "name one target: TARGET, or with its kind -q QUEUE, --stream STREAM or --to EXCHANGE"
        )
    kind, name = given[0] if target is None else (_find_kind(broker, target), target)
    return name, {"key": key, "kind": kind, "headers": dict(headers) or None, "match": match}


def _find_kind(broker: shmq.Broker, target: str) -> str:
    try:
        return kind_of(broker, target)
    except click.UsageError as error:
        reason = error.message.replace("--kind", "-q, --stream or --to")
        raise click.UsageError(reason) from None


def _report(name: str, target: str, as_json: bool, what: str, done: bool, else_: str) -> None:
    if as_json:
        show_json({"exchange": name, "target": target, what: done})
    elif done:
        side = "to" if what == "bound" else "from"
        show(f"{quoted(target)} is {what} {side} exchange {quoted(name)}")
    else:
        show(f"{quoted(target)} {else_}: exchange {quoted(name)} is unchanged")


@exchange.command(epilog="Example: shmq exchange delete events --yes")
@exchange_name
@yes_flag
@json_flag
@connected
def delete(broker: shmq.Broker, /, name: str, yes: bool, as_json: bool) -> None:
    """Delete an exchange and its bindings; the queues stay."""
    delete_one(broker, EXCHANGE, name, yes=yes, as_json=as_json)


@exchange.command("list", epilog="Example: shmq exchange list events")
@click.argument(
    "name",
    type=params.name,
    metavar="[EXCHANGE]",
    required=False,
    shell_complete=complete_exchanges,
)
@json_flag
@connected
def list_exchanges(broker: shmq.Broker, /, name: str | None, as_json: bool) -> None:
    """List the exchanges, or the bindings of one."""
    if name is not None:
        with broker.exchange(name) as found:
            _show_bindings(name, with_texts(broker, found.bindings(), "target"), as_json)
        return
    exchanges = broker.list_exchanges()
    if as_json:
        show_json([also_shown(dataclasses.asdict(each)) for each in exchanges])
    elif not exchanges:
        note(
            f"namespace {broker.namespace!r} has no exchanges: make one with "
            f"shmq exchange create NAME"
        )
    else:
        numbers = ("bindings", "published", "unrouted")
        made = table(["exchange", "kind", *numbers, "alternate"], right=numbers)
        for each in exchanges:
            made.add_row(
                name_cell(each.name),
                each.kind,
                cell(each.bindings),
                *("" if n is None else cell(n) for n in (each.published, each.unrouted)),
                name_cell(each.alternate or ""),
            )
        show_table(made)


def _show_bindings(name: str, bindings: list[shmq.Binding], as_json: bool) -> None:
    if as_json:
        show_json([also_shown(dataclasses.asdict(each), "target") for each in bindings])
    elif not bindings:
        note(f"exchange {name!r} is bound to nothing: see shmq exchange bind --help")
    else:
        made = table(["to", "target", "by"])
        for each in bindings:
            made.add_row(each.kind, name_cell(each.target), cell(_describe_match(each)))
        show_table(made)


def _describe_match(binding: shmq.Binding) -> str:
    """The key or the headers of a binding, in one line."""
    if binding.headers is None:
        return binding.key
    each = (f"{k}={v}" if v is not None else k for k, v in binding.headers.items())
    return f"{binding.match}: {', '.join(each)}"


#: The longest line, in bytes; each queue checks its own limit.
_LONGEST = 1 << 30


@click.command(epilog="Example: shmq publish events --key order.paid -m 4711")
@exchange_name
@click.option("-k", "--key", type=params.text, default="", metavar="KEY", help="The routing key.")
@click.option(
    "--mandatory/--no-mandatory",
    default=None,
    help="Whether a message that reaches no queue is an error.  [default: it is, except of topic "
    "and fanout exchanges]",
)
@message_flags
@json_flag
@connected
def publish(
    broker: shmq.Broker,
    /,
    name: str,
    key: str,
    mandatory: bool | None,
    messages: tuple[str, ...],
    path: str | None,
    block: bool | None,
    timeout: float | None,
    as_json: bool,
    **properties: Any,
) -> None:
    """Publish messages to an exchange.

    Each -m TEXT is a message. Without -m, each line of FILE or of standard input is a message.
    The last line of output says how many copies were put in queues, also after an error.
    """
    given = checked_properties(messages, path, properties)
    with broker.exchange(name) as exchange, Stop() as stop:
        publishing = _Publishing(exchange, key, block, timeout, {**given, "mandatory": mandatory})
        try:
            if len(messages) == 1:
                with stop.interruptible():
                    publishing.one(os.fsencode(messages[0]))
                return
            lines = [[os.fsencode(text) for text in messages]] if messages else None
            for batch in lines or open_lines(path, _LONGEST):
                with stop.interruptible():
                    publishing.many(batch)
        finally:
            publishing.report(as_json)


class _Publishing:
    """Publishes messages given as text, and counts the copies."""

    def __init__(
        self,
        exchange: shmq.Exchange,
        key: str,
        block: bool | None,
        timeout: float | None,
        properties: dict[str, Any],
    ) -> None:
        self._exchange = exchange
        self._how = (key, block, timeout)
        self._properties = properties
        self._seen = 0
        self._delivered = 0
        self._duplicates = 0
        self._unrouted = 0

    def one(self, text: bytes) -> None:
        """Publish one message."""
        body = self._decode_body(text)
        self._count(1, lambda: self._exchange.publish(body, *self._how, **self._properties))

    def many(self, texts: list[bytes]) -> None:
        """Publish some messages."""
        bodies = [self._decode_body(text) for text in texts]
        self._count(
            len(bodies), lambda: self._exchange.publish_many(bodies, *self._how, **self._properties)
        )

    def _count(self, messages: int, publish: Callable[[], shmq.Published]) -> None:
        try:
            outcome = publish()
            self._add(outcome)
            if not outcome.delivered and not outcome.duplicates:
                self._unrouted += messages
        except shmq.PublishRefused as error:
            self._add(error)
            raise

    def _add(self, outcome: shmq.Published | shmq.PublishRefused) -> None:
        self._delivered += outcome.delivered
        self._duplicates += outcome.duplicates

    def _decode_body(self, text: bytes) -> Any:
        self._seen += 1
        try:
            return decode(text, self._properties["codec"])
        except ValueError as error:
            raise click.ClickException(f"message {self._seen}: {error}") from None

    def report(self, as_json: bool) -> None:
        """Say how many copies were put."""
        name, put = self._exchange.name, counted(self._delivered, "message")
        if as_json:
            counts = {"delivered": self._delivered, "duplicates": self._duplicates}
            show_json({"exchange": name, **counts, "unrouted": self._unrouted})
            return
        duplicates = f", {self._duplicates} dropped as duplicates" if self._duplicates else ""
        unrouted = f", {self._unrouted} unrouted" if self._unrouted else ""
        show(f"{put} put by exchange {name!r}{duplicates}{unrouted}")
