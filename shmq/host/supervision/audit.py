"""The audit: who changed what, and who was refused, as one event each for the log and a file."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import logging
import os
import pwd
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from shmq.errors import InvalidOption, ShmqError
from shmq.native.descriptors import open_file
from shmq.protocol.status import Refusal, status_of

log = logging.getLogger("shmq.audit")

#: The most characters of a value; the rest is cut off.
MOST_OF_A_VALUE: Final = 256

Value = str | int | bool | None


class Event(enum.StrEnum):
    """What is audited."""

    QUEUE_CREATE = "queue.create"
    QUEUE_DELETE = "queue.delete"
    QUEUE_ALTER = "queue.alter"
    QUEUE_PURGE = "queue.purge"
    QUEUE_REDRIVE = "queue.redrive"
    QUEUE_MOVE = "queue.move"
    STREAM_CREATE = "stream.create"
    STREAM_DELETE = "stream.delete"
    STREAM_REPARTITION = "stream.repartition"
    STREAM_ALTER = "stream.alter"
    GROUP_DELETE = "group.delete"
    GROUP_RESET = "group.reset"
    EXCHANGE_CREATE = "exchange.create"
    EXCHANGE_DELETE = "exchange.delete"
    EXCHANGE_BIND = "exchange.bind"
    EXCHANGE_UNBIND = "exchange.unbind"
    SCHEMA_SET = "schema.set"
    TABLE_CREATE = "table.create"
    TABLE_DELETE = "table.delete"
    BACKUP_RESTORE = "backup.restore"
    LEFTOVERS_REMOVE = "leftovers.remove"
    RIGHT_REFUSED = "right.refused"
    LOGIN_FAILED = "login.failed"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who asked for something.

    ``who``: a token's name, or a user of this host; None: unknown. ``peer``: the address and port,
    or "local". ``via``: "tcp", "http" or "cli".
    """

    who: str | None
    peer: str
    via: str


def local_actor() -> Actor:
    """The user of this process."""
    uid = os.getuid()
    try:
        who = pwd.getpwuid(uid).pw_name
    except KeyError:
        who = str(uid)
    return Actor(who=who, peer="local", via="cli")


def outcome_of(error: BaseException | None) -> str:
    """The word for an error: that of the wire's status in lower case; None: ``ok``."""
    if error is None:
        return "ok"
    if isinstance(error, Refusal):
        return error.status.name.lower()
    if isinstance(error, ShmqError):
        status = status_of(error).name.lower()
        return type(error).__name__ if status == "internal" else status
    return type(error).__name__


def record(event: Event, name: str, outcome: str, actor: Actor, **details: Value) -> None:
    """Write an event to the log ``shmq.audit``, and to the file if there is one.

    ``name``: of what it is about, or "". ``details`` must hold no secret. Values are escaped and
    cut to `MOST_OF_A_VALUE` characters. Raises ShmqError if the file cannot be written.
    """
    given: dict[str, Value] = {
        "event": event.value,
        "name": name,
        "outcome": outcome,
        **dataclasses.asdict(actor),
        "pid": os.getpid(),
        "uid": os.getuid(),
        **details,
    }
    fields = {key: _cut(value) for key, value in given.items()}
    text = " ".join(f"{key}={_as_text(value)}" for key, value in fields.items())
    log.info("audit %s", text, extra={"audit": fields})


def _cut(value: Value) -> Value:
    if isinstance(value, str) and len(value) > MOST_OF_A_VALUE:
        return value[: MOST_OF_A_VALUE - 3] + "..."
    return value


def escaped(value: Any) -> str:
    """The value as JSON of printable ASCII characters alone; it has no floats: see `Value`."""
    return json.dumps(value, default=str).replace("\x7f", "\\u007f")


def _as_text(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        plain = value and value.isascii() and value.isprintable() and not set(value) & set(' "=\\')
        return value if plain and value != "-" else escaped(value)
    return escaped(value)


# ---- the file ----


class AuditFile(logging.Handler):
    """A file with one line of JSON for each event. It is opened for each, so it may be moved away.

    ``strict``: a failed write is raised to the caller of `record`, not logged.
    """

    def __init__(self, path: Path, *, strict: bool = False) -> None:
        super().__init__()
        self._path = path
        self._strict = strict

    def check(self) -> None:
        """Raise InvalidOption if the file cannot be written."""
        try:
            os.close(self._open_log())
        except OSError as error:
            raise InvalidOption(
                f"the audit log {str(self._path)!r} cannot be written: "
                f"{error.strerror or error}: nothing was changed; name another file in "
                f"SHMQ_AUDIT_LOG or audit_log, or correct this one"
            ) from error

    def emit(self, record: logging.LogRecord) -> None:
        """Append the event's line."""
        fields = getattr(record, "audit", None)
        if fields is None:
            return
        try:
            self._append(escaped({"time": rfc3339(record.created), **fields}) + "\n")
        except OSError as error:
            what = f"the audit log {str(self._path)!r} cannot be written: {error.strerror or error}"
            if self._strict:
                raise ShmqError(f"{what}: the change was made, and is not in it") from error
            logging.getLogger("shmq").error("%s: an event is missing there", what)

    def _append(self, line: str) -> None:
        opened = self._open_log()
        try:
            raw = line.encode("ascii")
            written = os.write(opened, raw)
            if written < len(raw):
                raise OSError(f"only {written} of {len(raw)} bytes were written")
        finally:
            os.close(opened)

    def _open_log(self) -> int:
        flags = (
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
        opened = open_file(self._path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise OSError("it is not a regular file")
        return opened


def rfc3339(moment: float) -> str:
    """The moment as RFC 3339 has it, in UTC, with milliseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{whole}.{int(moment * 1000) % 1000:03d}Z"


def audit_file_of_environment() -> Path | None:
    """The file that ``SHMQ_AUDIT_LOG`` names; None: no file."""
    named = os.environ.get("SHMQ_AUDIT_LOG")
    return Path(named).absolute() if named else None


@contextlib.contextmanager
def to_file(path: Path | None, *, strict: bool = False) -> Iterator[None]:
    """Append events to the file while the block runs. Raises InvalidOption if that cannot be."""
    level = log.level
    log.setLevel(logging.INFO)  # whatever the level of the rest
    if path is None:
        yield
        return
    handler = AuditFile(path, strict=strict)
    handler.check()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


# ---- floods ----


class EventLimit:
    """Lets the first events of a source through, then one a second.

    For one thread. ``clock`` returns seconds.
    """

    __slots__ = ("_clock", "_first", "_next_at", "_seen", "left_out")

    def __init__(self, first: int = 10, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._first = first
        self._seen = 0
        self._next_at = 0.0
        #: How many were left out since the last one that was let through.
        self.left_out = 0

    def take(self) -> Mapping[str, Value] | None:
        """The details that say how many were left out before; None: leave this one out, too."""
        now = self._clock()
        if self._seen >= self._first and now < self._next_at:
            self.left_out += 1
            return None
        self._seen += 1
        self._next_at = now + 1.0
        left_out, self.left_out = self.left_out, 0
        return {"left_out": left_out} if left_out else {}
