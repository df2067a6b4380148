"""The addresses of a NATS cluster, and the parameters of a connection to it."""

from __future__ import annotations

import dataclasses
import os
import ssl
from multiprocessing import context
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from shmq.api.names import check_name
from shmq.client.remote.address import Tls, tls_context
from shmq.errors import InvalidOption
from shmq.native._core import check_seconds

DEFAULT_PORT: Final = 4222
#: The namespace of a URL that names none.
DEFAULT_NAMESPACE: Final = "default"
_SCHEMES: Final = {"nats": False, "tls": True}
_PARAMETERS: Final = ("credentials", "replicas", "sync")
_REPLICAS: Final = ("1", "3", "5")


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A user's name and password; it is never shown."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "<Secret>"


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The servers of a cluster and a namespace of it; ``str`` is the URL, without any secret."""

    servers: tuple[tuple[str, int], ...]
    namespace: str = DEFAULT_NAMESPACE
    tls: bool = False
    #: How many servers keep each message; None: 3 in a cluster, 1 of a single server.
    replicas: int | None = None
    #: Whether the operator says that each server has ``sync_interval: always``.
    synced: bool = False
    #: The path of a credentials file.
    credentials: str | None = None

    @classmethod
    def parse(cls, url: str) -> tuple[ClusterAddress, Secret | None]:
        """``nats://[USER:PASSWORD@]HOST[:PORT],…[/NAMESPACE][?…]``. Raises InvalidOption."""
        if not isinstance(url, str):
            raise TypeError(f"the URL must be a str, not {type(url).__name__}")
        try:
            parts = urlsplit(url)
        except ValueError as error:  # without the URL, which may have a password
            raise InvalidOption(f"the cluster's URL is not valid: {error}") from None
        if parts.scheme not in _SCHEMES:
            raise InvalidOption(
                f"a cluster's URL begins with nats:// or tls://, not {parts.scheme}://"
            )
        if parts.fragment:
            raise InvalidOption("a cluster's URL has no part after a '#'")
        netloc = parts.netloc
        secret, hosts = None, netloc
        if "@" in netloc:
            login, _, hosts = netloc.rpartition("@")
            user, colon, password = login.partition(":")
            if not (user and colon and password):
                raise InvalidOption(
                    "a cluster's URL may have USER:PASSWORD@ before its hosts, once; a token is "
                    "given as token= or in SHMQ_TOKEN"
                )
            secret = Secret(unquote(user), unquote(password))
        namespace = parts.path.removeprefix("/") or DEFAULT_NAMESPACE
        check_name(namespace, "namespace")
        given = _parse_parameters(parts.query)
        return cls(
            tuple(_parse_server(host, parts.scheme) for host in hosts.split(",")),
            namespace,
            _SCHEMES[parts.scheme],
            int(given["replicas"]) if "replicas" in given else None,
            given.get("sync") == "always",
            given.get("credentials") or os.environ.get("SHMQ_CREDENTIALS") or None,
        ), secret

    @property
    def urls(self) -> list[str]:
        """The URL of each server."""
        scheme = "tls" if self.tls else "nats"
        return [f"{scheme}://{netloc_of(*server)}" for server in self.servers]

    def __str__(self) -> str:
        hosts = ",".join(netloc_of(*server) for server in self.servers)
        return f"{'tls' if self.tls else 'nats'}://{hosts}/{self.namespace}"


def netloc_of(host: str, port: int) -> str:
    """``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse_server(netloc: str, scheme: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{netloc}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port == 0 or not netloc.isprintable() or " " in netloc:
        raise InvalidOption(
            f"{netloc!r} is not a server of a cluster: give "
            f"{scheme}://HOST:PORT,HOST:PORT/NAMESPACE with ports from 1 to 65535"
        )
    return host, DEFAULT_PORT if port is None else port


def _parse_parameters(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise InvalidOption(
            "the parameters of a cluster's URL must be NAME=VALUE, with & between"
        ) from None
    given = dict(pairs)
    for key in given:
        if key not in _PARAMETERS:
            raise InvalidOption(
                f"a cluster's URL has no parameter {key!r}: it may have {', '.join(_PARAMETERS)}"
            )
    if given.get("replicas", "1") not in _REPLICAS:
        raise InvalidOption(f"replicas={given['replicas']!r} must be one of {', '.join(_REPLICAS)}")
    if given.get("sync", "always") != "always":
        raise InvalidOption(
            f"sync={given['sync']!r} must be 'always', which says that each server of the cluster "
            f"has sync_interval: always"
        )
    return given


#: The secrets used by this process, by URL: for handles that are unpickled in it.
_known: dict[str, tuple[str | None, Secret | None]] = {}


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ClusterTarget:
    """A cluster, and how to connect to it. It is pickled without secrets, except to a child."""

    address: ClusterAddress
    token: str | None
    secret: Secret | None
    tls: Tls
    connect_timeout: float
    request_timeout: float
    wait_for_acks: bool = True

    @classmethod
    def of(
        cls,
        url: str,
        token: str | None = None,
        tls: Tls = None,
        connect_timeout: float = 5.0,
        request_timeout: float = 30.0,
        wait_for_acks: bool = True,
    ) -> ClusterTarget:
        """The cluster at ``url``. Raises InvalidOption and TypeError."""
        address, secret = ClusterAddress.parse(url)
        if tls is not None and tls is not False and not address.tls:
            address = dataclasses.replace(address, tls=True)
        if tls is False and address.tls:
            raise InvalidOption(f"{address} asks for TLS, and tls=False refuses it")
        known = _known.get(str(address), (None, None))
        if token is not None and not isinstance(token, str):
            raise TypeError(f"token must be a str, not {type(token).__name__}")
        secret = secret or known[1]
        if token is None and secret is None:
            token = known[0] or os.environ.get("SHMQ_TOKEN") or None
        check_seconds("connect_timeout", connect_timeout, 0.001)
        check_seconds("request_timeout", request_timeout, 0.001)
        if not isinstance(wait_for_acks, bool):
            raise TypeError(f"wait_for_acks={wait_for_acks!r} must be a bool")
        if address.tls:
            tls_context(tls)  # raises its errors now
        if address.credentials is not None and not Path(address.credentials).is_file():
            raise InvalidOption(
                f"the credentials file {address.credentials!r} cannot be read: no such file"
            )
        _known[str(address)] = token, secret
        timeouts = float(connect_timeout), float(request_timeout)
        return cls(address, token, secret, tls, *timeouts, wait_for_acks)

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.tls, ssl.SSLContext):
            raise TypeError(
                "an SSLContext cannot be pickled: give tls= as True, a path, or a map of paths"
            )
        spawning = context.get_spawning_popen() is not None
        token, secret = (self.token, self.secret) if spawning else (None, None)
        timeouts = self.connect_timeout, self.request_timeout
        return _unpickle, (self.address, token, secret, self.tls, *timeouts, self.wait_for_acks)

    def __repr__(self) -> str:
        return f"<ClusterTarget {self.address}>"


def _unpickle(
    address: ClusterAddress, token: str | None, secret: Secret | None, *rest: Any
) -> ClusterTarget:
    known = _known.get(str(address), (os.environ.get("SHMQ_TOKEN") or None, None))
    return ClusterTarget(address, token or known[0], secret or known[1], *rest)
