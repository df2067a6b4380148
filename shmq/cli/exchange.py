"""``shmq exchange`` and ``shmq publish``: exchanges, and messages published to one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

import shmq
from shmq.api import ExchangeKind
from shmq.api.options import Confirm
from shmq.cli.queue import delete_one
from shmq.cli.shared import params
from shmq.cli.shared.batch_put import CODECS, decode
from shmq.cli.shared.broker_target import target_of
from shmq.cli.shared.flags import BRIEFLY, complete_queues, connected, json_flag, yes_flag
from shmq.cli.shared.input_lines import open_lines
from shmq.cli.shared.names import EXCHANGE
from shmq.cli.shared.output import cell, counted, note, show, show_json, show_table, table
from shmq.cli.shared.stop_signal import Stop

__all__ = ["complete_exchanges", "exchange", "exchange_argument", "publish"]

F = TypeVar("F", bound=Callable[..., Any])


def complete_exchanges(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """The names of exchanges that begin so; none where they cannot be had."""
    try:
        with target_of(context).connect(connect_timeout=BRIEFLY, request_timeout=BRIEFLY) as broker:
            return [x.name for x in broker.list_exchanges() if x.name.startswith(begun)]
    except (shmq.ShmqError, OSError, click.ClickException):
        return []


exchange_argument = click.argument(
    "name", metavar="EXCHANGE", type=params.text, shell_complete=complete_exchanges
)


@click.group(short_help="Make, bind and delete exchanges.")
def exchange() -> None:
    """Look after exchanges, which pass what is published on to queues.

    What an exchange is bound to gets a copy: see shmq publish.
    """


@exchange.command()
@exchange_argument
@click.option(
    "--kind",
    type=click.Choice(get_args(ExchangeKind)),
    default="direct",
    show_default=True,
    help="By what it passes messages on: their key, a pattern of it, nothing, or their headers.",
)
@click.option(
    "--alternate", metavar="NAME", help="The exchange that gets what no binding takes [none]."
)
@json_flag
@connected
def create(
    broker: shmq.Broker, /, name: str, kind: ExchangeKind, alternate: str | None, as_json: bool
) -> None:
    """Make an exchange.

    Making it again as it is changes nothing; as another it is refused.
    """
    broker.create_exchange(name, kind, alternate).close()
    if as_json:
        told = {"exchange": name, "kind": kind, "alternate": alternate}
        show_json({"namespace": broker.namespace, **told})
    else:
        show(f"exchange {name!r} ({kind}) is ready in namespace {broker.namespace!r}")


def _binding_flags(command: F) -> F:
    for decorate in reversed(
        (
            exchange_argument,
            click.option(
                "-q", "--queue", metavar="NAME", help="The queue.", shell_complete=complete_queues
            ),
            click.option("--stream", metavar="NAME", help="Or a stream."),
            click.option(
                "--to", metavar="NAME", help="Or an exchange.", shell_complete=complete_exchanges
            ),
            click.option(
                "-k", "--key", type=params.text, default="", metavar="KEY",
                help="The key; of a topic exchange a pattern: * is one word, # any number.",
            ),
            click.option(
                "--header", "headers", type=params.wanted_header, multiple=True,
                metavar="KEY[=VALUE]",
                help="Of a headers exchange: a header, without a value any; may be repeated.",
            ),
            click.option(
                "--match", type=click.Choice(["all", "any"]), default="all", show_default=True,
                help="Of a headers exchange: how many of them a message must have.",
            ),
            json_flag,
        )
    ):  # fmt: skip
        command = decorate(command)
    return command


@exchange.command()
@_binding_flags
@connected
def bind(broker: shmq.Broker, /, name: str, as_json: bool, **given: Any) -> None:
    """Pass on to a queue, or to another exchange."""
    target, binding = _binding(**given)
    with broker.exchange(name) as found:
        made = found.bind(target, **binding)
    _tell(name, target, as_json, "bound", made, "is bound so already")


@exchange.command()
@_binding_flags
@connected
def unbind(broker: shmq.Broker, /, name: str, as_json: bool, **given: Any) -> None:
    """Undo a bind: give the same flags."""
    target, binding = _binding(**given)
    with broker.exchange(name) as found:
        done = found.unbind(target, **binding)
    _tell(name, target, as_json, "unbound", done, "was not bound so")


def _binding(
    queue: str | None,
    stream: str | None,
    to: str | None,
    key: str,
    headers: tuple[tuple[str, str | None], ...],
    match: str,
) -> tuple[str, dict[str, Any]]:
    """The target, and the other arguments of a bind."""
    targets = {"queue": queue, "stream": stream, "exchange": to}
    given = [(kind, name) for kind, name in targets.items() if name is not None]
    if len(given) != 1:
        raise click.UsageError("say to what, once: -q QUEUE, --stream STREAM or --to EXCHANGE")
    kind, target = given[0]
    return target, {"key": key, "kind": kind, "headers": dict(headers) or None, "match": match}


def _tell(name: str, target: str, as_json: bool, what: str, done: bool, else_: str) -> None:
    if as_json:
        show_json({"exchange": name, "target": target, what: done})
    elif done:
        show(f"{target!r} is {what} {'to' if what == 'bound' else 'from'} exchange {name!r}")
    else:
        show(f"{target!r} {else_}: exchange {name!r} is as it was")


@exchange.command()
@exchange_argument
@yes_flag
@json_flag
@connected
def delete(broker: shmq.Broker, /, name: str, yes: bool, as_json: bool) -> None:
    """Delete an exchange and its bindings; the queues stay."""
    delete_one(broker, EXCHANGE, name, yes=yes, as_json=as_json)


@exchange.command("list")
@click.argument("name", metavar="[EXCHANGE]", required=False, shell_complete=complete_exchanges)
@json_flag
@connected
def list_exchanges(broker: shmq.Broker, /, name: str | None, as_json: bool) -> None:
    """List the exchanges, or the bindings of one."""
    if name is not None:
        with broker.exchange(name) as found:
            _show_bindings(name, found.bindings(), as_json)
        return
    exchanges = broker.list_exchanges()
    if as_json:
        show_json([dataclasses.asdict(each) for each in exchanges])
    elif not exchanges:
        note(
            f"namespace {broker.namespace!r} has no exchanges: make one with "
            f"shmq exchange create NAME"
        )
    else:
        made = table(["exchange", "kind", "bindings", "alternate"], right=("bindings",))
        for each in exchanges:
            made.add_row(
                cell(each.name), each.kind, cell(each.bindings), cell(each.alternate or "")
            )
        show_table(made)


def _show_bindings(name: str, bindings: list[shmq.Binding], as_json: bool) -> None:
    if as_json:
        show_json([dataclasses.asdict(each) for each in bindings])
    elif not bindings:
        note(f"exchange {name!r} is bound to nothing: see shmq exchange bind --help")
    else:
        made = table(["to", "target", "by"])
        for each in bindings:
            made.add_row(each.kind, cell(each.target), cell(_by(each)))
        show_table(made)


def _by(binding: shmq.Binding) -> str:
    """By what a binding chooses, in one line."""
    if binding.headers is None:
        return binding.key
    each = (f"{k}={v}" if v is not None else k for k, v in binding.headers.items())
    return f"{binding.match}: {', '.join(each)}"


#: The longest line, in bytes; what a queue takes, it says itself.
_LONGEST = 1 << 30


@click.command(short_help="Publish messages to an exchange.")
@exchange_argument
@click.option(
    "-k", "--key", type=params.text, default="", metavar="KEY", help="By what they are routed."
)
@click.option("-m", "--message", "messages", multiple=True, metavar="TEXT", help="Publish TEXT.")
@click.option("--file", "path", metavar="FILE", help="Publish each line of FILE; - is stdin.")
@click.option(
    "--priority", type=params.priority, metavar="N|low|normal|high",
    help="Higher is served first [the middle one].",
)  # fmt: skip
@click.option("--group", type=params.text, metavar="NAME", help="In order, one in flight a group.")
@click.option(
    "--header", "headers", type=params.header, multiple=True, metavar="KEY=VALUE",
    help="A header; may be repeated.",
)  # fmt: skip
@click.option("--delay", type=params.seconds, metavar="TIME", help="Visible only after TIME.")
@click.option("--ttl", type=params.seconds, metavar="TIME", help="Not delivered after TIME.")
@click.option(
    "--dedupe-id", type=params.text, metavar="ID", help="Put the message once in the window."
)
@click.option(
    "--codec", type=click.Choice(CODECS), default="text", show_default=True,
    help="What the messages are; all but text and bytes are given as JSON.",
)  # fmt: skip
@click.option(
    "--block/--no-block", default=None, help="Wait while a queue is full [as its overflow says]."
)
@click.option("--timeout", type=params.seconds, metavar="TIME", help="Wait for space at most TIME.")
@click.option(
    "--confirm", type=click.Choice(["memory", "disk"]),
    help="Where the messages are when it says that they were put [as each queue's option says].",
)  # fmt: skip
@json_flag
@connected
def publish(
    broker: shmq.Broker,
    /,
    name: str,
    key: str,
    messages: tuple[str, ...],
    path: str | None,
    headers: tuple[tuple[str, str], ...],
    dedupe_id: str | None,
    codec: str,
    block: bool | None,
    timeout: float | None,
    confirm: Confirm | None,
    as_json: bool,
    **properties: Any,
) -> None:
    """Publish messages, given as flags or lines, to an exchange.

    Each -m TEXT is a message, or else each line of FILE or of standard input. It says how
    many copies were put into queues.
    """
    if messages and path is not None:
        raise click.UsageError("-m and --file exclude each other: drop one")
    if dedupe_id is not None and len(messages) != 1:
        raise click.UsageError("--dedupe-id names one message: give exactly one -m TEXT")
    properties |= {"codec": codec, "headers": dict(headers) or None, "confirm": confirm}
    with broker.exchange(name) as exchange, Stop() as stop:
        publishing = _Publishing(exchange, key, block, timeout, properties)
        try:
            if len(messages) == 1:
                with stop.interruptible():
                    publishing.one(os.fsencode(messages[0]), dedupe_id)
                return
            lines = [[os.fsencode(text) for text in messages]] if messages else None
            for batch in lines or open_lines(path, _LONGEST):
                with stop.interruptible():
                    publishing.many(batch)
        finally:
            publishing.report(as_json)


class _Publishing:
    """Publishes what texts stand for, and counts."""

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

    def one(self, text: bytes, dedupe_id: str | None) -> None:
        """Publish one message."""
        body = self._body(text)
        self._count(
            lambda: self._exchange.publish(
                body, *self._how, dedupe_id=dedupe_id, **self._properties
            )
        )

    def many(self, texts: list[bytes]) -> None:
        """Publish some messages."""
        bodies = [self._body(text) for text in texts]
        self._count(lambda: self._exchange.publish_many(bodies, *self._how, **self._properties))

    def _count(self, publish: Callable[[], shmq.Published]) -> None:
        try:
            self._add(publish())
        except shmq.PublishRefused as error:
            self._add(error)
            raise

    def _add(self, told: shmq.Published | shmq.PublishRefused) -> None:
        self._delivered += told.delivered
        self._duplicates += told.duplicates

    def _body(self, text: bytes) -> Any:
        self._seen += 1
        try:
            return decode(text, self._properties["codec"])
        except ValueError as error:
            raise click.ClickException(f"message {self._seen}: {error}") from None

    def report(self, as_json: bool) -> None:
        """Say how many copies were put."""
        name, put = self._exchange.name, counted(self._delivered, "message")
        if as_json:
            told = {"delivered": self._delivered, "duplicates": self._duplicates}
            show_json({"exchange": name, **told})
        elif self._duplicates:
            show(f"{put} put by exchange {name!r}, {self._duplicates} known already")
        else:
            show(f"{put} put by exchange {name!r}")
