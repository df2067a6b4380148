"""Messages given as flags or as lines: their flags, their bodies, and batches that are put."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

import click

import shmq
from shmq.api.options import Confirm
from shmq.api.properties import PROPERTIES
from shmq.cli.shared import params
from shmq.cli.shared.exit_codes import unencodable
from shmq.host.supervision.signals import Stop
from shmq.model.codec.strict_json import decode_json

#: What ``--codec`` takes. All but text and bytes are read as JSON.
CODECS = ("text", "bytes", "json", "msgpack", "command", "event")

F = TypeVar("F", bound=Callable[..., Any])

#: How long one wait for space lasts before signals are checked for, in seconds.
SLICE = 0.25


#: The parameter types of properties without a unit, by their kind; an int is a priority.
_TYPES = {"int": params.priority, "str": params.text}


def property_flag(name: str) -> Callable[[F], F]:
    """The flag of a property of the messages."""
    row = PROPERTIES[name]
    if row.name == "codec":
        codecs = click.Choice(CODECS)
        return click.option(
            row.option, type=codecs, default="text", show_default=True, help=row.flag
        )
    if row.name == "confirm":
        return click.option(row.option, type=click.Choice(get_args(Confirm)), help=row.flag)
    many = row.name == "headers"
    kind = params.header if many else params.seconds if row.unit else _TYPES[row.kind]
    return click.option(
        row.option, row.name, type=kind, multiple=many, metavar=row.metavar, help=row.flag
    )


_FLAGS = (
    click.option(
        "-m", "--message", "messages", multiple=True, metavar="TEXT",
        help="A message; may be repeated.",
    ),
    click.option(
        "--file", "path", metavar="FILE",
        help="Each line of FILE is a message; - is standard input.",
    ),
    *(property_flag(name) for name, row in PROPERTIES.items() if row.flag),
    click.option(
        "--block/--no-block", default=None,
        help="Wait while a queue is full, or fail.  [default: as its overflow option]",
    ),
    click.option(
        "--timeout", type=params.seconds, metavar="TIME",
        help="Wait for space at most TIME, counted from the last message put.",
    ),
)  # fmt: skip


def message_flags(command: F) -> F:
    """The flags that give messages and their properties."""
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


def checked_properties(
    messages: tuple[str, ...], path: str | None, properties: Mapping[str, Any]
) -> dict[str, Any]:
    """The given properties of the messages, as arguments of a put.

    Raises :class:`click.UsageError` for flags of :func:`message_flags` that contradict.
    """
    if messages and path is not None:
        raise click.UsageError("-m and --file exclude each other: drop one")
    given = {name: value for name, value in properties.items() if value is not None}
    for name in given:
        row = PROPERTIES[name]
        if row.is_of_one and len(messages) != 1:
            raise click.UsageError(f"{row.option} names one message: give exactly one -m TEXT")
    given["headers"] = headers_of(given["headers"])
    return given


def headers_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str] | None:
    """The headers of repeated flags. Raises :class:`click.UsageError` for one given twice."""
    headers: dict[str, str] = {}
    for key, value in pairs:
        if key in headers:
            raise click.UsageError(f"--header {key!r} is given twice: drop one")
        headers[key] = value
    return headers or None


class BatchPut:
    """Puts messages that share their properties.

    ``block`` and ``timeout`` are those of ``Queue.put``; the timeout counts from the
    last message that went in. A stop ends it by KeyboardInterrupt, with
    :attr:`count` exact; of messages that are to be on disk it has those that are.
    """

    def __init__(
        self,
        queue: shmq.Queue,
        stop: Stop,
        properties: dict[str, Any],
        block: bool | None,
        timeout: float | None,
    ) -> None:
        if properties.get("dedupe_id") is not None and not queue.options.dedupe_window:
            raise shmq.InvalidOption(
                f"--dedupe-id: queue {queue.name!r} has no dedupe window, so that it would take a "
                f"second message of this id: create it with --dedupe-window 1h, or put without "
                f"--dedupe-id"
            )
        self._queue = queue
        self._stop = stop
        self._properties = properties
        self._confirms = (properties.get("confirm") or queue.options.confirm) == "disk"
        self._longest = queue.options.max_message_bytes
        if block is None:
            block = timeout is not None or queue.options.overflow == "block"
        self._patience = (float("inf") if timeout is None else timeout) if block else 0.0
        #: How many messages were put; a duplicate was not.
        self.count = 0
        #: What the put of a single message returned.
        self.single: shmq.Put | None = None
        self._seen = 0

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._queue.name

    def put_one(self, text: bytes) -> None:
        """Put the one message of ``text``."""
        body = self._decode_body(text, "the message")
        waits = self._patience > 0
        limit = self._patience if 0 < self._patience < float("inf") else None
        with _refusing(), self._stop.interruptible():
            try:
                put = self._queue.put(body, waits, limit, **self._properties)
            except shmq.Full as error:
                raise shmq.Full(self._describe_full()) from error
        self.single = put
        self.count += not put.duplicate

    def put_all(self, texts: list[bytes], place: Callable[[int], str]) -> None:
        """Put the messages of ``texts``, which follow those of earlier calls.

        Where one of them stands for nothing, those before it are put and its ``place``
        is named. Raises :class:`~shmq.Full` if not all of them went in.
        """
        bodies: list[Any] = []
        refusal = None
        for text in texts:
            self._seen += 1
            try:
                bodies.append(self._decode_body(text, place(self._seen)))
            except (click.ClickException, shmq.MessageTooLarge) as error:
                refusal = error
                break
        self._put_many(bodies)
        if refusal is not None:
            raise refusal

    def _put_many(self, bodies: list[Any]) -> None:
        since, rest = time.monotonic(), bodies
        while rest:
            left = self._patience - (time.monotonic() - since)
            with _refusing(), self._allow_interrupts():
                taken = self._queue.put_many(
                    rest, left > 0, self._limit_wait(left), **self._properties
                )
            self.count += taken
            rest = rest[taken:]
            if taken:
                since = time.monotonic()
            elif left <= 0:
                raise shmq.Full(self._describe_full())
            if self._stop.signal:
                raise KeyboardInterrupt

    def _limit_wait(self, left: float) -> float | None:
        """The timeout of one put_many; a wait for the disk is not cut in slices."""
        if left <= 0:
            return None
        if self._confirms:
            return left if left < float("inf") else None
        return min(left, SLICE)

    def _allow_interrupts(self) -> contextlib.AbstractContextManager[object]:
        return self._stop.interruptible() if self._confirms else contextlib.nullcontext()

    def _describe_full(self) -> str:
        return (
            f"queue {self.queue!r} is full: consume from it, wait with --block or a longer "
            f"--timeout, or alter it to a larger --capacity or --arena-bytes"
        )

    def _decode_body(self, text: bytes, place: str) -> Any:
        """The body of ``text``. Raises an error that names its ``place``."""
        if len(text) > self._longest:
            raise shmq.MessageTooLarge(
                f"{place} has {len(text)} bytes, more than the {self._longest} that the queue "
                f"takes: shorten it, or make the queue with a larger --max-message-bytes"
            )
        try:
            return decode(text, self._properties["codec"])
        except ValueError as error:
            raise click.ClickException(f"{place}: {error}") from None


def decode(text: bytes, codec: str) -> Any:
    """The body of ``text`` under ``codec``. Raises ValueError with the reason."""
    if codec == "bytes":
        return text
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"its byte {error.start + 1} ({text[error.start]:#04x}) is not UTF-8: "
            f"use --codec bytes to put it as it is"
        ) from None
    if codec == "text":
        return decoded
    try:
        return decode_json(decoded)
    except ValueError as error:
        raise ValueError(f"it is not JSON, which --codec {codec} takes: {error}") from None


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Turn the error of a codec that cannot hold a value into a refusal."""
    try:
        yield
    except shmq.ShmqError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = unencodable(error) or error
        raise click.ClickException(f"{reason} (no message of this batch was put)") from error


_CHUNK = 1 << 16


class InputLines:
    """The lines of a file, without their newlines.

    Iterating gives lists of lines: those that could be had without waiting, so that
    a slow writer's line is not held back.
    """

    def __init__(self, file: io.RawIOBase, name: str, longest: int) -> None:
        self._file = file
        self._longest = longest
        #: The name of the file for errors.
        self.name = name
        #: The size of the file in bytes, if it has one.
        self.size = _get_size(file)
        #: Whether the lines are typed on a terminal.
        self.typed = file.isatty()
        #: How many bytes have been read.
        self.read = 0

    def __iter__(self) -> Iterator[list[bytes]]:
        """Raises :class:`click.ClickException`, and MessageTooLarge where no line ends.

        Memory is bounded by that: by ``longest`` bytes and a chunk.
        """
        with self._file:
            yield from self._read_batches()

    def _read_batches(self) -> Iterator[list[bytes]]:
        begun: list[bytes] = []
        held, number = 0, 1
        while chunk := self._read():
            first, *rest = chunk.split(b"\n")
            begun.append(first)
            held += len(first)
            if rest:
                yield [b"".join(begun), *rest[:-1]]
                begun, held, number = [rest[-1]], len(rest[-1]), number + len(rest)
            if held > self._longest:
                raise shmq.MessageTooLarge(
                    f"{self.place(number)} has over {self._longest} bytes, more than the queue "
                    f"takes: shorten it, or make the queue with a larger --max-message-bytes"
                )
        if held:
            yield [b"".join(begun)]

    def place(self, number: int) -> str:
        """Where line ``number`` stands, the first one being 1."""
        return f"line {number} of {self.name}"

    def _read(self) -> bytes:
        try:
            chunk: bytes = self._file.read(_CHUNK) or b""
        except OSError as error:
            raise _make_unreadable_error(self.name, error) from error
        self.read += len(chunk)
        return chunk


def open_lines(path: str | None, longest: int) -> InputLines:
    """The lines of the file ``path``; of standard input if it is None or ``-``.

    Raises :class:`click.ClickException` where there is nothing to read.
    """
    if path is None or path == "-":
        if sys.stdin is None:
            raise click.UsageError("standard input is closed: give -m TEXT or --file FILE")
        return InputLines(io.FileIO(sys.stdin.fileno(), closefd=False), "standard input", longest)
    try:
        return InputLines(io.FileIO(path), repr(path), longest)
    except OSError as error:
        raise _make_unreadable_error(repr(path), error) from error


def _make_unreadable_error(name: str, error: OSError) -> click.ClickException:
    return click.ClickException(
        f"cannot read {name}: {error.strerror}; give a file of lines, or - for standard input"
    )


def _get_size(file: io.RawIOBase) -> int | None:
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
