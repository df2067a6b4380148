"""How a command names queues, streams and exchanges."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

import shmq
from shmq.cli.shared.broker_target import target_of
from shmq.cli.shared.flags import BRIEFLY
from shmq.cli.shared.output import counted, note

__all__ = [
    "EXCHANGE",
    "KINDS",
    "QUEUE",
    "STREAM",
    "complete_names",
    "damage_flag",
    "exchange_as_dict",
    "found_of",
    "kind_of",
    "kinds_flag",
    "partition_flag",
    "stream_activity",
    "stream_argument",
    "tell_damage",
]

F = TypeVar("F", bound=Callable[..., Any])
QUEUE: Final = "queue"
STREAM: Final = "stream"
EXCHANGE: Final = "exchange"
KINDS: Final = (QUEUE, STREAM, EXCHANGE)


def kinds_flag(command: F) -> F:
    """``--kind KIND``, any number of times, as the parameter ``kinds``."""
    return click.option(
        "--kind",
        "kinds",
        type=click.Choice(KINDS),
        multiple=True,
        help="Only these; may be repeated.  [default: all]",
    )(command)


def found_of(broker: shmq.Broker, kind: str, kinds: Sequence[str]) -> list[Any]:
    """The summaries of that kind, if it is among the ``kinds`` or those are empty.

    A server that has none of the kind, or does not let this client ask, has nothing of it,
    unless it is named in ``kinds``.
    """
    if kinds and kind not in kinds:
        return []
    asks: dict[str, Callable[[], list[Any]]] = {
        QUEUE: broker.list_queues,
        STREAM: broker.list_streams,
        EXCHANGE: broker.list_exchanges,
    }
    try:
        return asks[kind]()
    except (shmq.Unsupported, shmq.Forbidden):
        if kinds or kind == QUEUE:
            raise
        return []


def kind_of(broker: shmq.Broker, name: str, kinds: Sequence[str] = ()) -> str:
    """Which kind has that name, of the ``kinds`` or, if those are empty, of all.

    Raises :class:`~shmq.NoSuchQueue` if none has, and :class:`click.UsageError` if several.
    """
    having = [
        kind for kind in KINDS if any(one.name == name for one in found_of(broker, kind, kinds))
    ]
    if not having:
        wanted = " or ".join(kinds or KINDS)
        raise shmq.NoSuchQueue(
            f"there is no {wanted} {name!r} in namespace {broker.namespace!r}: see shmq list"
        )
    if len(having) > 1:
        raise click.UsageError(f"{name!r} names a {' and a '.join(having)}: say which with --kind")
    return having[0]


def exchange_as_dict(found: shmq.ExchangeSummary) -> dict[str, Any]:
    """An exchange as JSON has it: how it chooses is its ``type``."""
    return {
        "kind": EXCHANGE,
        "name": found.name,
        "type": found.kind,
        "alternate": found.alternate,
        "bindings": found.bindings,
    }


def stream_activity(stream: shmq.Stream) -> dict[str, float]:
    """What a stream is doing: ``records``, ``oldest_age`` in seconds, ``rate_in`` a second."""
    offsets = stream.offsets()
    oldest = [one.earliest_timestamp for one in offsets if one.earliest_timestamp is not None]
    return {
        "records": sum(one.latest - one.earliest for one in offsets),
        "oldest_age": max(0.0, time.time() - min(oldest)) if oldest else 0.0,
        "rate_in": sum(one.rate for one in stream.rates()),
    }


def complete_names(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """The names of whatever kind that begin so; none where they cannot be had."""
    try:
        target = target_of(context)
        with target.connect(connect_timeout=BRIEFLY, request_timeout=BRIEFLY) as broker:
            names = {one.name for kind in KINDS for one in found_of(broker, kind, ())}
    except (shmq.ShmqError, OSError, click.ClickException):
        return []
    return sorted(name for name in names if name.startswith(begun))


def stream_argument(command: F) -> F:
    """``STREAM``, completed by the shell, as the parameter ``name``."""
    return click.argument("name", metavar="STREAM", shell_complete=_complete)(command)


def partition_flag(help: str) -> Callable[[F], F]:
    """``-p/--partition N``, as the parameter ``partition``."""
    return click.option(
        "-p", "--partition", type=click.IntRange(min=0), metavar="N", default=None, help=help
    )


def damage_flag() -> Callable[[F], F]:
    """``--on-damage raise|skip``, as the parameter ``on_damage``."""
    return click.option(
        "--on-damage",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        help="Where a file is damaged: fail, or pass over those records and count them [raise].",
    )


def tell_damage(records: int) -> None:
    """Say how many records were passed over, if any were."""
    if records:
        note(f"{counted(records, 'record')} passed over: they cannot be read, a file is damaged")


def _complete(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """The names of streams that begin so; none where they cannot be had."""
    try:
        target = target_of(context)
        with target.connect(connect_timeout=BRIEFLY, request_timeout=BRIEFLY) as broker:
            return [s.name for s in broker.list_streams() if s.name.startswith(begun)]
    except (shmq.ShmqError, OSError, click.ClickException):
        return []
