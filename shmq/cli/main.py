"""The command ``shmq``: its subcommands, and the boundary that no traceback passes."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

import shmq
from shmq.cli.lazy_commands import Commands
from shmq.cli.shared.broker_target import target_flags
from shmq.cli.shared.exit_codes import Code, code_of, describe
from shmq.cli.shared.output import Warnings, note
from shmq.native._core import LAYOUT_VERSION
from shmq.protocol.opcodes import PROTOCOL_VERSION

__all__ = ["cli", "main"]

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
