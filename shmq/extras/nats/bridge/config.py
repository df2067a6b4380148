"""The configuration of a bridge: a TOML file, or the same from flags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from shmq.api.names import check_name
from shmq.errors import InvalidName, InvalidOption
from shmq.extras.nats.client.address import ClusterAddress
from shmq.model.codec.toml import read_toml

#: How long the cluster knows what was forwarded, in seconds, for a queue that the bridge makes.
WINDOW: Final = 7200.0
_MOST_ROUTES: Final = 256


class Forward(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """From a queue of this host to a queue of the cluster."""

    queue: str
    #: The queue of the cluster; empty: of the same name.
    to: str = ""
    #: Messages that are leased, and on their way, at a time.
    batch: int = 256


class Backward(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """From a queue of the cluster to a queue of this host."""

    queue: str
    #: The queue of this host; empty: of the same name.
    to: str = ""
    batch: int = 64


class Mirror(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """From a stream of this host to a stream of the cluster, of as many partitions."""

    stream: str
    #: The stream of the cluster; empty: of the same name.
    to: str = ""
    batch: int = 256


Route = Forward | Backward | Mirror


class Bridge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All routes between one namespace of this host and one cluster."""

    #: The cluster: nats://HOST:PORT,HOST:PORT/NAMESPACE.
    url: str
    #: The namespace of this host; empty: the user's.
    namespace: str = ""
    #: Where Prometheus finds the numbers, HOST:PORT; empty: nowhere.
    metrics: str = ""
    forward: tuple[Forward, ...] = ()
    backward: tuple[Backward, ...] = ()
    mirror: tuple[Mirror, ...] = ()

    @property
    def routes(self) -> tuple[Route, ...]:
        """All of them."""
        return (*self.forward, *self.backward, *self.mirror)


def source_of(route: Route) -> str:
    """The name of the queue or stream that the route takes from."""
    return route.stream if isinstance(route, Mirror) else route.queue


def read(path: Path) -> Bridge:
    """The configuration of a file, checked. Raises InvalidOption, with the file."""
    try:
        return check(msgspec.convert(read_toml(path)[0], Bridge))
    except (msgspec.ValidationError, InvalidOption) as error:
        raise InvalidOption(f"{path}: {error}") from error


def check(bridge: Bridge) -> Bridge:
    """The configuration, if it can be. Raises InvalidOption."""
    ClusterAddress.parse(bridge.url)
    if not 0 < len(bridge.routes) <= _MOST_ROUTES:
        raise InvalidOption(
            f"{len(bridge.routes)} routes are given: give 1 to {_MOST_ROUTES} of [[forward]], "
            "[[backward]] and [[mirror]] in the file, or of --forward, --backward and --mirror"
        )
    for route in bridge.routes:
        if not 1 <= route.batch <= 4096:
            raise InvalidOption(f"batch = {route.batch} must be 1 to 4096")
        for name in (source_of(route), route.to or source_of(route)):
            _check_name(name)
    _check_circles(bridge.forward, bridge.backward)
    return bridge


def _check_name(name: str) -> None:
    try:
        check_name(name, "queue")
    except InvalidName as error:
        raise InvalidOption(str(error)) from error


def _check_circles(forward: Sequence[Forward], backward: Sequence[Backward]) -> None:
    """Refuse a message that would come back, and two routes from one queue."""
    there = {(one.queue, one.to or one.queue) for one in forward}
    for one in backward:
        if (one.to or one.queue, one.queue) in there:
            raise InvalidOption(
                f"the queue {one.to or one.queue!r} is forwarded to {one.queue!r} and back: its "
                "messages would go in a circle, so drop one of the two"
            )
    for routes in (forward, backward):
        names = [one.queue for one in routes]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidOption(
                f"the queue {twice!r} has two routes: which message takes which would be chance"
            )
