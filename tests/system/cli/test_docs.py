"""``docs/cli.md`` says all that the command takes and how it ends."""

from __future__ import annotations

import re

import click
import pytest

from shmq.cli.main import cli
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import ROOT, Shell

PAGE = (ROOT / "docs" / "cli.md").read_text()


def section(command: str) -> str:
    """What the page has under the heading of the command."""
    found = re.search(rf"^## `{command}`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no section on {command}"
    return found[1]


def parameters(command: str) -> list[click.Parameter]:
    """What the command takes, its subcommands included."""
    found = cli.commands[command]
    inner = found.commands.values() if isinstance(found, click.Group) else ()
    return [*found.params, *(parameter for each in inner for parameter in each.params)]


@pytest.mark.parametrize("command", list(cli.commands))
def test_every_flag_of_every_command_is_described(command: str) -> None:
    described = section(command)
    for parameter in parameters(command):
        if isinstance(parameter, click.Argument):
            assert parameter.make_metavar(click.Context(cli)).strip("[].") in described.upper()
            continue
        for flag in (*parameter.opts, *parameter.secondary_opts):
            assert f"`{flag}" in described, flag


@pytest.mark.parametrize("command", list(cli.commands))
def test_no_flag_is_described_that_is_not_there(command: str) -> None:
    known = {
        flag
        for parameter in (*parameters(command), *cli.params)
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    cells = re.findall(r"^\| (`-.*?) \|", section(command), re.MULTILINE)
    assert set(re.findall(r"`(--?[a-z][a-z-]*)", " ".join(cells))) <= known


def test_every_flag_of_the_command_itself_is_described() -> None:
    common = PAGE[: PAGE.index("### Exit codes")]
    for parameter in cli.params:
        for flag in parameter.opts:
            assert f"`{flag}" in common, flag


@pytest.mark.parametrize(
    ("group", "inner"),
    [
        (name, inner)
        for name, found in cli.commands.items()
        if isinstance(found, click.Group)
        for inner in found.commands
    ],
)
def test_every_subcommand_is_described(group: str, inner: str) -> None:
    assert f"shmq {group} {inner}" in section(group)


def test_every_exit_code_is_described() -> None:
    described = dict(re.findall(r"^\| (\d+) \| (.+?) \|$", PAGE, re.MULTILINE))

    assert set(described) == {str(code.value) for code in Code} | {"143"}


@pytest.mark.prove
@pytest.mark.parametrize("name", ["look-after-queues.md", "stress-a-host.md"])
def test_the_sessions_of_a_how_to_go_as_they_stand(shell: Shell, name: str) -> None:
    page = (ROOT / "docs" / "how-to" / name).read_text()
    shown = "".join(re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    commands = [line[2:] for line in shown.splitlines() if line.startswith("$ ")]
    output = [line for line in shown.splitlines() if not line.startswith("$ ")]

    assert commands
    ran = shell.pipeline("set -e -o pipefail\n" + "\n".join(commands))

    assert (ran.code, ran.err) == (0, b"")
    told = ran.text.replace(shell.namespace, "default-1000")
    assert [line.rstrip() for line in told.splitlines()] == output
