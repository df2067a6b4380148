"""TLS: the certificates of the server and of its clients, and who may read and write the files."""

from __future__ import annotations

import dataclasses
import os
import ssl
import stat
from pathlib import Path

from shmq.errors import InvalidOption


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files, all of them PEM. Raises TypeError for a value that is not a path."""

    #: The server's certificate, followed by the intermediate ones.
    certificate: Path
    #: The key of that certificate, without a passphrase; None: it is in the same file.
    key: Path | None = None
    #: The authorities that must have signed a client's certificate; None: clients show none.
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        for name in ("certificate", "key", "client_ca"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Path):
                raise TypeError(f"{name}={value!r} must be a path")

    def context(self) -> ssl.SSLContext:
        """A new context with the files as they are now.

        Raises :class:`~shmq.InvalidOption` for files that cannot be used, or that others may
        write, and for a key that others may read.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            self._check_files()
            # OpenSSL would ask for a passphrase at the terminal, which a service does not have.
            context.load_cert_chain(self.certificate, self.key, password=_reject_passphrase)
        except (OSError, ValueError) as error:
            raise InvalidOption(
                f"the certificate {self.certificate} with the key {self.key or self.certificate} "
                f"cannot be used: {_describe(error)}"
            ) from error
        if self.client_ca is not None:
            try:
                _check(self.client_ca, "the file of authorities")
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                raise InvalidOption(
                    f"the authorities in {self.client_ca} cannot be used: {_describe(error)}"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _check_files(self) -> None:
        if self.key is None:
            _check(self.certificate, "the certificate with its key", secrets="the key")
            return
        _check(self.certificate, "the certificate")
        _check(self.key, "the key", secrets="it")


def _check(path: Path, what: str, secrets: str | None = None) -> None:
    """Raises InvalidOption, and OSError."""
    check_file(path.stat(), path, what, secrets=secrets)


def _reject_passphrase() -> str:
    raise InvalidOption("the key of the certificate asks for a passphrase: give one without")


def _describe(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return getattr(error, "strerror", None) or str(error)


def check_file(status: os.stat_result, path: Path, what: str, *, secrets: str | None) -> None:
    """Refuse a file of another user, one that others may write, or ``secrets`` they may read.

    ``what`` names the file in the error, ``secrets`` what others must not read; None: anyone
    may read it. Raises :class:`~shmq.InvalidOption`, with the mode and what to do.
    """
    user = os.geteuid()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in {user, 0}:
        raise InvalidOption(
            f"{what} belongs to user {status.st_uid}, neither to user {user} nor to root: "
            f"chown {user} {path} and chmod 600 {path}"
        )
    if mode & 0o022:
        raise InvalidOption(f"{what} has mode {mode:04o}, so others may write it: chmod 600 {path}")
    if secrets is not None and mode & 0o077:
        raise InvalidOption(
            f"{what} has mode {mode:04o}, so others may read {secrets}: chmod 600 {path}"
        )
