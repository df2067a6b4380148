"""The command ``shmq``: its commands by heading, and the boundary that no traceback passes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import click

import shmq
from shmq import plugins
from shmq.cli.shared.exit_codes import Code, code_of, describe, name_flags
from shmq.cli.shared.flags import INNERMOST, Group
from shmq.cli.shared.output import Warnings, note, note_durability_warnings, show
from shmq.cli.shared.target import target_flags
from shmq.native.descriptors import fill_standard, open_file
from shmq.plugins import Command

_EPILOG = """Exit codes: 0 ok, 1 failed, 2 usage, 3 empty, 4 not found, 5 full, 6 exists,
7 too big, 8 no space, 9 damaged, 10 wrong, 11 offline, 12 denied, 130 ^C"""

#: The commands under their headings, the everyday ones first: of each the module, with the name
#: in there if that is another, and what it does in :data:`_SUMMARY` characters at most.
_COMMANDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Messages": {
        "produce": ("producer", "Put messages in a queue"),
        "consume": ("consumer", "Take messages and ack them"),
        "peek": ("consumer", "Show messages, take none"),
        "redrive": ("queue", "Send dead letters back"),
        "move": ("queue", "Move messages elsewhere"),
        "request": ("producer", "Put a request, get a reply"),
        "worker": ("worker", "Run a handler in Python"),
        "publish": ("exchange", "Publish to an exchange"),
        "purge": ("queue", "Remove waiting messages"),
    },
    "Queues": {
        "create": ("queue", "Make a queue"),
        "alter": ("queue", "Change a queue's options"),
        "list": ("stats:list_all", "List queues and streams"),
        "stats": ("stats", "Show depths, rates, memory"),
        "top": ("top", "Watch all queues, live"),
        "who": ("queue", "Show attached processes"),
        "schema": ("schema", "Set and check schemas"),
        "release": ("queue", "Return a query's leases"),
        "delete": ("queue", "Delete a queue or stream"),
        "exchange": ("exchange", "Make and bind exchanges"),
        "table": ("table", "Keep values by key"),
        "locks": ("lock", "Show holders and waiters"),
        "schedule": ("schedule", "Show jobs by time"),
    },
    "Streams": {
        "stream": ("stream", "Append to and read streams"),
        "subscribe": ("record", "Follow keys of a stream"),
    },
    "Durable": {
        "persist": ("writer", "Run the persistence writer"),
        "snapshot": ("writer", "Write snapshots now"),
        "backup": ("backup", "Copy queues and streams"),
        "restore": ("backup", "Restore from a backup"),
        "dmsq": ("dmsq", "Look into .dmsq files"),
        "pipeline": ("pipeline", "Archive or replay on Spark"),
    },
    "Server": {
        "serve": ("serve", "Serve queues over TCP"),
        "ping": ("server", "Time a server's answers"),
        "token": ("server", "Make a client's token"),
        "context": ("context", "Save servers and tokens"),
    },
    "Host": {
        "doctor": ("host", "Find and remove leftovers"),
        "fsck": ("host", "Check every invariant"),
        "keeper": ("host", "Expire leases and delays"),
        "completion": ("main", "Complete names in a shell"),
    },
}

#: The columns of the longest summary, and of the longest name with the space behind it.
_SUMMARY: Final = 26
_NAME: Final = 11


class Commands(Mapping[str, click.Command]):
    """The commands by name, those of plugins too; each is imported when it is first asked for.

    Imports are most of the time that ``shmq`` takes to start.
    """

    def __init__(self) -> None:
        self._own = {
            name: Command(heading, summary, _place_of(name, module))
            for heading, group in _COMMANDS.items()
            for name, (module, summary) in group.items()
        }
        self._loaded: dict[str, click.Command] = {}

    @functools.cached_property
    def added(self) -> dict[str, Command]:
        """The commands of plugins, by name."""
        found = plugins.load_all("shmq.commands")
        return {name: command for name, command in found.items() if name not in self._own}

    def by_heading(self) -> dict[str, dict[str, str]]:
        """The summaries of all commands, by heading and name."""
        found: dict[str, dict[str, str]] = {}
        for name, command in {**self._own, **self.added}.items():
            found.setdefault(command.heading, {})[name] = command.summary
        return found

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            command = self._own[name] if name in self._own else self.added[name]
            module, _, attribute = command.place.partition(":")
            self._loaded[name] = getattr(importlib.import_module(module), attribute)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        for group in self.by_heading().values():
            yield from group

    def __len__(self) -> int:
        return len(self._own) + len(self.added)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self.added


def _place_of(name: str, module: str) -> str:
    """``MODULE:ATTRIBUTE`` of a command in the table."""
    module, _, attribute = module.partition(":")
    return f"shmq.cli.{module}:{attribute or name}"


class _Program(Group):
    """The command itself: every failure becomes one line on stderr and an exit code."""

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

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings, then the options: one screen in all."""
        columns = 2 if formatter.width >= 2 * (_NAME + _SUMMARY) + 4 else 1
        formatter.write_paragraph()
        for heading, group in _commands.by_heading().items():
            formatter.write(f"{heading}:\n")
            cells = [f"{name:<{_NAME}}{text:<{_SUMMARY}}" for name, text in group.items()]
            for at in range(0, len(cells), columns):
                row = "  ".join(cells[at : at + columns])
                formatter.write(f"  {row}".rstrip() + "\n")
        with formatter.section("Options"):
            formatter.write_dl(
                [*self._group_options(ctx), ("-h, --help, --version", "Print and exit.")]
            )

    def _group_options(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        """The options by line; those of --cafile, and of the last one, are several options."""
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not param.is_eager and param.name not in {"cert", "key"}:
                yield record

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """See click; --help and --version print here."""
        with _until_read():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C needs no words."""
        try:
            with _until_read():
                outcome = super().invoke(ctx)
                if sys.stdout is not None:
                    sys.stdout.flush()
                return outcome
        except shmq.ShmqError as error:
            error.args = (name_flags(str(error), ctx.meta[INNERMOST]), *error.args[1:])
            raise
        except KeyboardInterrupt:
            ctx.exit(Code.INTERRUPTED)


_commands = Commands()


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the versions of the package, of segments and of the protocol, and end."""
    if not asked or context.resilient_parsing:
        return
    from shmq.native._core import LAYOUT_VERSION  # noqa: PLC0415 - here alone
    from shmq.protocol.opcodes import PROTOCOL_VERSION  # noqa: PLC0415

    show(
        f"shmq {shmq.__version__} (layout version {LAYOUT_VERSION}, protocol version "
        f"{PROTOCOL_VERSION})"
    )
    context.exit()


@click.group(
    cls=_Program,
    commands=_commands,
    invoke_without_command=True,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@target_flags
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the versions and exit.",
)
@click.pass_context
def cli(context: click.Context, /, **_: Any) -> None:
    """Message queues and streams in shared memory, of this host or of a server."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(Code.USAGE)


@click.command(epilog='Example: eval "$(shmq completion bash)"')
@click.argument("shell", metavar="SHELL", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL: bash, zsh or fish.

    The script completes commands, options, and the names of queues, streams, exchanges and
    contexts. For bash, put the line of the example into ~/.bashrc.
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - here alone

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(context.find_root().command, {}, "shmq", "_SHMQ_COMPLETE")
    # Not made.source(), which runs bash to learn its version: the script may be made for
    # another machine.
    show(made.source_template % made.source_vars())


def main() -> NoReturn:
    """Run the command ``shmq``: see `shmq.cli.__main__`."""
    fill_standard()
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    logging.getLogger("shmq").addHandler(Warnings())
    note_durability_warnings()
    # The interpreter's last collection would look at all modules: a tenth of a short command.
    atexit.register(gc.freeze)
    cli.main(prog_name="shmq")


@contextlib.contextmanager
def _until_read() -> Iterator[None]:
    """End with success if the reader of stdout has seen enough."""
    try:
        yield
    except BrokenPipeError:
        _silence_stdout()
        raise click.exceptions.Exit(Code.OK) from None


def _silence_stdout() -> None:
    """Let the flush at exit go nowhere instead of failing."""
    with contextlib.suppress(OSError, ValueError):
        void = open_file(os.devnull, os.O_WRONLY)
        os.dup2(void, sys.stdout.fileno())
        os.close(void)
