"""The settings of a server, its limits and quotas, and where they come from."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from shmq.api.names import check_name, default_namespace
from shmq.api.options import check_one_of, check_whole, option
from shmq.errors import InvalidOption, ShmqError
from shmq.host.supervision.audit import audit_file_of_environment
from shmq.host.supervision.stderr import LOG_FORMATS, default_log_format, default_log_level
from shmq.model.codec.toml import read_toml
from shmq.protocol.opcodes import DEFAULT_PORT, MAX_FRAME
from shmq.server.config.credentials import with_hash
from shmq.server.config.tls import Tls, check_file
from shmq.server.config.tokens import Token
from shmq.suggestions import suggest

_KIB = 1024
_GIB = 1 << 30


def _check_rows(limits: Any) -> None:
    """Check each field that is a row of a table of options."""
    for field in dataclasses.fields(limits):
        if "option" in field.metadata:
            field.metadata["option"].check(field.name, getattr(limits, field.name), {})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How much may exist before clients can create no more; None: without limit.

    Raises :class:`~shmq.InvalidOption` for a value out of range, and TypeError for one of
    the wrong type.
    """

    queues: int | None = option(
        None,
        "count",
        "Queues, including dead-letter queues, reply queues and staging queues",
        least=0,
        none="no limit",
    )
    streams: int | None = option(None, "count", "Streams", least=0, none="no limit")
    groups: int | None = option(
        None, "count", "Consumer groups of all streams", least=0, none="no limit"
    )
    tables: int | None = option(None, "count", "Tables", least=0, none="no limit")
    bytes: int | None = option(
        None,
        "bytes",
        "Bytes that the queues, the partitions of streams and the tables may take",
        least=0,
        none="no limit",
    )

    def __post_init__(self) -> None:
        _check_rows(self)

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

    connections: int = option(
        10_000,
        "count",
        "Connections at a time, over all workers",
        most=1_000_000,
        more="One more is closed at once",
    )
    max_frame: int = option(
        MAX_FRAME, "bytes", "The longest payload of a request", least=4 * _KIB, most=_GIB
    )
    unsettled_messages: int = option(
        65_536, "count", "Messages delivered to one connection and not settled", most=1 << 24
    )
    unsettled_bytes: int = option(
        256 << 20,
        "bytes",
        "The bytes of those messages",
        least=4 * _KIB,
        most=_GIB * _KIB,
        more="One message may always be delivered",
    )
    handshake: float = option(
        5.0, "seconds", "How long TLS may take, and the HELLO with the token after it", least=0.01
    )
    idle: float = option(
        300.0,
        "seconds",
        "How long a connection that waits for nothing may send nothing",
        least=0.01,
    )
    frame: float = option(
        30.0,
        "seconds",
        "How long a frame may take to arrive once it has started, and how long a client may read "
        "nothing of what is sent to it",
        least=0.01,
    )
    drain: float = option(
        5.0,
        "seconds",
        "How long connections may settle their leased messages when the server ends",
        least=0.01,
    )
    silence: float = option(
        5.0,
        "seconds",
        "How long a process of the server may send no heartbeat before it is killed and replaced",
        least=2.0,
    )
    #: The quota of the whole namespace.
    namespace: Quota = _NO_QUOTA
    #: The quota of each token: what it may administer, and the groups it may be a member of.
    token: Quota = _NO_QUOTA

    def __post_init__(self) -> None:
        _check_rows(self)
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


def _count_usual_workers() -> int:
    return min(len(os.sched_getaffinity(0)), _USUAL_WORKERS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a server runs.

    Raises :class:`~shmq.InvalidOption` for a value out of range,
    :class:`~shmq.InvalidName`, and TypeError for a value of the wrong type.
    """

    #: The address to listen on, a host name, or ``unix:`` and the path of a Unix socket.
    bind: str = "127.0.0.1"
    #: The port; 0: a free one.
    port: int = DEFAULT_PORT
    #: Worker processes: 1 to 256. By default one for each CPU it may use, up to 4.
    workers: int = dataclasses.field(default_factory=_count_usual_workers)
    #: The namespace whose queues are served.
    namespace: str = dataclasses.field(default_factory=default_namespace)
    #: The lowest level that is logged: ``debug``, ``info``, ``warning`` or ``error``.
    log_level: str = dataclasses.field(default_factory=default_log_level)
    #: The form of a line of the log: ``text`` or ``json``.
    log_format: str = dataclasses.field(default_factory=default_log_format)
    #: The file that audit events are appended to, too; None: ``SHMQ_AUDIT_LOG``, or none.
    audit_log: Path | None = dataclasses.field(default_factory=audit_file_of_environment)
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
        check_one_of("log_format", self.log_format, LOG_FORMATS)
        if self.audit_log is not None and not isinstance(self.audit_log, Path):
            raise TypeError(f"audit_log={self.audit_log!r} must be a file")
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
            return _make(Settings, "", dict(self.over))
        try:
            values = _parse_values(_parse(self.path), self.path.parent)
            _make(Settings, "", values)  # the file must be valid, whatever overrides it
        except (ShmqError, TypeError) as error:
            raise InvalidOption(f"{self.path}: {error}") from error
        return _make(Settings, "", {**values, **self.over})


def _parse(path: Path) -> dict[str, Any]:
    found, status = read_toml(path)
    check_file(status, path, "the configuration", secrets=None)  # tokens are only hashes there
    return found


def _parse_values(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    values = dict(table)
    if "limits" in values:
        values["limits"] = _parse_limits(_require_table("limits", values["limits"]))
    if "tls" in values:
        files = _require_table("tls", values["tls"])
        values["tls"] = _make(Tls, "tls", {k: _resolve_path(v, folder) for k, v in files.items()})
    if "tokens" in values:
        rows = values["tokens"]
        if not isinstance(rows, list):
            raise TypeError("tokens must be written as [[tokens]], once for each")
        values["tokens"] = tuple(
            _make(Token, "[tokens]", with_hash(_require_table("tokens", row))) for row in rows
        )
    for key, what in (("data_dir", "directory"), ("audit_log", "file")):
        if values.get(key) == "":
            raise InvalidOption(f"{key}='' is not a {what}: name one, or leave it out")
        if key in values:
            values[key] = _resolve_path(values[key], folder)
    return values


def _parse_limits(table: dict[str, Any]) -> Limits:
    values = dict(table)
    for scope in {"namespace", "token"} & values.keys():
        where = f"limits.{scope}"
        values[scope] = _make(Quota, where, _require_table(where, values[scope]))
    return _make(Limits, "limits", values)


def _make(kind: type[_T], where: str, values: dict[str, Any]) -> _T:
    """An object of that class with the values; refuses unknown keys and missing ones."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    known = [field.name for field in fields]
    place = f" in [{where}]" if where else ""
    for key in values:
        if key not in known:
            raise InvalidOption(f"unknown key {key!r}{place}: {suggest(key, known)}")
    for field in fields:
        needed = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if needed and field.name not in values:
            raise InvalidOption(f"{field.name!r} is missing{place}")
    return kind(**values)


def _require_table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{where} must be a table, not {value!r}")
    return value


def _resolve_path(value: Any, folder: Path) -> Any:
    """A path relative to the file's folder; a value that is not a string is refused later."""
    return folder / value if isinstance(value, str) else value
