"""The URLs of brokers and result backends: which namespace or server they mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import shmq

#: That of `shmq serve`.
DEFAULT_PORT: Final = 9999

#: The names of settings of TLS in Celery (those of py-amqp, then those of Redis), and shmq's.
_TLS_KEYS: Final = {
    "ca_certs": "ca",
    "certfile": "certificate",
    "keyfile": "key",
    "ssl_ca_certs": "ca",
    "ssl_certfile": "certificate",
    "ssl_keyfile": "key",
}
_UNVERIFIED: Final = ("cert_reqs", "ssl_cert_reqs")


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Address:
    """The namespace or the server of a URL, with what it takes to connect to it.

    ``target`` and the others are the arguments of :func:`shmq.connect`.
    """

    target: str | None
    token: str | None = None
    tls: bool | Mapping[str, str] | None = None

    @classmethod
    def of(
        cls,
        host: str | None,
        port: int | None,
        path: str | None,
        user: str | None,
        password: str | Callable[[], str] | None,
        ssl: Any = None,
    ) -> Address:
        """The parts of ``shmq://NAMESPACE``, ``shmq:///Namespace`` or ``shmq://:TOKEN@HOST:PORT``.

        Without host and path, or as ``localhost`` without a port, it is the default of
        :func:`shmq.connect`. A host without a port is a namespace, unless there is ``ssl``: what
        Celery's ``broker_use_ssl`` is. Raises :class:`~shmq.InvalidOption`.
        """
        path = (path or "").strip("/") or None
        token = password() if callable(password) else password
        if user and not token:
            raise shmq.InvalidOption(
                "the URL has a user and no password: shmq knows tokens and no users, and the token "
                "stands where a password does: shmq://:TOKEN@HOST:PORT"
            )
        if port is None and not ssl:
            if host == "localhost":
                host = None
            if host and path:
                raise shmq.InvalidOption(
                    f"shmq://{host}/{path} names two namespaces: write shmq://{host} or "
                    f"shmq:///{path}, or the server's port"
                )
            return cls(host or path, token or None)
        if path:
            raise shmq.InvalidOption(
                f"/{path} behind the server {host}:{port or DEFAULT_PORT} names nothing: a server "
                f"has one namespace, so leave the path out"
            )
        shown = f"[{host}]" if host and ":" in host else host or "localhost"
        url = f"{'shmqs' if ssl else 'shmq'}://{shown}:{port or DEFAULT_PORT}"
        return cls(url, token or None, _choose_tls(ssl))

    def connect(self, connect_timeout: float, request_timeout: float) -> shmq.Broker:
        """Connect: see :func:`shmq.connect`. Acknowledgements are sent by `Session.send_acks`."""
        return shmq.connect(
            self.target,
            token=self.token,
            tls=self.tls,
            connect_timeout=connect_timeout,
            request_timeout=request_timeout,
            wait_for_acks=False,
        )


def _choose_tls(ssl: Any) -> bool | Mapping[str, str] | None:
    """What `shmq.connect` takes for what Celery's settings of TLS say."""
    if not isinstance(ssl, Mapping):
        return True if ssl else None
    for name in _UNVERIFIED:
        if name in ssl and str(ssl[name]) in ("0", "CERT_NONE", "none", "VerifyMode.CERT_NONE"):
            raise shmq.InvalidOption(
                f"{name}={ssl[name]!r} would trust any server: give the certificates to trust as "
                f"ca_certs instead"
            )
    known = {shmqs: str(ssl[name]) for name, shmqs in _TLS_KEYS.items() if ssl.get(name)}
    return known or True
