"""The address of a server, and the parameters of a connection to it, with those of TLS."""

from __future__ import annotations

import dataclasses
import os
import re
import ssl
from collections.abc import Mapping
from multiprocessing import context
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from shmq.api.names import TCP_SCHEMES, UNIX_SCHEME
from shmq.client.shared.urls import split_url
from shmq.errors import InvalidOption
from shmq.native._core import check_seconds
from shmq.protocol.opcodes import DEFAULT_PORT

#: The keys of a map that describes TLS.
_KEYS: Final = ("ca", "certificate", "key")

Tls = bool | str | os.PathLike[str] | Mapping[str, Any] | ssl.SSLContext | None


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, or the path of a Unix socket.

    ``str`` of it is the URL, which never contains a token.
    """

    host: str
    port: int = DEFAULT_PORT
    tls: bool = False
    #: Of the Unix socket; empty: it is TCP.
    path: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        """``shmq://HOST[:PORT]``, ``shmqs://`` for TLS, or ``shmq+unix:///PATH``.

        Raises InvalidOption.
        """
        if not isinstance(url, str):
            raise TypeError(f"url={url!r} must be a str, not {type(url).__name__}")
        parts = split_url(url)
        if parts.username is not None or parts.password is not None:
            raise InvalidOption(
                f"a URL is shown and stored, so it is not a place for a secret: give the token "
                f"as token= or in SHMQ_TOKEN, and the URL as {parts.scheme}://HOST:PORT"
            )
        if parts.scheme == UNIX_SCHEME:
            return cls._parse_path(
                url, unquote(parts.path), parts.netloc + parts.query + parts.fragment
            )
        if parts.scheme not in TCP_SCHEMES:
            raise InvalidOption(
                f"url={url!r} must be shmq://HOST:PORT, shmqs://HOST:PORT or {UNIX_SCHEME}:///PATH"
                + (f": no transport for {parts.scheme}:// is installed" if parts.scheme else "")
            )
        try:
            port = parts.port
        except ValueError:
            raise InvalidOption(
                f"url={url!r}: the port must be a number from 1 to 65535, and an IPv6 address "
                f"stands in brackets: {parts.scheme}://[::1]:PORT"
            ) from None
        more = parts.path not in ("", "/") or parts.query or parts.fragment
        if not parts.hostname or more or not parts.netloc.isprintable() or " " in parts.netloc:
            raise InvalidOption(f"url={url!r} must be {parts.scheme}://HOST:PORT and no more")
        if port == 0:
            raise InvalidOption(f"url={url!r}: no server listens on port 0")
        return cls(
            parts.hostname, DEFAULT_PORT if port is None else port, TCP_SCHEMES[parts.scheme]
        )

    @classmethod
    def _parse_path(cls, url: str, path: str, more: str) -> Address:
        if more or len(path) < 2 or not path.isprintable():
            raise InvalidOption(
                f"url={url!r} must be {UNIX_SCHEME}:///PATH, with three slashes, and no more"
            )
        return cls("localhost", path=path)

    @property
    def netloc(self) -> str:
        """``HOST:PORT``, an IPv6 address in brackets; or the path."""
        if self.path:
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.path:
            return f"{UNIX_SCHEME}://{quote(self.path)}"
        return f"{'shmqs' if self.tls else 'shmq'}://{self.netloc}"


#: The tokens used by this process, by URL: for handles that are unpickled in it.
_known: dict[str, str] = {}


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Target:
    """A server, and how to connect to it.

    It is pickled without its token, unless the pickle goes to a child process that is being
    spawned. When it is unpickled, the token is the one that this process last used for the URL, or
    that of SHMQ_TOKEN.
    """

    address: Address
    token: str | None
    tls: Tls
    connect_timeout: float
    request_timeout: float
    wait_for_acks: bool = True
    #: Whether another process reports the death of this one, which has no part in a pickle.
    supervised: bool = False

    @classmethod
    def of(
        cls,
        url: str,
        token: str | None,
        tls: Tls,
        connect_timeout: float,
        request_timeout: float,
        wait_for_acks: bool = True,
    ) -> Target:
        """The server at ``url``. Raises InvalidOption and TypeError."""
        address = Address.parse(url)
        if tls is not None and tls is not False and address.path:
            raise InvalidOption(f"url={url!r} and tls: a Unix socket has no TLS; drop tls=")
        if tls is not None and tls is not False and not address.tls:
            address = dataclasses.replace(address, tls=True)
        if tls is False and address.tls:
            raise InvalidOption(f"url={url!r} asks for TLS, and tls=False refuses it")
        if token is None:
            token = _find_known_token(str(address))
        elif not isinstance(token, str):
            raise TypeError(f"token must be a str, not {type(token).__name__}")
        if token is not None and not token.isprintable():
            raise InvalidOption("the token has characters that are not printable: no server has it")
        check_seconds("connect_timeout", connect_timeout, 0.001)
        check_seconds("request_timeout", request_timeout, 0.001)
        if address.tls:
            tls_context(tls)  # raises its errors now
        if token is not None:
            _known[str(address)] = token
        if not isinstance(wait_for_acks, bool):
            raise TypeError(f"wait_for_acks={wait_for_acks!r} must be a bool")
        return cls(
            address, token, tls, float(connect_timeout), float(request_timeout), wait_for_acks
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.tls, ssl.SSLContext):
            raise TypeError(
                "an SSLContext cannot be pickled: give tls= as True, a path, or a map of paths"
            )
        spawning = context.get_spawning_popen() is not None
        token = self.token if spawning else None
        timeouts = self.connect_timeout, self.request_timeout
        return Target.of, (str(self.address), token, self.tls, *timeouts, self.wait_for_acks)

    def __repr__(self) -> str:
        return f"<Target {self.address}>"


def _find_known_token(url: str) -> str | None:
    return _known.get(url) or os.environ.get("SHMQ_TOKEN") or None


def tls_context(tls: Any) -> ssl.SSLContext:
    """The SSL context that ``tls`` describes.

    True or None: the system's certificates. A path: those of a file, or of a folder. A map of
    paths: ``ca``, and for mutual TLS ``certificate`` and ``key``. It requires TLS 1.2 or later, and
    checks the host's name. Raises :class:`~shmq.InvalidOption` for unusable arguments.
    """
    if isinstance(tls, ssl.SSLContext):
        return tls
    if isinstance(tls, str | os.PathLike):
        tls = {"ca": tls}
    given: Mapping[str, Any] = tls if isinstance(tls, Mapping) else {}
    if not isinstance(tls, Mapping) and tls is not None and not isinstance(tls, bool):
        raise TypeError(
            f"tls={tls!r:.60} must be a bool, a path, a map or an SSLContext, "
            f"not {type(tls).__name__}"
        )
    for key in given:
        if key not in _KEYS:
            raise InvalidOption(f"tls has no {key!r}: it may have {', '.join(_KEYS)}")
    try:
        return _make_context(given)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        shown = {key: str(path) for key, path in given.items()}
        raise InvalidOption(
            f"tls={shown!r} cannot be used: {_describe(error)}; each must be a file of PEM"
        ) from error


def _describe(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or re.sub(r" ?\(_ssl\.c:\d+\)", "", str(error))
    return getattr(error, "strerror", None) or str(error)


def _make_context(given: Mapping[str, Any]) -> ssl.SSLContext:
    ca = given.get("ca")
    folder = ca is not None and Path(ca).is_dir()
    made = ssl.create_default_context(cafile=None if folder else ca, capath=ca if folder else None)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    if given.get("certificate") is not None:
        made.load_cert_chain(given["certificate"], given.get("key"))
    return made
