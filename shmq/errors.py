"""Every error shmq raises, all under :class:`ShmqError`.

The module imports nothing of shmq, so that every layer, the compiled core
included, can raise these classes. A message names the values involved and what
to do about them; the same values are attributes where a program may want them.
"""

from __future__ import annotations

import errno
import os
import queue

TYPE_CHECKING = False  # that of typing, whose import would cost as much as the interpreter's start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

__all__ = [
    "AlreadyExists",
    "AlreadySettled",
    "ConnectionLost",
    "DamagedFile",
    "DamagedSegment",
    "DurabilityWarning",
    "Empty",
    "ExchangeExists",
    "FileError",
    "Forbidden",
    "ForeignSegment",
    "Full",
    "IncompatibleFile",
    "IncompatibleSegment",
    "InvalidName",
    "InvalidOption",
    "LeaseExpired",
    "LockExists",
    "LockNotHeld",
    "LockTimeout",
    "MemberFenced",
    "MessageTooLarge",
    "NoReply",
    "NoSpace",
    "NoSuchExchange",
    "NoSuchGroup",
    "NoSuchQueue",
    "NoSuchStream",
    "NoSuchTable",
    "NotConfirmed",
    "NotFound",
    "OffsetOutOfRange",
    "OptionsWarning",
    "OutOfSequence",
    "PartitionSealed",
    "PublishRefused",
    "PutsRefused",
    "QueueDeleted",
    "QueueExists",
    "RequestFailed",
    "SchemaError",
    "SegmentError",
    "ServerError",
    "ShmqError",
    "ShuttingDown",
    "StreamDeleted",
    "StreamExists",
    "TableDeleted",
    "TableExists",
    "Unauthorized",
    "Unroutable",
    "Unsupported",
    "WorkerDied",
    "WrongDirectory",
]


def not_mapped(error: int, size: int) -> OSError:
    """Why mmap(2) refused so many bytes of shared memory, by its errno."""
    why = os.strerror(error)
    if error == errno.ENOMEM:
        why += (
            ": the process has no room for it, and /dev/shm may have; raise its limit of address "
            "space (ulimit -v) or of mappings (sysctl vm.max_map_count), or close handles"
        )
    return OSError(error, f"{size} bytes of shared memory cannot be mapped: {why}")


def no_descriptor(error: OSError) -> OSError:
    """The error, if it is for lack of a file descriptor as one that names the limit."""
    if error.errno == errno.EMFILE:
        why = (
            f"this process has no file descriptor left of {os.sysconf('SC_OPEN_MAX')}: close "
            f"handles or files, or raise the limit (ulimit -n)"
        )
    elif error.errno == errno.ENFILE:
        why = "this machine has no file descriptor left: raise its limit (sysctl fs.file-max)"
    else:
        return error
    return OSError(error.errno, why if error.filename is None else f"{error.filename}: {why}")


def no_dedupe_window(queue: str, dedupe_id: str) -> InvalidOption:
    """The error for a put with a dedupe id that the queue would not remember."""
    return InvalidOption(
        f"dedupe_id={dedupe_id!r:.80}: queue {queue!r} has no dedupe_window, so that it would "
        f"take a second message of this id: create the queue with dedupe_window=3600, in seconds, "
        f"or put without dedupe_id"
    )


#: What to do about a text that cannot be encoded, where bytes may be passed.
AS_BYTES = "replace that character, or pass text.encode(errors='surrogateescape')"


def not_utf8(what: str, text: str, remedy: str = "replace that character") -> InvalidOption:
    """The error for a text of the parameter ``what`` that has half of a surrogate pair."""
    return InvalidOption(
        f"{what}={text!a:.80} cannot be encoded as UTF-8, as it has a lone surrogate: {remedy}"
    )


def to_utf8(what: str, text: str, remedy: str = "replace that character") -> bytes:
    """The text of the parameter ``what`` in UTF-8. Raises InvalidOption: see `not_utf8`."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise not_utf8(what, text, remedy) from None


class _Descriptors:
    """For blocks that load a module or make a semaphore: what fails for lack of a descriptor.

    Raises OSError, as of `no_descriptor`, instead of the loader's ImportError and of an OSError
    without a number. What loads its modules so may be tried again.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | ImportError) and not isinstance(error, ShmqError):
            refusal = _describe_exhaustion(error)
            if refusal is not None:
                raise refusal from error


def _describe_exhaustion(error: OSError | ImportError) -> OSError | None:
    """Why no descriptor is free, if that is the cause of an error."""
    if isinstance(error, OSError) and error.errno is not None:
        refusal = no_descriptor(error)
        return None if refusal is error else refusal
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as lack:
        lack.filename = None
        return no_descriptor(lack)
    return None


#: See `_Descriptors`.
descriptors = _Descriptors()


class ShmqError(Exception):
    """The base of all errors of shmq."""


class DurabilityWarning(RuntimeWarning):
    """What is durable is not written to disk: no writer runs, and none could be started.

    That is a queue or a stream, or exchanges and schemas. What is put there is lost with the
    machine's memory, until a writer is started.
    """


class OptionsWarning(RuntimeWarning):
    """What was to be ensured exists with other options, and is used as is."""


class Full(ShmqError, queue.Full):
    """The queue, or the partition of a stream, holds as much as it may."""


class Empty(ShmqError, queue.Empty):
    """No message could be had within the time allowed."""


class NotFound(ShmqError, LookupError):
    """The base of the errors for a name that nothing has."""

    #: The name, where it is known.
    name: str
    #: The text without the hint at another name, which is for those who may see all names.
    plain: str
    #: Finds a hint at another name, which may take a request: called when the text is first read.
    find_hint: Callable[[], str] | None

    #: What the name was to lead to, and the command that lists the existing ones.
    _kind = ""
    _listing = ""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.plain = message
        self.find_hint = None

    @classmethod
    def of(cls, name: str, where: str) -> Self:
        """The error for a name that nothing has ``where``: "in namespace 'n'"."""
        return cls(
            f"{cls._kind} {name!r} does not exist {where}: create it first, or see "
            f"`shmq {cls._listing}`",
            name,
        )

    @property
    def kind(self) -> str:
        """What the name was to lead to: "queue", "stream", "exchange", "table" or "group"."""
        return self._kind

    def __str__(self) -> str:
        # Without the constructor, as of an error made of another process's text, there is none.
        find, self.find_hint = getattr(self, "find_hint", None), None
        if find is not None and (hint := find()):
            what, colon, rest = self.plain.partition(": ")
            self.args = (f"{what}: {hint}" + (f" Otherwise {rest}" if colon else ""),)
        return super().__str__()

    def __reduce__(self) -> str | tuple[Any, ...]:
        str(self)  # with the hint: another process cannot find it
        return super().__reduce__()


class NoSuchQueue(NotFound):
    """No queue of that name exists in the namespace."""

    _kind = "queue"
    _listing = "list"


class AlreadyExists(ShmqError):
    """What is to be made exists with other options, or a queue or stream has its name."""

    #: The options that differ: name to the value that was given, and the existing one. Empty where
    #: they are not known.
    differences: dict[str, tuple[Any, Any]]

    #: What it is, in the text.
    _kind = ""

    def __init__(self, message: str, differences: dict[str, tuple[Any, Any]] | None = None) -> None:
        super().__init__(message)
        self.differences = differences or {}

    @classmethod
    def of(
        cls,
        name: str,
        differences: dict[str, tuple[Any, Any]],
        advice: str = "use it as is, or delete it first",
    ) -> Self:
        """The error for the name of something that exists with other options."""
        listed = ", ".join(
            f"{key} is {has!r}, not {given!r}" for key, (given, has) in differences.items()
        )
        return cls(
            f"{cls._kind} {name!r} exists with other options{listed and ': '}{listed}; {advice}",
            differences,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.differences)


class QueueExists(AlreadyExists):
    """A queue of that name exists with other options."""

    _kind = "queue"


class NoSuchExchange(NotFound):
    """No exchange of that name exists in the namespace."""

    _kind = "exchange"
    _listing = "exchange list"


class ExchangeExists(AlreadyExists):
    """An exchange of that name exists, of another kind or with another alternate."""

    _kind = "exchange"


class Unroutable(ShmqError):
    """What was published reaches no queue: nothing was put."""


class QueueDeleted(ShmqError):
    """The queue was deleted while this handle was attached to it."""


class NoSuchStream(NotFound):
    """No stream of that name exists in the namespace."""

    _kind = "stream"
    _listing = "stream list"


class StreamExists(AlreadyExists):
    """A stream of that name exists with other options."""

    _kind = "stream"


class StreamDeleted(ShmqError):
    """The stream was deleted while this handle was attached to it."""


class NoSuchTable(NotFound):
    """No table of that name exists in the namespace."""

    _kind = "table"
    _listing = "table list"


class TableExists(AlreadyExists):
    """A table of that name exists with other options."""

    _kind = "table"


class TableDeleted(ShmqError):
    """The table was deleted while this handle was attached to it."""


class NoSuchGroup(NotFound):
    """The stream has no group of that name."""

    _kind = "group"

    @classmethod
    def of(cls, name: str, where: str) -> Self:
        """The error for a name that no group of the stream ``where`` has."""
        return cls(
            f"stream {where!r} has no group {name!r}: see `shmq stream groups {where}`", name
        )


class OffsetOutOfRange(ShmqError, LookupError):
    """The partition has no such record: it is gone already, or is not there yet."""

    #: The offset that was asked for.
    asked: int
    #: Those that there were then: the oldest record's, and that of the next one to come.
    earliest: int
    latest: int
    #: The partition; None if it is not known.
    partition: int | None

    def __init__(
        self,
        message: str,
        asked: int = 0,
        earliest: int = 0,
        latest: int = 0,
        partition: int | None = None,
    ) -> None:
        super().__init__(message)
        self.asked = asked
        self.earliest = earliest
        self.latest = latest
        self.partition = partition

    @classmethod
    def of(
        cls, stream: str, partition: int, asked: int, earliest: int, latest: int
    ) -> OffsetOutOfRange:
        """The error for an offset of a partition that has those from earliest to latest."""
        what = f"partition {partition} of stream {stream!r}"
        has = f"the oldest is {earliest}, and the next one is {latest}"
        message = (
            f"{what} has no offset {asked} yet: {has}; seek to one of these"
            if asked > latest
            else f"offset {asked} of {what} is gone: {has}; seek to {earliest} to continue, read "
            f"sooner, or give the stream more ring_bytes"
        )
        return cls(message, asked, earliest, latest, partition)

    def __reduce__(self) -> tuple[type[OffsetOutOfRange], tuple[str, int, int, int, int | None]]:
        return type(self), (str(self), self.asked, self.earliest, self.latest, self.partition)


class OutOfSequence(ShmqError):
    """A producer's records do not begin where those that were appended end.

    Some before them were left out, or the first of them are there and the last are not.
    """

    #: The sequence number that comes next, and the one that was given.
    expected: int
    given: int

    def __init__(self, message: str, expected: int = 0, given: int = 0) -> None:
        super().__init__(message)
        self.expected = expected
        self.given = given

    def __reduce__(self) -> tuple[type[OutOfSequence], tuple[str, int, int]]:
        return type(self), (str(self), self.expected, self.given)


class PartitionSealed(ShmqError):
    """The partition takes no records any more: the stream has got others instead."""


class MemberFenced(ShmqError):
    """The member has left the group, or the partition no longer its own."""


class MessageTooLarge(ShmqError, ValueError):
    """The message can never fit into this queue, or the record into this stream."""


class LeaseExpired(ShmqError):
    """The receipt has expired: nothing was settled by it."""


class AlreadySettled(LeaseExpired):
    """The holder of the message has settled it already: nothing was changed.

    Raised where the same :class:`~shmq.Message` object is settled or extended again. A receipt does
    not know what settled its message: that is :class:`~shmq.LeaseExpired`.
    """

    #: The method that has settled it: "ack", "nack" or "reject".
    how: str
    #: How many seconds ago that was.
    ago: float

    def __init__(self, message: str, how: str, ago: float) -> None:
        super().__init__(message)
        self.how = how
        self.ago = ago

    @classmethod
    def of(cls, what: str, how: str, ago: float) -> Self:
        """The error for ``what``, which was settled ``ago`` seconds ago."""
        ago = max(0.0, ago)
        return cls(f"{what} was settled by {how}() {ago:.3f} s ago: settle it once", how, ago)

    def __reduce__(self) -> tuple[type[AlreadySettled], tuple[str, str, float]]:
        return type(self), (str(self), self.how, self.ago)


class LockTimeout(ShmqError, TimeoutError):
    """A lock was held for longer than the operation may wait: nothing was done.

    Its holder is stopped, or very busy. The operation may be tried again.
    """

    #: The process that holds the lock; 0 where that is not known.
    pid: int
    #: What it does, as /proc has it: "running", "stopped", "frozen"; "" where that is not known.
    state: str

    def __init__(self, message: str, pid: int = 0, state: str = "") -> None:
        super().__init__(message)
        self.pid = pid
        self.state = state

    def __reduce__(self) -> tuple[type[LockTimeout], tuple[str, int, str]]:
        return type(self), (str(self), self.pid, self.state)


class LockExists(AlreadyExists):
    """A lock or semaphore of that name exists, of the other kind or with other permits."""


class LockNotHeld(ShmqError, RuntimeError):
    """What is to be released is not held by this handle, or was lost."""


class NoSpace(ShmqError, OSError):
    """Shared memory is exhausted on this machine or in this container."""


class InvalidOption(ShmqError, ValueError):
    """An option is unknown, or a value is out of range; one of a wrong type is a TypeError."""


class InvalidName(ShmqError, ValueError):
    """A queue's or a namespace's name has a wrong length or character."""


class SegmentError(ShmqError):
    """A shared-memory segment cannot be used as a queue."""


class IncompatibleSegment(SegmentError):
    """The segment was written with another version of the layout."""


class DamagedSegment(SegmentError):
    """The segment is truncated, or its contents contradict themselves."""


class ForeignSegment(SegmentError):
    """The segment belongs to someone else, or others may write to it.

    Also: processes of another PID or time namespace use the namespace.
    """


class FileError(ShmqError):
    """A file cannot be used as a snapshot or a journal of a queue."""


class IncompatibleFile(FileError):
    """The file is of another version of the format, or of another format altogether."""


class DamagedFile(FileError):
    """The file is cut off, or its bytes are not those that were written.

    Of a stream that is read it says which records that are: the offsets from ``first_offset`` on,
    and before ``next_offset``, of ``partition``. All three are None where no stream is read.
    """

    #: Which file, and where in it the damage is, in bytes from its beginning.
    path: str
    offset: int
    #: What is wrong there.
    what: str
    #: Of a stream: the partition.
    partition: int | None
    #: The first offset that cannot be read.
    first_offset: int | None
    #: The next one that can: a record has it already, or will have it.
    next_offset: int | None

    def __init__(
        self,
        path: str,
        offset: int,
        what: str,
        partition: int | None = None,
        first_offset: int | None = None,
        next_offset: int | None = None,
    ) -> None:
        message = f"{path} is damaged at byte {offset}: {what}"
        if partition is not None and first_offset is not None and next_offset is not None:
            message += (
                f"; of partition {partition} the offsets {first_offset} to {next_offset - 1} "
                f"cannot be read: go on at {next_offset}"
            )
        super().__init__(message)
        self.path = path
        self.offset = offset
        self.what = what
        self.partition = partition
        self.first_offset = first_offset
        self.next_offset = next_offset

    def __reduce__(self) -> tuple[Any, ...]:
        places = (self.partition, self.first_offset, self.next_offset)
        return type(self), (self.path, self.offset, self.what, *places)


class NotConfirmed(ShmqError):
    """What was put is in the queue, or was defined, but is not known to be on disk.

    The journal did not have it in time, or its disk fails. It is written as soon as that is
    possible; put again, it would be there twice. A server that has not answered yet has it,
    too, unless it is about to refuse it: a ``dedupe_id`` makes it safe to put it again.
    """

    #: The sequence number of the message, or of the last one; None if the server did not send it.
    sequence: int | None
    #: How many messages the call has put; of a server, how many it has said that it took.
    taken: int

    def __init__(self, message: str, sequence: int | None = None, taken: int = 1) -> None:
        super().__init__(message)
        self.sequence = sequence
        self.taken = taken

    def __reduce__(self) -> tuple[type[NotConfirmed], tuple[str, int | None, int]]:
        return type(self), (str(self), self.sequence, self.taken)


class PutsRefused(ShmqError):
    """Not every put of a pipeline was taken; the first refusal is the ``__cause__``.

    Puts are known by their number in the pipeline, from 0 on.
    """

    #: How many were taken.
    taken: int
    #: Those that were refused: number to error.
    refused: dict[int, ShmqError]
    #: Those that may have been taken or not: the connection was lost before the answer.
    unknown: list[int]
    #: Those that were to be on disk, and are not known to be: on this host they are taken, a
    #: server has not said so.
    unconfirmed: list[int]

    def __init__(
        self,
        message: str,
        taken: int = 0,
        refused: dict[int, ShmqError] | None = None,
        unknown: list[int] | None = None,
        unconfirmed: list[int] | None = None,
    ) -> None:
        super().__init__(message)
        self.taken = taken
        self.refused = refused or {}
        self.unknown = unknown or []
        self.unconfirmed = unconfirmed or []


class PublishRefused(ShmqError):
    """Not every queue that a publish leads to took its copy; the others have theirs.

    The first refusal is the ``__cause__``.
    """

    #: How many copies were put, in all queues.
    delivered: int
    #: How many of them queues knew already, by their ``dedupe_id``.
    duplicates: int
    #: Why a queue has none, or not all of many: name to error.
    refused: dict[str, ShmqError]

    def __init__(
        self,
        message: str,
        delivered: int = 0,
        duplicates: int = 0,
        refused: dict[str, ShmqError] | None = None,
    ) -> None:
        super().__init__(message)
        self.delivered = delivered
        self.duplicates = duplicates
        self.refused = refused or {}

    def __reduce__(self) -> tuple[type[PublishRefused], tuple[Any, ...]]:
        return type(self), (str(self), self.delivered, self.duplicates, self.refused)


class NoReply(ShmqError, TimeoutError):
    """No reply to a request came in time. The request may still be handled."""


class RequestFailed(ShmqError):
    """The handler of a request raised an error, of which the name and the text are passed on."""

    #: The error's type: ``ValueError``, ``app.orders.Unknown``.
    kind: str
    #: What it said.
    text: str
    #: Its traceback, where the server gives it (``serve(…, tracebacks=True)``).
    trace: str | None

    def __init__(
        self, message: str, kind: str = "", text: str = "", trace: str | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.text = text
        self.trace = trace

    def __reduce__(self) -> tuple[type[RequestFailed], tuple[str, str, str, str | None]]:
        return type(self), (str(self), self.kind, self.text, self.trace)


class SchemaError(ShmqError, ValueError):
    """A body is not as its schema says, or a schema breaks the rule of those before it."""

    #: The queue or the stream.
    name: str
    #: Which field: ``address.street``, ``items[2].price``; empty for the whole.
    field: str

    def __init__(self, message: str, name: str = "", field: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.field = field

    def __reduce__(self) -> tuple[type[SchemaError], tuple[str, str, str]]:
        return type(self), (str(self), self.name, self.field)


class ConnectionLost(ShmqError, ConnectionError):
    """The server cannot be reached, or the connection ended before the answer came."""


class Unauthorized(ShmqError, PermissionError):
    """The server requires a token, or rejected the one that was passed."""


class Forbidden(ShmqError, PermissionError):
    """The token has no right to do this to the queue, or the queue is exclusive to another."""


class Unsupported(ShmqError):
    """The server, or the queue, does not know what was asked for."""


class WorkerDied(ShmqError, RuntimeError):
    """The worker process died that executed a call of a process pool, each time it was tried."""

    #: The process.
    pid: int
    #: The number of the signal that killed it; None if it exited.
    signal: int | None
    #: Its exit code; None if a signal killed it.
    exit_code: int | None
    #: Whether the kernel killed it because its cgroup had no memory left.
    out_of_memory: bool

    def __init__(
        self,
        message: str,
        pid: int = 0,
        signal: int | None = None,
        exit_code: int | None = None,
        out_of_memory: bool = False,
    ) -> None:
        super().__init__(message)
        self.pid = pid
        self.signal = signal
        self.exit_code = exit_code
        self.out_of_memory = out_of_memory

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.pid, self.signal, self.exit_code, self.out_of_memory)
        return type(self), (str(self), *fields)


class WrongDirectory(ShmqError):
    """A data directory was named, but the namespace's durable data is in another one."""

    def __init__(
        self, namespace: str, own: str | os.PathLike[str], named: str | os.PathLike[str]
    ) -> None:
        super().__init__(
            f"namespace {namespace!r} keeps its durable data in {own}, not in {named}: leave "
            f"SHMQ_DATA_DIR and data_dir out, or name {own}; `shmq -n {namespace} persist "
            f"--data-dir {named}` moves the data there"
        )
        self.namespace = namespace
        #: The path of the namespace's directory, and that of the one that was named.
        self.own, self.named = os.fspath(own), os.fspath(named)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.namespace, self.own, self.named)


class ShuttingDown(ShmqError):
    """The server is ending and takes no more requests."""


class ServerError(ShmqError):
    """The server failed at the request by its own fault, which is in its log."""


def closed_handle(kind: str, name: str) -> ShmqError:
    """The error for a use of a handle after its end; ``kind`` is "queue", "stream" and so on."""
    return ShmqError(f"this handle of {kind} {name!r} is closed: attach to it again")


def closed_broker() -> ShmqError:
    """The error for a use of a broker after its end."""
    return ShmqError("this broker is closed: connect() again")
