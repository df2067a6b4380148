"""Chooses the broker: of this host, or of a server. Each is imported by its first connection."""

from __future__ import annotations

import os

from shmq.errors import InvalidOption
from shmq.lazy_imports import late_imports

TYPE_CHECKING = False  # that of typing, whose import would cost as much as the interpreter's start
if TYPE_CHECKING:
    from shmq import api
    from shmq.client.remote.address import Tls


def connect(
    target: str | None = None,
    *,
    token: str | None = None,
    tls: Tls = None,
    connect_timeout: float = 5.0,
    request_timeout: float = 30.0,
    wait_for_acks: bool = True,
) -> api.Broker:
    """Connect to a namespace on this host, or to a server: a :class:`~shmq.Broker`.

    A ``target`` that contains ``://`` is the URL of a server, ``shmq://HOST:PORT``, ``shmqs://``
    for TLS, or ``shmq+unix:///PATH`` for a Unix socket; or of a cluster of NATS,
    ``nats://HOST:PORT,HOST:PORT`` or ``tls://``; any other is the name of a namespace. The default
    is the environment's ``SHMQ_URL``, then its ``SHMQ_NAMESPACE``, as for the command ``shmq``,
    then the user's own namespace, ``default-UID``. Raises :class:`~shmq.InvalidName`,
    :class:`~shmq.InvalidOption` for an invalid URL, and TypeError for a target that is not a str.
    Connecting to a namespace creates nothing until a queue is created.

    The other arguments are for a server. ``token`` is by default that of ``SHMQ_TOKEN``. ``tls`` is
    True, the path of a file or folder of certificates to trust, a map of the paths ``ca``,
    ``certificate`` and ``key``, or an :class:`ssl.SSLContext`. An attempt to connect fails after
    ``connect_timeout`` seconds, a request after ``request_timeout``; within that time a lost
    connection is re-established. Raises :class:`~shmq.ConnectionLost` and
    :class:`~shmq.Unauthorized`.

    With ``wait_for_acks=False``, ``message.ack()`` does not wait for the server: it is sent with
    the next request of the queue's handle, or after about 10 ms, which saves a round trip for each
    message. If the process or the connection ends before that, the message is delivered again.
    ``ack`` raises :class:`~shmq.LeaseExpired` if the lease is over by the client's clock; a refusal
    of the server is logged as a warning.

    With ``SHMQ_OTEL=1`` in the environment the broker is as of ``shmq.extras.otel.instrument``.
    """
    with late_imports:
        from shmq.api.names import is_cluster_url, is_url  # noqa: PLC0415

    if target is None:
        target = os.environ.get("SHMQ_URL") or None
    if isinstance(target, str) and is_cluster_url(target):
        with late_imports:
            from shmq.extras.nats.client.broker import NatsBroker  # noqa: PLC0415 - of the extra "cluster"

        how = token, tls, connect_timeout, request_timeout, wait_for_acks
        return traced(NatsBroker.connect(target, *how))
    if isinstance(target, str) and is_url(target):
        with late_imports:
            from shmq.client.remote.broker import RemoteBroker  # noqa: PLC0415

        how = token, tls, connect_timeout, request_timeout, wait_for_acks
        return traced(RemoteBroker.connect(target, *how))
    if token is not None or tls not in (None, False):
        raise InvalidOption(
            f"target={target!r} is a namespace of this host, which knows no token= and no tls=: "
            f"give the URL of a server, shmq://HOST:PORT"
        )
    with late_imports:
        from shmq.client.local.broker import LocalBroker  # noqa: PLC0415

    return traced(LocalBroker(target))


def traced(broker: api.Broker) -> api.Broker:
    """The broker, with traces and metrics if the environment's ``SHMQ_OTEL`` is 1."""
    asked = os.environ.get("SHMQ_OTEL")
    if not asked or asked == "0":
        return broker
    try:
        if asked != "1":
            raise InvalidOption(f"SHMQ_OTEL={asked!r} must be 1 for traces and metrics, or 0")
        with late_imports:
            from shmq.extras.otel import instrument  # noqa: PLC0415 - when it is asked for alone

        return instrument(broker)
    except BaseException:
        broker.close()
        raise
