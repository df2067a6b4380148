"""Chooses the broker: of this host, or of a server. Each is imported by its first connection."""

from __future__ import annotations

import os

from shmq.errors import InvalidOption
from shmq.lazy_imports import late_imports

TYPE_CHECKING = False  # that of typing, whose import would cost as much as the interpreter's start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmq import api
    from shmq.client.remote.address import Tls


def connect(
    target: str | None = None,
    *,
    group: str | None = None,
    token: str | None = None,
    tls: Tls = None,
    connect_timeout: float = 5.0,
    request_timeout: float = 30.0,
    wait_for_acks: bool = True,
    default: Callable[[Any], Any] | None = None,
) -> api.Broker:
    """Connect to a namespace on this host, or to a server: a :class:`~shmq.Broker`.

    A ``target`` that contains ``://`` is the URL of a server, ``shmq://HOST:PORT``, ``shmqs://``
    for TLS, or ``shmq+unix:///PATH`` for a Unix socket, or of another transport: with the extra
    ``shmq[nats]``, ``nats://HOST:PORT,HOST:PORT`` or ``tls://`` for a cluster of NATS. Any other is
    the name of a namespace. The default is ``SHMQ_URL``, then ``SHMQ_NAMESPACE``, as for the
    command ``shmq``, then the user's own namespace, ``default-UID``. Raises
    :class:`~shmq.InvalidName`, :class:`~shmq.InvalidOption` for an invalid URL, and TypeError for a
    target that is not a str.

    ``GROUP/NAME``, or ``NAME`` with ``group`` (by default ``SHMQ_GROUP``), is one that users of a
    group share. Connecting creates nothing but the group's folder. Raises
    :class:`~shmq.ForeignSegment` outside of the group.

    ``default`` is called with each value that a body, a record or a value of a table cannot hold,
    and returns one that it can, like the ``default`` of :func:`json.dumps`;
    :func:`~shmq.encode_common` is one for common types. Its errors become TypeErrors, and nothing
    is put. It applies to every handle of the broker; a pickled handle takes it along.

    The other arguments are for a server. ``token`` is by default that of ``SHMQ_TOKEN``. ``tls`` is
    True, the path of a file or folder of certificates to trust, a map of the paths ``ca``,
    ``certificate`` and ``key``, or an :class:`ssl.SSLContext`. An attempt to connect fails after
    ``connect_timeout`` seconds, a request after ``request_timeout``; within that time a lost
    connection is re-established. Raises :class:`~shmq.ConnectionLost` and
    :class:`~shmq.Unauthorized`.

    With ``wait_for_acks=False``, ``message.ack()`` does not wait for the server: it is sent with
    the next request of the queue's handle, or after about 10 ms, which saves a round trip for each
    message. If the process or the connection ends before that, the message is delivered again.
    ``ack`` raises :class:`~shmq.LeaseExpired` by the client's clock; a server's refusal is logged.

    With ``SHMQ_OTEL=1`` in the environment and ``shmq[otel]`` the broker is traced.
    """
    with late_imports:
        from shmq.api.names import chosen_namespace, is_url  # noqa: PLC0415

    if default is not None and not callable(default):
        raise TypeError(f"default={default!r:.80} must be called with a value, and cannot be")
    if target is None:
        target = os.environ.get("SHMQ_URL") or None
    if isinstance(target, str) and is_url(target):
        _refuse_group(target, group)
        how = token, tls, connect_timeout, request_timeout, wait_for_acks
        return traced(connect_to(target, *how), default)
    _refuse_credentials(target, token, tls)
    with late_imports:
        from shmq.client.local.broker import LocalBroker  # noqa: PLC0415

    return traced(LocalBroker(chosen_namespace(target, group)), default)


def _refuse_group(url: str, group: str | None) -> None:
    if group is not None:
        raise InvalidOption(
            f"group={group!r} is for a namespace of this host, and {url} is a server: start that "
            f"with the namespace of the group"
        )


def _refuse_credentials(target: str | None, token: str | None, tls: Tls) -> None:
    if token is not None or tls not in (None, False):
        raise InvalidOption(
            f"target={target!r} is a namespace of this host, which knows no token= and no tls=: "
            f"give the URL of a server, shmq://HOST:PORT"
        )


def connect_to(url: str, *how: Any) -> api.Broker:
    """Connect to the URL, with the other arguments of `connect` in their order."""
    with late_imports:
        from shmq.plugins import find_transport  # noqa: PLC0415 - with a URL alone

    transport = find_transport(url)
    if transport is not None:
        broker: api.Broker = transport.connect(url, *how)
        return broker
    with late_imports:
        from shmq.client.remote.broker import RemoteBroker  # noqa: PLC0415

    return RemoteBroker.connect(url, *how)


def traced(broker: Any, default: Callable[[Any], Any] | None = None) -> api.Broker:
    """The broker with its ``default``, traced if the environment's ``SHMQ_OTEL`` is 1."""
    if default is not None:
        broker.default = default
    asked = os.environ.get("SHMQ_OTEL")
    if not asked or asked == "0":
        return broker  # type: ignore[no-any-return]
    try:
        if asked != "1":
            raise InvalidOption(f"SHMQ_OTEL={asked!r} must be 1 for traces and metrics, or 0")
        with late_imports:
            from shmq.plugins import find  # noqa: PLC0415 - when it is asked for alone

        instrument = find("shmq.instruments", "otel")
        if instrument is None:
            raise InvalidOption("SHMQ_OTEL=1 needs tracing: pip install 'shmq[otel]'")
        traced_broker: api.Broker = instrument(broker)
        return traced_broker
    except BaseException:
        broker.close()
        raise
