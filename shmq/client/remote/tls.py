"""TLS between the protocol and the socket."""

from __future__ import annotations

import os
import re
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shmq.errors import InvalidOption

__all__ = ["Seal", "context"]

_KEYS = ("ca", "certificate", "key")
_READ = 1 << 16


def context(tls: Any) -> ssl.SSLContext:
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
        return _made(given)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        shown = {key: str(path) for key, path in given.items()}
        raise InvalidOption(
            f"tls={shown!r} cannot be used: {_told(error)}; each must be a file of PEM"
        ) from error


def _told(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or re.sub(r" ?\(_ssl\.c:\d+\)", "", str(error))
    return getattr(error, "strerror", None) or str(error)


def _made(given: Mapping[str, Any]) -> ssl.SSLContext:
    ca = given.get("ca")
    folder = ca is not None and Path(ca).is_dir()
    made = ssl.create_default_context(cafile=None if folder else ca, capath=ca if folder else None)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    if given.get("certificate") is not None:
        made.load_cert_chain(given["certificate"], given.get("key"))
    return made


class Seal:
    """The client's side of one TLS connection; its socket is read and written elsewhere.

    One thread may seal while another opens: they take turns, because an SSL object serves one
    thread at a time, and it works without the GIL.
    """

    def __init__(self, made: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = made.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._turn = threading.RLock()  # a signal's handler may send while its thread reads

    def shake_hands(self, sealed: bytes | None) -> tuple[bool, bytes]:
        """Take the next step with the peer's bytes: whether it was the last, and what to send."""
        if sealed is not None:
            self._incoming.write(sealed)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False, self._outgoing.read()
        return True, self._outgoing.read()

    def seal(self, plain: bytes) -> bytes:
        """The encrypted bytes to send."""
        view = memoryview(plain)
        with self._turn:
            while view:
                view = view[self._object.write(view) :]
            return self._outgoing.read()

    def open(self, sealed: bytes) -> bytes | None:
        """The decrypted bytes, perhaps none yet; None if the peer has ended. Raises SSLError."""
        parts = []
        with self._turn:
            self._incoming.write(sealed)
            try:
                while part := self._object.read(_READ):
                    parts.append(part)
            except ssl.SSLWantReadError:
                return b"".join(parts)
        return b"".join(parts) or None
