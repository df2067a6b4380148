"""``shmq exchange``: make, bind, look at and delete exchanges."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

import shmq
from shmq.api import ExchangeKind
from shmq.cli.delete import delete_one
from shmq.cli.shared import params
from shmq.cli.shared.broker_target import target_of
from shmq.cli.shared.flags import BRIEFLY, complete_queues, connected, json_flag, yes_flag
from shmq.cli.shared.kinds import EXCHANGE
from shmq.cli.shared.output import cell, note, show, show_json, show_table, table

__all__ = ["complete_exchanges", "exchange", "exchange_argument"]

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
