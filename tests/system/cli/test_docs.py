"""``docs/reference/cli.md`` says all that the command takes and how it ends."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from shmq.cli.main import cli
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import ROOT, Shell

PAGE = (ROOT / "docs/reference/cli.md").read_text()


def section(command: str) -> str:
    """What the page has under the heading of the command."""
    found = re.search(rf"^### `{command}`\n(.*?)(?=^###? |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/cli.md has no section on {command}"
    return found[1]


def parameters(command: click.Command) -> list[click.Parameter]:
    """What the command takes, its subcommands included."""
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return [*command.params, *(param for each in inner for param in parameters(each))]


@pytest.mark.parametrize("command", list(cli.commands))
def test_every_command_has_a_section(command: str) -> None:
    assert section(command)


def test_the_page_names_no_flag_that_no_command_has() -> None:
    known = {flag for param in parameters(cli) for flag in (*param.opts, *param.secondary_opts)}
    assert set(re.findall(r"`(--[a-z][a-z-]*)", PAGE)) <= known | {"--help"}


def test_the_sections_stand_under_the_headings_of_the_help() -> None:
    listed = re.findall(r"^(?:## (\w+)|### `(\w+)`)$", PAGE, re.MULTILINE)
    shown = CliRunner().invoke(cli, ["--help"]).output.partition("Options:")[0].splitlines()
    headings = [line[:-1] for line in shown if re.fullmatch(r"[A-Z]\w+:", line)]
    assert [heading for heading, _ in listed if heading in headings] == headings
    assert _by_heading([(heading, [name] if name else []) for heading, name in listed]) == (
        _by_heading([(line[:-1] if line[:1].isupper() else "", _named(line)) for line in shown])
    )
    assert sorted(name for _, name in listed if name) == sorted(cli.commands)


def _named(line: str) -> list[str]:
    """The commands of a line of the help, which has two columns."""
    return [cell.split()[0] for cell in (line[2:39], line[41:]) if line[:1] == " " and cell.strip()]


def _by_heading(rows: list[tuple[str, list[str]]]) -> dict[str, str]:
    """The heading of each command."""
    found, under = {}, ""
    for heading, names in rows:
        under = heading or under
        found.update({name: under for name in names if name in cli.commands})
    return found


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
    page = (ROOT / "docs/operate" / name).read_text()
    shown = "".join(re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    commands = [line[2:] for line in shown.splitlines() if line.startswith("$ ")]
    output = [line for line in shown.splitlines() if not line.startswith("$ ")]

    assert commands
    ran = shell.pipeline("set -e -o pipefail\n" + "\n".join(commands))

    assert (ran.code, ran.err) == (0, b"")
    told = ran.text.replace(shell.namespace, "default-1000")
    assert [line.rstrip() for line in told.splitlines()] == output
