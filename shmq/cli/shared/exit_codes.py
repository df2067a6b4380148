"""What a failure means to the shell: an exit code and one line of text."""

from __future__ import annotations

import enum
import re

import click
from click.core import ParameterSource

import shmq
from shmq.cli.shared.output import one_line


class Code(enum.IntEnum):
    """The exit codes of every command. ``docs/reference/cli.md`` promises them."""

    OK = 0
    #: Refused, or failed in a way that has no code of its own.
    REFUSED = 1
    #: The command line is wrong, or an option's value, or a name.
    USAGE = 2
    #: There was no message to show or to consume, or no record at that offset.
    NOTHING = 3
    #: The queue, stream, group, exchange, table or context does not exist, or was just deleted.
    NO_QUEUE = 4
    #: The queue, or the partition of a stream, is full.
    FULL = 5
    #: A queue, stream or exchange of that name exists with other options, or a key of a table.
    EXISTS = 6
    #: The message can never fit into the queue, or the record into the stream.
    TOO_LARGE = 7
    #: Shared memory is exhausted.
    NO_SPACE = 8
    #: The segment, or a file, is damaged, foreign, or of another version.
    SEGMENT = 9
    #: A check found a problem, and did not fix it.
    WRONG = 10
    #: The server cannot be reached, the connection was lost, it is shutting down, or
    #: no reply to a request came in time.
    UNREACHED = 11
    #: The token is missing or wrong, or lacks the right.
    DENIED = 12
    #: Ended by Ctrl-C.
    INTERRUPTED = 130


_CODES: tuple[tuple[type[BaseException], Code], ...] = (
    (shmq.NotFound, Code.NO_QUEUE),
    (shmq.QueueDeleted, Code.NO_QUEUE),
    (shmq.StreamDeleted, Code.NO_QUEUE),
    (shmq.TableDeleted, Code.NO_QUEUE),
    (shmq.Full, Code.FULL),
    (shmq.Empty, Code.NOTHING),
    (shmq.NoReply, Code.UNREACHED),
    (shmq.AlreadyExists, Code.EXISTS),
    (shmq.OffsetOutOfRange, Code.NOTHING),
    (shmq.MessageTooLarge, Code.TOO_LARGE),
    (shmq.SchemaError, Code.WRONG),
    (shmq.NoSpace, Code.NO_SPACE),
    (shmq.SegmentError, Code.SEGMENT),
    (shmq.FileError, Code.SEGMENT),
    (shmq.ConnectionLost, Code.UNREACHED),
    (shmq.ShuttingDown, Code.UNREACHED),
    (shmq.Unauthorized, Code.DENIED),
    (shmq.Forbidden, Code.DENIED),
    (shmq.InvalidName, Code.USAGE),
    (shmq.InvalidOption, Code.USAGE),
    (shmq.WrongDirectory, Code.USAGE),
    (click.UsageError, Code.USAGE),
    (UnicodeDecodeError, Code.USAGE),
    (click.Abort, Code.INTERRUPTED),
    (KeyboardInterrupt, Code.INTERRUPTED),
)


def code_of(error: BaseException) -> Code:
    """The exit code that ``error`` ends a command with."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Code.REFUSED


def name_flags(text: str, context: click.Context) -> str:
    """An error's text with the flags of the command in place of the parameters: ``--ttl 0``.

    A value that the environment set has the name of its variable. One that no flag set, next to
    ``--config``, is a key of that file, and unchanged.
    """
    while True:
        for param in context.command.params:
            if isinstance(param, click.Option):
                text = _name_flag(text, param, context)
        if context.parent is None:
            return text
        context = context.parent


def _name_flag(text: str, param: click.Option, context: click.Context) -> str:
    source = context.get_parameter_source(param.name or "")
    flag, equals = max(param.opts, key=len), " "
    if source is ParameterSource.ENVIRONMENT and isinstance(param.envvar, str):
        flag, equals = param.envvar, "="
    elif source is not ParameterSource.COMMANDLINE and context.params.get("config") is not None:
        return text
    for name in {param.name or "", max(param.opts, key=len).lstrip("-").replace("-", "_")}:
        start = rf"(?<![\w'\"./-]){name}"
        if param.secondary_opts:
            text = re.sub(rf"{start}=False\b", param.secondary_opts[-1], text)
        text = re.sub(rf"{start}=(?=\S)", f"{flag}{equals}", text)
        text = re.sub(rf"{start}=(?!\S)", flag, text)
        text = re.sub(
            rf"(^|exists with other options: |, ){name}(?= is |, at | must )", rf"\1{flag}", text
        )
        if "_" in name:
            text = re.sub(rf"{start}(?![\w'\".=])", flag, text)
    return text


def describe(error: BaseException) -> str:
    """What went wrong and what to do about it, in one line; empty for an interruption."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return ""
    if isinstance(error, click.UsageError):
        return one_line(error.format_message()) + _make_hint(error) + _refer_to_help(error)
    if isinstance(error, click.ClickException):
        return one_line(error.format_message())
    if isinstance(error, shmq.ShmqError):
        return one_line(str(error))
    if isinstance(error, OSError | UnicodeDecodeError | MemoryError):
        return one_line(_describe_system_error(error))
    return unencodable(error) or one_line(
        f"internal error: {type(error).__name__}: {error}; "
        f"run it again with SHMQ_TRACEBACK=1 to see where"
    )


def unencodable(error: BaseException) -> str:
    """Why msgpack cannot hold a value, without the advice for programs; "" for other errors."""
    from shmq.model.codec.codecs import ADVICE  # noqa: PLC0415 - of a refusal alone

    text = str(error)
    if isinstance(error, TypeError) and text.endswith(ADVICE):
        return one_line(text.removesuffix(f", or {ADVICE}"))
    return ""


def _make_hint(error: click.UsageError) -> str:
    """What to write instead of a flag or a name in the wrong place."""
    command = error.ctx.command if error.ctx is not None else None
    if isinstance(error, click.NoSuchOption) and error.option_name in {"-n", "--namespace"}:
        return f": put -n before the command: shmq -n NAME {command.name if command else ''}"
    if isinstance(error, click.NoSuchOption) and command is not None and not error.possibilities:
        flags = [max(param.opts, key=len) for param in command.params if _is_flag(param)]
        if error.option_name == "--type" and "--kind" in flags:
            return ": did you mean --kind?"
        return f": its flags are {', '.join(flags)}" if flags else ": it has no flags"
    names = {param.name for param in command.params} if command is not None else set()
    if "unexpected extra argument" in error.message and {"names", "streams"} <= names:
        return ": name a queue with -q, a stream with --stream"
    if "unexpected extra argument" in error.message and "messages" in names:
        return ": write -m before each message"
    return ""


def _is_flag(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and not param.hidden


def _refer_to_help(error: click.UsageError) -> str:
    return f" (see: {error.ctx.command_path if error.ctx is not None else 'shmq'} --help)"


def _describe_system_error(error: OSError | UnicodeDecodeError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "this needs more memory than the process may have"
    if isinstance(error, UnicodeDecodeError):
        return f"what was typed or piped in is not {error.encoding.upper()}: {error.reason}"
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename is not None else reason
