"""What AMQP's declaration of a queue means for shmq: one place for all of it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, Final

import shmq
from shmq.api.names import with_dead_letter

log = logging.getLogger("shmq")

#: AMQP's priorities, 0 to 9.
PRIORITIES: Final = 10
#: The kernel tells which process has died, and a server which connection: a lease needs no clock.
FOREVER: Final = 1e9

#: Arguments that mean something here, or that may be ignored: the kind of a queue of RabbitMQ's.
_KNOWN: Final = {
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-delivery-limit",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-message-ttl",
    "x-overflow",
    "x-queue-type",
}


@dataclasses.dataclass(slots=True)
class QueueSettings:
    """What a connection's ``transport_options`` say of the queues that it declares."""

    capacity: int = 1_000_000
    arena_bytes: int = 1 << 30
    durability: str = "memory"
    confirm: str = "memory"
    max_deliveries: int | None = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a queue, and those of them in which an existing queue must agree."""

    options: dict[str, Any]
    compared: frozenset[str]


def read_declaration(
    name: str,
    settings: QueueSettings,
    *,
    exclusive: bool = False,
    auto_delete: bool = False,
    durable: bool = True,
    arguments: Mapping[str, Any] | None = None,
) -> Wanted:
    """The options for the queue of AMQP's ``name``. Sizes are compared only if they are given."""
    arguments = arguments or {}
    lasts = durable and not exclusive and not auto_delete
    options: dict[str, Any] = {
        **dataclasses.asdict(settings),
        "priorities": PRIORITIES,
        "visibility_timeout": FOREVER,
        "retry_delay": 0.0,
        "on_expired": "drop",
    }
    if not lasts:
        options.update(dead_letter=None, durability="memory", confirm="memory")
    sized = _apply(arguments, options, goes_away=exclusive or auto_delete)
    options |= {"exclusive": exclusive, "auto_delete": auto_delete}
    if "x-expires" in arguments:
        options["expires"] = arguments["x-expires"] / 1000
    _warn_unknown(name, arguments)
    compared = frozenset(options) - {"capacity", "arena_bytes"} | sized
    return Wanted(with_dead_letter(shmq.escape_name(name), options), compared)


def _apply(arguments: Mapping[str, Any], options: dict[str, Any], *, goes_away: bool) -> set[str]:
    """Set what the arguments say; returns the sizes that they give."""
    sized = set()
    if "x-message-ttl" in arguments:
        options["ttl"] = arguments["x-message-ttl"] / 1000 or 0.001
        if goes_away:
            # Events and requests of remote control: the old ones matter least.
            options["overflow"] = "drop-oldest"
    for argument, option in (("x-max-length", "capacity"), ("x-max-length-bytes", "arena_bytes")):
        if argument in arguments:
            options[option] = arguments[argument]
            options["overflow"] = "drop-oldest"
            sized.add(option)
    if str(arguments.get("x-overflow", "drop-head")).startswith("reject"):
        options["overflow"] = "reject"
    if "x-delivery-limit" in arguments:
        options["max_deliveries"] = arguments["x-delivery-limit"]
    if arguments.get("x-dead-letter-routing-key") and not arguments.get("x-dead-letter-exchange"):
        options["dead_letter"] = shmq.escape_name(arguments["x-dead-letter-routing-key"])
        options["on_expired"] = "dead-letter"
    return sized


def _warn_unknown(name: str, arguments: Mapping[str, Any]) -> None:
    unknown = sorted(set(arguments) - _KNOWN)
    if arguments.get("x-dead-letter-exchange"):
        unknown.append("x-dead-letter-exchange")
    if unknown:
        log.warning(
            "queue %r: shmq has nothing like %s, which is ignored", name, ", ".join(unknown)
        )
