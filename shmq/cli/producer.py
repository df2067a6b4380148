"""``shmq produce`` and ``shmq request``: messages put in a queue."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import click

import shmq
from shmq.cli.shared import params, render
from shmq.cli.shared.flags import connected, json_flag, quiet_flag
from shmq.cli.shared.messages import (
    BatchPut,
    InputLines,
    checked_properties,
    decode,
    headers_of,
    message_flags,
    open_lines,
    property_flag,
)
from shmq.cli.shared.names import queue_name
from shmq.cli.shared.output import counted, note, show, show_json
from shmq.cli.shared.progress import progress
from shmq.host.supervision.signals import Stop


@click.command(epilog="Example: seq 1 1000 | shmq produce orders --priority low")
@queue_name()
@message_flags
@json_flag
@quiet_flag
@click.pass_context
@connected
def produce(
    broker: shmq.Broker,
    context: click.Context,
    /,
    name: str,
    messages: tuple[str, ...],
    path: str | None,
    block: bool | None,
    timeout: float | None,
    as_json: bool,
    quiet: bool,
    **properties: Any,
) -> None:
    """Put messages in a queue.

    Each -m TEXT is a message. Without -m, each line of FILE or of standard input is a message.
    The last line of output says how many messages were put, also after an error.
    """
    given = checked_properties(messages, path, properties)
    if block is False and timeout is not None:
        raise click.UsageError("--no-block and --timeout exclude each other: drop one")
    with broker.put_target(name) as queue, Stop() as stop:
        lines = None if messages else open_lines(path, queue.options.max_message_bytes)
        putting = BatchPut(queue, stop, given, block, timeout)
        with _stopping(context, stop), _reporting(putting, as_json):
            if lines is not None:
                _put_lines(putting, lines, stop, quiet=quiet)
            elif len(messages) == 1:
                putting.put_one(os.fsencode(messages[0]))
            else:
                putting.put_all([os.fsencode(text) for text in messages], "message {}".format)


def _put_lines(putting: BatchPut, lines: InputLines, stop: Stop, *, quiet: bool) -> None:
    if lines.typed:
        note("each line you type is a message; Ctrl-D ends the input")
    batches = iter(lines)
    # A pipe may be open for days: without a terminal, only a file's end is worth lines.
    whole = lines.size is not None
    with progress("produce", "bytes", quiet=quiet or lines.typed, lines=whole) as on_progress:
        while True:
            with stop.interruptible():
                batch = next(batches, None)
            if batch is None:
                return
            putting.put_all(batch, lines.place)
            on_progress(lines.read, lines.size, text=f"{counted(putting.count, 'message')} put")


@contextlib.contextmanager
def _stopping(context: click.Context, stop: Stop) -> Iterator[None]:
    """End with the signal's own exit code if one came."""
    try:
        yield
    except KeyboardInterrupt:
        context.exit(128 + stop.signal)


@contextlib.contextmanager
def _reporting(putting: BatchPut, as_json: bool) -> Iterator[None]:
    """Print what was put, also after an error."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError, click.ClickException):
            _report(putting, as_json)
        raise
    _report(putting, as_json)


def _report(putting: BatchPut, as_json: bool) -> None:
    one = putting.single
    if as_json:
        known = {"sequence": one.sequence, "duplicate": one.duplicate} if one else {}
        show_json({"queue": putting.queue, "put": putting.count, **known})
    elif one is not None and one.duplicate:
        show(f"nothing put: a duplicate of message {one.sequence} of queue {putting.queue!r}")
    elif one is not None:
        show(f"message {one.sequence} put on queue {putting.queue!r}")
    else:
        show(f"{counted(putting.count, 'message')} put on queue {putting.queue!r}")


@click.command(epilog="Example: shmq request sums -m '[1, 2]' --codec json")
@queue_name()
@click.option("-m", "--message", "text", metavar="TEXT", required=True, help="The request.")
@property_flag("headers")
@property_flag("codec")
@click.option(
    "--timeout", type=params.seconds, default="10s", metavar="TIME", show_default=True,
    help="Wait for the reply at most TIME.",
)  # fmt: skip
@json_flag
@connected
def request(
    broker: shmq.Broker,
    /,
    name: str,
    text: str,
    headers: tuple[tuple[str, str], ...],
    codec: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Put a request in a queue, wait for its reply, and print the reply.

    A Python process answers with serve(). If its handler fails, the error is printed and the
    exit code is 1. If no reply comes in time, the exit code is 11.
    """
    try:
        body = decode(os.fsencode(text), codec)
    except ValueError as error:
        raise click.ClickException(f"the request: {error}") from None
    with Stop() as stop, stop.interruptible():
        reply = broker.request(name, body, timeout, codec=codec, headers=headers_of(headers))
    if as_json:
        show_json(render.as_dict(reply))
    else:
        show(render.as_text(reply))
