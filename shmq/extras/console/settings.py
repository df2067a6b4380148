"""The settings of a console: where it listens, what it shows, and whom it lets change what."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
from pathlib import Path
from typing import Final

from shmq.api.options import check_whole
from shmq.errors import InvalidOption
from shmq.server.config.tls import Tls
from shmq.server.config.tokens import Token

DEFAULT_PORT: Final = 9990
_UNIX: Final = "unix:"
#: sizeof(sockaddr_un.sun_path), with its final zero.
_MOST_PATH: Final = 108
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]{1,64}){0,8}\Z", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9.-]{1,253}\Z", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: ``HOST:PORT``, ``[IPV6]:PORT`` or ``unix:PATH``."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    #: The path of a Unix socket; None: TCP.
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address in ``text``; without a port the default one.

        Raises :class:`~shmq.InvalidOption`.
        """
        if text.startswith(_UNIX):
            path = text.removeprefix(_UNIX)
            if not path or len(os.fsencode(path)) >= _MOST_PATH or "\0" in path:
                raise InvalidOption(
                    f"invalid address {text!r}: the path of a Unix socket must have 1 to "
                    f"{_MOST_PATH - 1} bytes"
                )
            return cls(path=str(Path(path).absolute()))
        host, port = _split_address(text)
        try:
            ipaddress.ip_address(host)
        except ValueError:
            if host != "localhost":
                raise InvalidOption(
                    f"invalid address {text!r}: expected HOST:PORT with an IP address or "
                    f"localhost, or unix:PATH, such as 127.0.0.1:{DEFAULT_PORT}"
                ) from None
        return cls(host=host, port=port)

    @property
    def is_local(self) -> bool:
        """Whether only processes of this host can connect."""
        return (
            self.path is not None
            or self.host == "localhost"
            or ipaddress.ip_address(self.host).is_loopback
        )

    def __str__(self) -> str:
        if self.path is not None:
            return _UNIX + self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def _split_address(text: str) -> tuple[str, int]:
    """The host and the port of ``HOST:PORT``, ``HOST``, ``[IPV6]:PORT`` or ``IPV6``."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        if not bracket or (rest and colon != ":"):
            raise InvalidOption(
                f"invalid address {text!r}: expected [IPV6]:PORT, such as [::1]:{DEFAULT_PORT}"
            )
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not port:
        return host, DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise InvalidOption(f"invalid address {text!r}: the port must be 0 to 65535, not {port!r}")
    return host, int(port)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """How a console runs. Raises :class:`~shmq.InvalidOption`, TypeError for a wrong type."""

    #: Where pages and API are served.
    bind: Address = dataclasses.field(default_factory=Address)
    #: Where /metrics is served as well, and without a token; None: nowhere else.
    metrics_bind: Address | None = None
    #: Whether pages and API are left out, so that only /metrics is served.
    metrics_only: bool = False
    #: Whether /metrics asks for no token.
    metrics_open: bool = False
    #: With more queues, /metrics has totals and the worst hundred.
    metrics_queues: int = 1000
    #: The path under which a reverse proxy serves the console: ``""`` or ``/shmq``.
    prefix: str = ""
    #: Names of the host in a browser's address bar, beside those of the loopback device.
    hosts: tuple[str, ...] = ()
    #: Whether anything can be changed: made, deleted, put, leased, purged, sent back.
    allow_changes: bool = False
    #: Whether other hosts may connect without tokens or without TLS.
    insecure: bool = False
    tls: Tls | None = None
    #: Whom it lets in; none: everyone who can connect.
    tokens: tuple[Token, ...] = ()

    def __post_init__(self) -> None:
        for name in ("metrics_only", "metrics_open", "allow_changes", "insecure"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name}={getattr(self, name)!r} must be true or false")
        check_whole("metrics_queues", self.metrics_queues, 0, 1_000_000)
        if not _PREFIX.match(self.prefix):
            raise InvalidOption(
                f"prefix={self.prefix!r} is not a path: write /shmq, for example, without a slash "
                f"at its end"
            )
        for host in self.hosts:
            if not _HOST.match(host):
                raise InvalidOption(f"host={host!r} is not a name of a host: leave out the port")
        self._check_reach()

    def _check_reach(self) -> None:
        """Refuse what would let other hosts in without a token or in clear text."""
        for address in (self.bind, self.metrics_bind):
            if address is None or address.is_local or self.insecure:
                continue
            missing = [
                what for what, given in (("tokens", self.tokens), ("TLS", self.tls)) if not given
            ]
            if address is self.metrics_bind:
                missing = [] if self.metrics_open else ["--metrics-open"]
            if missing:
                raise InvalidOption(
                    f"bind={str(address)!r} lets other hosts in without "
                    f"{' and without '.join(missing)}: give --config a file with [[tokens]] and "
                    f"[tls], bind to 127.0.0.1, or allow it with --insecure"
                )
