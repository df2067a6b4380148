"""The settings of a server, its limits and quotas, and where they come from."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from shmq.api.names import check_name, default_namespace
from shmq.api.options import check_one_of, check_seconds, check_whole
from shmq.errors import InvalidOption, ShmqError
from shmq.protocol.opcodes import DEFAULT_PORT, MAX_FRAME
from shmq.server.config.tls import Tls, check_file
from shmq.server.config.tokens import Token

__all__ = [
    "LEVELS",
    "Limits",
    "Quota",
    "Settings",
    "Source",
]

_KIB = 1024
_GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How much may exist before clients can create no more; None: without limit.

    Raises :class:`~shmq.InvalidOption` for a value out of range, and TypeError for one of
    the wrong type.
    """

    #: Queues, dead-letter queues and staging queues among them.
    queues: int | None = None
    #: Streams.
    streams: int | None = None
    #: Groups of consumers, of all streams.
    groups: int | None = None
    #: Bytes of shared memory that the queues and the partitions of streams may take.
    bytes: int | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                check_whole(field.name, value, 0, (1 << 63) - 1)

    def __bool__(self) -> bool:
        """Whether anything is limited."""
        return self != _NO_QUOTA


_NO_QUOTA = Quota()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a server. Times are in seconds, sizes in bytes.

    Raises :class:`~shmq.InvalidOption` for a value out of range, and TypeError for one of
    the wrong type.
    """

    #: Connections at a time, over all workers: 1 to 1,000,000. One more is closed at once.
    connections: int = 10_000
    #: The longest payload of a request: 4 KiB to 1 GiB.
    max_frame: int = MAX_FRAME
    #: Messages delivered to one connection and not settled: 1 to 16,777,216.
    unsettled_messages: int = 65_536
    #: Bytes of those messages: 4 KiB to 1 TiB. One message may always be delivered.
    unsettled_bytes: int = 256 << 20
    #: How long TLS may take, and the HELLO with the token after it.
    handshake: float = 5.0
    #: How long a connection that waits for nothing may be silent.
    idle: float = 300.0
    #: How long a frame may take to arrive once it has begun, and how long a peer may read
    #: nothing of what is sent to it.
    frame: float = 30.0
    #: How long connections may go on settling their leased messages when the server ends.
    drain: float = 5.0
    #: How long a process of the server may miss its heartbeat before it is killed and
    #: replaced. At least 2 s.
    silence: float = 5.0
    #: The quota of the whole namespace.
    namespace: Quota = _NO_QUOTA
    #: The quota of each token: what it may administer, and the groups it may be a member of.
    token: Quota = _NO_QUOTA

    def __post_init__(self) -> None:
        check_whole("connections", self.connections, 1, 1_000_000)
        check_whole("max_frame", self.max_frame, 4 * _KIB, _GIB)
        check_whole("unsettled_messages", self.unsettled_messages, 1, 1 << 24)
        check_whole("unsettled_bytes", self.unsettled_bytes, 4 * _KIB, _GIB * _KIB)
        for name in ("handshake", "idle", "frame", "drain"):
            check_seconds(name, getattr(self, name), 0.01)
        check_seconds("silence", self.silence, 2.0)
        for name in ("namespace", "token"):
            if not isinstance(getattr(self, name), Quota):
                raise TypeError(f"{name}={getattr(self, name)!r} must be a table of quotas")


LEVELS: Final = ("debug", "info", "warning", "error")

MAX_WORKERS: Final = 256

#: The most workers that are started by default.
_USUAL_WORKERS: Final = 4

#: The settings that a running server reloads.
_RELOADED: Final = ("limits", "log_level", "tls", "tokens")

_T = TypeVar("_T")


def _usual_workers() -> int:
    return min(len(os.sched_getaffinity(0)), _USUAL_WORKERS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a server runs.

    Raises :class:`~shmq.InvalidOption` for a value out of range,
    :class:`~shmq.InvalidName`, and TypeError for a value of the wrong type.
    """

    #: The address to listen on, or a host name.
    bind: str = "127.0.0.1"
    #: The port; 0: a free one.
    port: int = DEFAULT_PORT
    #: Worker processes: 1 to 256. By default one for each CPU it may use, up to 4.
    workers: int = dataclasses.field(default_factory=_usual_workers)
    #: The namespace whose queues are served.
    namespace: str = dataclasses.field(default_factory=default_namespace)
    #: The lowest level that is logged: ``debug``, ``info``, ``warning`` or ``error``.
    log_level: str = "info"
    #: Whether to listen beyond this host without a token or without TLS.
    insecure: bool = False
    #: Whether durable queues are recovered and written.
    persist: bool = True
    #: The directory of durable queues; None: ``SHMQ_DATA_DIR``, or the user's default.
    data_dir: Path | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)
    #: None: connections are not encrypted.
    tls: Tls | None = None
    #: The tokens that are accepted; none: every client is.
    tokens: tuple[Token, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.bind, str):
            raise TypeError(f"bind={self.bind!r} must be an address")
        if not isinstance(self.insecure, bool):
            raise TypeError(f"insecure={self.insecure!r} must be true or false")
        check_whole("port", self.port, 0, 65_535)
        check_whole("workers", self.workers, 1, MAX_WORKERS)
        check_name(self.namespace, "namespace")
        check_one_of("log_level", self.log_level, LEVELS)
        self._check_persistence()
        names = [token.name for token in self.tokens]
        for name in names:
            if names.count(name) > 1:
                raise InvalidOption(f"two tokens have the name {name!r}: give each its own")

    def _check_persistence(self) -> None:
        if not isinstance(self.persist, bool):
            raise TypeError(f"persist={self.persist!r} must be true or false")
        if self.data_dir is None:
            return
        if not isinstance(self.data_dir, Path):
            raise TypeError(f"data_dir={self.data_dir!r} must be a directory")
        if not self.persist:
            raise InvalidOption(
                f"data_dir={str(self.data_dir)!r} and persist=False: nothing would be written "
                f"there; drop one"
            )

    @property
    def level(self) -> int:
        """The log level as a number of :mod:`logging`."""
        return logging.getLevelNamesMapping()[self.log_level.upper()]

    def reloaded(self, fresh: Settings) -> tuple[Settings, list[str]]:
        """These settings with the reloadable ones of ``fresh``, and the others that differ."""
        changed = {name: getattr(fresh, name) for name in _RELOADED}
        refused = []
        if bool(fresh.tls) != bool(self.tls):
            refused.append("tls")
            changed["tls"] = self.tls
        if bool(fresh.tokens) != bool(self.tokens):
            refused.append("tokens")
            changed["tokens"] = self.tokens
        merged = dataclasses.replace(self, **changed)
        fixed = {field.name for field in dataclasses.fields(self)} - {*_RELOADED}
        refused += (name for name in fixed if getattr(fresh, name) != getattr(self, name))
        return merged, sorted(refused)


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where the settings come from: a TOML file, and the command line, which overrides it."""

    path: Path | None = None
    over: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def read(self) -> Settings:
        """The settings as they are now. Raises :class:`~shmq.InvalidOption`, with the file."""
        if self.path is None:
            return _made(Settings, "", dict(self.over))
        try:
            values = _values(_parsed(self.path), self.path.parent)
            _made(Settings, "", values)  # the file must be valid, whatever overrides it
        except (ShmqError, TypeError) as error:
            raise InvalidOption(f"{self.path}: {error}") from error
        return _made(Settings, "", {**values, **self.over})


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            found = tomllib.load(file)
    except OSError as error:
        raise InvalidOption(f"it cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidOption(f"it is not TOML: {error}") from error
    secrets = "its tokens" if found.get("tokens") else None
    check_file(status, path, "the configuration", secrets=secrets)
    return found


def _values(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    values = dict(table)
    if "limits" in values:
        values["limits"] = _limits(_table("limits", values["limits"]))
    if "tls" in values:
        files = _table("tls", values["tls"])
        values["tls"] = _made(Tls, "tls", {k: _path(v, folder) for k, v in files.items()})
    if "tokens" in values:
        rows = values["tokens"]
        if not isinstance(rows, list):
            raise TypeError("tokens must be written as [[tokens]], once for each")
        values["tokens"] = tuple(_made(Token, "[tokens]", _table("tokens", row)) for row in rows)
    if values.get("data_dir") == "":
        raise InvalidOption("data_dir='' is no directory: name one, or leave it out")
    if "data_dir" in values:
        values["data_dir"] = _path(values["data_dir"], folder)
    return values


def _limits(table: dict[str, Any]) -> Limits:
    values = dict(table)
    for scope in {"namespace", "token"} & values.keys():
        where = f"limits.{scope}"
        values[scope] = _made(Quota, where, _table(where, values[scope]))
    return _made(Limits, "limits", values)


def _made(kind: type[_T], where: str, values: dict[str, Any]) -> _T:
    """An object of that class with the values; refuses unknown keys and missing ones."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    known = [field.name for field in fields]
    place = f" in [{where}]" if where else ""
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise InvalidOption(f"unknown key {key!r}{place}: {hint}")
    for field in fields:
        needed = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if needed and field.name not in values:
            raise InvalidOption(f"{field.name!r} is missing{place}")
    return kind(**values)


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{where} must be a table, not {value!r}")
    return value


def _path(value: Any, folder: Path) -> Any:
    """A path relative to the file's folder; a value that is no string is refused later."""
    return folder / value if isinstance(value, str) else value
