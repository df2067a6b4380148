"""The command ``shmq``: its subcommands, and the boundary that no traceback passes."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import click

import shmq
from shmq.cli.shared.broker_target import target_flags
from shmq.cli.shared.exit_codes import Code, code_of, describe
from shmq.cli.shared.output import Warnings, note, show
from shmq.native._core import LAYOUT_VERSION
from shmq.protocol.opcodes import PROTOCOL_VERSION

__all__ = ["Commands", "cli", "completion", "main"]

_EPILOG = """Exit codes: 0 done, 1 refused, 2 wrong usage, 3 no message there, 4 no such
queue, 5 queue full, 6 exists with other options, 7 message too large, 8 no shared memory
left, 9 segment unusable, 10 something was found wrong, 11 server not reached, 12 not
allowed, 130 interrupted."""
_VERSION = (
    f"%(prog)s %(version)s (layout version {LAYOUT_VERSION}, protocol version {PROTOCOL_VERSION})"
)


class _Group(click.Group):
    """A group that turns every failure into one line on stderr and an exit code."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run the command line ``args`` and exit."""
        extra["standalone_mode"] = False
        try:
            code = super().main(args, **extra)
        except (Exception, KeyboardInterrupt) as error:
            if os.environ.get("SHMQ_TRACEBACK") == "1":
                raise
            line = describe(error)
            if line:
                note(line)
            code = code_of(error)
        sys.exit(code if isinstance(code, int) else Code.OK)

    def list_commands(self, _: click.Context) -> list[str]:
        """The subcommands in the order of a queue's life."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand.

        A reader of stdout that has seen enough is no failure, and Ctrl-C needs no words.
        """
        try:
            outcome = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
            return outcome
        except BrokenPipeError:
            _silence_stdout()
            ctx.exit(Code.OK)
        except KeyboardInterrupt:
            ctx.exit(Code.INTERRUPTED)


#: The module of each, and its name in there, in the order of a queue's life.
_PLACES: Final = {
    "create": ("queue", "create"),
    "produce": ("producer", "produce"),
    "consume": ("consumer", "consume"),
    "request": ("producer", "request"),
    "publish": ("exchange", "publish"),
    "exchange": ("exchange", "exchange"),
    "subscribe": ("record", "subscribe"),
    "worker": ("worker", "worker"),
    "pipeline": ("pipeline", "pipeline"),
    "stream": ("stream", "stream"),
    "peek": ("consumer", "peek"),
    "list": ("stats", "list_queues"),
    "schema": ("schema", "schema"),
    "stats": ("stats", "stats"),
    "who": ("queue", "who"),
    "top": ("top", "top"),
    "purge": ("queue", "purge"),
    "redrive": ("dead_letter", "redrive"),
    "delete": ("queue", "delete"),
    "stress": ("stress", "stress"),
    "doctor": ("host", "doctor"),
    "fsck": ("host", "fsck"),
    "keeper": ("host", "keeper"),
    "serve": ("server", "serve"),
    "persist": ("writer", "persist"),
    "snapshot": ("writer", "snapshot"),
    "backup": ("backup", "backup"),
    "restore": ("backup", "restore"),
    "dmsq": ("dmsq", "dmsq"),
    "token": ("server", "token"),
    "ping": ("server", "ping"),
    "context": ("context", "context"),
    "completion": ("main", "completion"),
}


class Commands(Mapping[str, click.Command]):
    """The subcommands by name, each loaded when it is first asked for.

    Most of the time that ``shmq`` takes to start is that of its imports.
    """

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module, attribute = _PLACES[name]
            found = getattr(importlib.import_module(f"shmq.cli.{module}"), attribute)
            self._loaded[name] = found
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)

    def __contains__(self, name: object) -> bool:
        return name in _PLACES


_SHELLS = ("bash", "zsh", "fish")


@click.group(
    cls=_Group,
    commands=Commands(),
    invoke_without_command=True,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@target_flags
@click.version_option(shmq.__version__, prog_name="shmq", message=_VERSION)
@click.pass_context
def cli(context: click.Context, /, **_: Any) -> None:
    """Make, feed, watch and empty queues: this host's, in shared memory, or a server's."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(Code.USAGE)


def main() -> NoReturn:
    """The entry point of the command ``shmq``."""
    _occupy_standard_descriptors()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    logging.getLogger("shmq").addHandler(Warnings())
    cli.main(prog_name="shmq")


def _occupy_standard_descriptors() -> None:
    """Put /dev/null where a closed 0, 1 or 2 is.

    Otherwise a segment opened later would get that number, and what something prints
    would land in it.
    """
    opened = os.open(os.devnull, os.O_RDWR)
    while opened <= 2:
        opened = os.open(os.devnull, os.O_RDWR)
    os.close(opened)
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _silence_stdout() -> None:
    """Let the flush at exit go nowhere instead of failing."""
    with contextlib.suppress(OSError, ValueError):
        void = os.open(os.devnull, os.O_WRONLY)
        os.dup2(void, sys.stdout.fileno())
        os.close(void)


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL: bash, zsh or fish.

    It completes commands, flags, and the names of the queues there are. For bash put
    eval "$(shmq completion bash)" into ~/.bashrc.
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - here alone

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(context.find_root().command, {}, "shmq", "_SHMQ_COMPLETE")
    # Not made.source(), which runs bash to learn its version: the script may be made for
    # another machine.
    show(made.source_template % made.source_vars())
