"""The transport of ``nats://`` and ``tls://`` URLs: see `shmq.plugins`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmq.extras.nats.client.address import ClusterAddress
from shmq.lazy_imports import late_imports

if TYPE_CHECKING:
    from shmq.extras.nats.client.broker import NatsBroker


def connect(url: str, *how: Any) -> NatsBroker:
    """Connect to a cluster. Takes what `NatsBroker.connect` takes, and raises its errors."""
    with late_imports:
        from shmq.extras.nats.client.broker import NatsBroker  # noqa: PLC0415 - it needs nats-py

    return NatsBroker.connect(url, *how)


def check_url(url: str) -> None:
    """Raise :class:`~shmq.InvalidOption` unless it is the URL of a cluster."""
    ClusterAddress.parse(url)
