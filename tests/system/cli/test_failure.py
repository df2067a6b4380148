"""Every failure is one line and an exit code; never a traceback."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import hypothesis
import pytest
from click.testing import CliRunner, Result
from hypothesis import strategies

import shmq
from shmq.cli.main import cli
from shmq.cli.shared import exit_codes
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.output import Warnings
from shmq.native import _core
from tests.support.processes import environment
from tests.support.shell import ROOT, Shell
from tests.system.cli.conftest import Quick

Invoke = Callable[..., Result]

COMMANDS = list(cli.commands)


def leaves(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that is not a group, with the words that lead to it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        else:
            yield (*path, name), command


#: Without those that start a cluster, or Spark.
LEAVES = {path: command for path, command in leaves(cli) if path[0] not in {"cluster", "pipeline"}}

#: Flags without which a command goes on for long.
BRIEFLY = {
    "advise": ["--defaults"],
    "keeper": ["--once"],
    "persist": ["--data-dir", "/dev/null"],
    "console": ["--config", "/nowhere"],
    "serve": ["--config", "/nowhere"],
    "stress": ["--messages", "1"],
}

#: Flags with which a command goes on for long, or writes where it pleases.
LASTING = {"-d", "--data-dir", "--watch", "--follow", "--config", "--once"}

#: What is given to commands, beside any text.
CHARACTERS = strategies.characters(exclude_characters="\0")  # it ends an argument
WORDS = ["jobs", "-1", "0", "1", "1.5", "/", "--", "a=b"]

#: What the errors are made of that take more than a message.
MADE_OF = {
    "AlreadySettled": ("x", "ack", 1.0),
    "DamagedFile": ("path", 0, "what"),
    "WrongDirectory": ("ns", "/own", "/named"),
}


def test_every_error_of_shmq_has_its_exit_code() -> None:
    made = {name: MADE_OF.get(name, ("x",)) for name in shmq.errors.__all__}
    codes = {name: exit_codes.code_of(getattr(shmq, name)(*what)) for name, what in made.items()}

    assert codes == {
        "ShmqError": Code.REFUSED,
        "DurabilityWarning": Code.REFUSED,
        "OptionsWarning": Code.REFUSED,
        "LockTimeout": Code.REFUSED,
        "AlreadySettled": Code.REFUSED,
        "LeaseExpired": Code.REFUSED,
        "InvalidName": Code.USAGE,
        "InvalidOption": Code.USAGE,
        "WrongDirectory": Code.USAGE,
        "Empty": Code.NOTHING,
        "NotFound": Code.NO_QUEUE,
        "NoSuchQueue": Code.NO_QUEUE,
        "NoSuchExchange": Code.NO_QUEUE,
        "QueueDeleted": Code.NO_QUEUE,
        "NoSuchStream": Code.NO_QUEUE,
        "NoSuchGroup": Code.NO_QUEUE,
        "NoSuchTable": Code.NO_QUEUE,
        "TableDeleted": Code.NO_QUEUE,
        "StreamDeleted": Code.NO_QUEUE,
        "AlreadyExists": Code.EXISTS,
        "StreamExists": Code.EXISTS,
        "TableExists": Code.EXISTS,
        "OffsetOutOfRange": Code.NOTHING,
        "OutOfSequence": Code.REFUSED,
        "PartitionSealed": Code.REFUSED,
        "MemberFenced": Code.REFUSED,
        "Full": Code.FULL,
        "QueueExists": Code.EXISTS,
        "ExchangeExists": Code.EXISTS,
        "Unroutable": Code.REFUSED,
        "PublishRefused": Code.REFUSED,
        "MessageTooLarge": Code.TOO_LARGE,
        "NoSpace": Code.NO_SPACE,
        "SegmentError": Code.SEGMENT,
        "DamagedSegment": Code.SEGMENT,
        "ForeignSegment": Code.SEGMENT,
        "IncompatibleSegment": Code.SEGMENT,
        "FileError": Code.SEGMENT,
        "DamagedFile": Code.SEGMENT,
        "IncompatibleFile": Code.SEGMENT,
        "NotConfirmed": Code.REFUSED,
        "ConnectionLost": Code.UNREACHED,
        "ShuttingDown": Code.UNREACHED,
        "Unauthorized": Code.DENIED,
        "Forbidden": Code.DENIED,
        "PutsRefused": Code.REFUSED,
        "ServerError": Code.REFUSED,
        "Unsupported": Code.REFUSED,
        "NoReply": Code.UNREACHED,
        "SchemaError": Code.WRONG,
        "RequestFailed": Code.REFUSED,
        "LockExists": Code.EXISTS,
        "LockNotHeld": Code.REFUSED,
        "WorkerDied": Code.REFUSED,
    }


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (shmq.Full("two\nlines\x1b[0m"), "two lines\\x1b[0m"),
        (FileNotFoundError(errno.ENOENT, "No such file", "name"), "name: No such file"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (click.UsageError("odd"), "odd (see: shmq --help)"),
        (MemoryError(), "this needs more memory than the process may have"),
        (KeyboardInterrupt(), ""),
        (click.Abort(), ""),
    ],
)
def test_an_error_is_described_in_one_line(error: BaseException, line: str) -> None:
    assert exit_codes.describe(error) == line


def test_an_unexpected_error_says_how_to_learn_more() -> None:
    line = exit_codes.describe(ZeroDivisionError("by zero"))

    assert line.startswith("internal error: ZeroDivisionError: by zero")
    assert "SHMQ_TRACEBACK=1" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["crate"], "Did you mean"),
        (["--nmespace", "x", "list"], "--namespace"),
        (["create", "--quue", "x"], "--queue"),
        (["list", "--json", "more"], "more"),
        (["stats", "jobs", "more"], "more"),
        (["delete", "jobs", "-q", "jobs"], "two names"),
        (["peek"], "shmq peek NAME, or --queue NAME"),
        (["schema", "set", "jobs"], "NAME FILE"),
        (["backup", "folder", "jobs"], "-q"),
        (["stream", "lsit"], "Did you mean 'list'"),
        (["keeper", "-n", "mine"], "shmq -n NAME keeper"),
        (["peek", "-q"], "-q"),
        (["peek", "-q", "jobs", "-n", "none"], "'none'"),
        (["-x"], "-x"),
    ],
)
def test_wrong_usage_is_one_line_with_a_suggestion(
    quick: Quick, arguments: list[str], said: str
) -> None:
    ran = quick(*arguments, code=Code.USAGE)

    assert said in ran.error
    assert "--help" in ran.error
    assert ran.out == b""


@pytest.mark.parametrize("arguments", [["advise"], ["token", "--hash"]])
def test_an_answer_that_is_no_text_is_refused_in_one_line(arguments: list[str]) -> None:
    ran = CliRunner(env={"SHMQ_TRACEBACK": None}).invoke(cli, arguments, input=b"\xff\n")

    assert ran.exit_code == Code.USAGE
    assert ran.stderr.splitlines()[-1] == (
        "shmq: what was typed or piped in is not UTF-8: invalid start byte"
    )


def options_of(command: click.Command) -> list[str]:
    """The command's flags, but those with which it goes on for long."""
    flags = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    return sorted(flag for flag in flags if flag.startswith("-") and flag not in LASTING)


@pytest.mark.prove
@hypothesis.given(
    path_and_arguments=strategies.sampled_from(sorted(LEAVES)).flatmap(
        lambda path: strategies.tuples(
            strategies.just(path),
            strategies.lists(
                strategies.one_of(
                    strategies.sampled_from([*options_of(LEAVES[path]), *WORDS]),
                    # -d would take the place of the directory that ends persist at once.
                    strategies.text(CHARACTERS, max_size=20).filter(
                        lambda text: not text.startswith("-d")
                    ),
                    strategies.text(CHARACTERS, max_size=5).map(lambda text: f"--{text}"),
                ),
                max_size=6,
            ),
        )
    )
)
@hypothesis.settings(
    max_examples=200, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_no_command_line_ends_in_a_traceback(
    namespace: str, tmp_path: Path, path_and_arguments: tuple[tuple[str, ...], list[str]]
) -> None:
    path, arguments = path_and_arguments
    own = {"SHMQ_NAMESPACE": namespace, "XDG_CONFIG_HOME": str(tmp_path), "SHMQ_TRACEBACK": None}
    runner = CliRunner(env=own)

    with contextlib.chdir(tmp_path):
        result = runner.invoke(cli, [*path, *BRIEFLY.get(path[0], []), *arguments], input=b"\xff\n")
    assert isinstance(result.exception, SystemExit | None), (path, arguments, result.exc_info)
    said = (path, arguments, result.stderr)
    assert result.exit_code in set(Code), said
    assert "internal error" not in result.stderr, said
    assert len(result.stderr.splitlines()) <= 1, said


@pytest.mark.debris
def test_a_damaged_queue_is_refused_and_does_not_hide_the_others(
    quick: Quick, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    broker.create_queue("other").close()
    (segment,) = (
        path
        for path in Path("/dev/shm").iterdir()
        if quick.namespace in path.name and path.name.endswith("jobs")
    )
    queue.close()
    os.truncate(segment, 100)

    for command in ("peek", "stats", "who", "consume"):
        assert quick(command, "-q", "jobs", code=Code.SEGMENT).error
    problems = {one["name"]: one["problem"] for one in quick("list", "--json").json}
    assert problems["jobs"]
    assert problems["other"] is None
    assert "problem" in quick("list").lines[0]
    ran = quick("stats", "--json", code=Code.SEGMENT)
    assert ran.error == problems["jobs"]
    assert "other" in [one["name"] for one in ran.json]
    quick("delete", "-q", "jobs", "--yes")
    assert "jobs" not in [one["name"] for one in quick("list", "--json").json]


def test_what_the_library_warns_of_is_one_line_and_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log, warnings = logging.getLogger("shmq.warned"), Warnings()
    log.addHandler(warnings)

    log.info("all is well")
    for _ in range(2):
        log.warning("queue %s:\nno room", "jobs")

    log.removeHandler(warnings)

    assert capsys.readouterr() == ("", "shmq: queue jobs: no room\n")


def test_a_table_that_cannot_be_written_is_one_line_of_error(
    shell: Shell, queue: shmq.Queue
) -> None:
    ran = shell.pipeline("shmq list > /dev/full")

    assert ran.code == Code.REFUSED
    assert ran.error == "cannot write to standard output: No space left on device"


def test_an_error_can_be_lost_but_its_code_is_not(shell: Shell) -> None:
    assert shell.pipeline("shmq peek -q nowhere 2> /dev/full").code == Code.NO_QUEUE
    assert shell.pipeline("shmq peek -q nowhere 2>&-").code == Code.NO_QUEUE


def test_a_narrow_locale_is_no_reason_to_fail(shell: Shell, queue: shmq.Queue) -> None:
    queue.put("snow ☃")

    ran = shell.pipeline("PYTHONIOENCODING=ascii shmq peek -q jobs; shmq consume -q jobs")

    assert ran.code == 0
    assert ran.err == b""
    assert ran.text.count("snow") == 2


def test_without_a_command_the_help_is_shown(quick: Quick) -> None:
    ran = quick(code=Code.USAGE)

    assert ran.out == b""
    assert all(command in ran.err.decode() for command in COMMANDS)


def test_the_help_names_every_command_and_exit_code(invoke: Invoke) -> None:
    shown = invoke("--help")

    assert shown.exit_code == 0
    assert all(command in shown.stdout for command in COMMANDS)
    assert all(re.search(rf"\b{code.value}\s", shown.stdout) for code in Code)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_without_a_queue(invoke: Invoke, command: str) -> None:
    shown = invoke(command, "-h")

    assert shown.exit_code == 0
    assert shown.stdout.startswith("Usage:")


def test_the_version_is_that_of_the_project(quick: Quick) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert quick("--version").text == (
        f"shmq {project['version']} (layout version {_core.LAYOUT_VERSION}, protocol version 1)\n"
    )
    assert project["scripts"]["shmq"] == "shmq.cli.__main__:main"


#: Ctrl-C as the command is imported: before its first module, and before a later one.
_INTERRUPTED = """
import runpy, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
runpy.run_module(sys.argv[2], run_name="__main__")
"""


@pytest.mark.parametrize("program", ["shmq", "shmq.cli"])
@pytest.mark.parametrize("module", ["click", "shmq.cli.shared.flags"])
def test_an_interrupt_while_it_is_imported_ends_it_without_words(program: str, module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, module, program],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (Code.INTERRUPTED, "", "")


def test_names_of_queues_are_completed_by_the_shell(shell: Shell, queue: shmq.Queue) -> None:
    environment = {
        **shell.environment(),
        "_SHMQ_COMPLETE": "bash_complete",
        "COMP_WORDS": "shmq peek -q jo",
        "COMP_CWORD": "3",
    }

    done = subprocess.run(
        shell.command(), capture_output=True, check=False, env=environment, timeout=60
    )

    assert done.stdout.decode().splitlines() == ["plain,jobs", "plain,jobs.dlq"]


@pytest.mark.parametrize(
    "command",
    ["serve --config", "serve --data-dir", "serve --audit-log", "persist -d", "backup", "restore"],
)
def test_an_empty_path_is_not_the_current_directory(quick: Quick, command: str) -> None:
    ran = quick(*command.split(), "", code=Code.USAGE)
    assert "Invalid value for" in ran.error and "the path is empty" in ran.error
