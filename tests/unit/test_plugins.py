"""Entry points: found by group and name; one that cannot be loaded is omitted with a warning."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import shmq
from shmq import plugins
from shmq.cli import main


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """The entry points of another package, beside those of shmq."""
    found: list[EntryPoint] = []
    installed = importlib.metadata.entry_points

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [*installed(group=group), *(each for each in found if each.group == group)]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return found


def test_a_transport_is_found_by_the_scheme_of_a_url(
    added: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def connect(*how: Any) -> _Closed:
        calls.append(how)
        return _Closed()

    transport = SimpleNamespace(connect=connect)
    monkeypatch.setattr("tests.unit.test_plugins.TRANSPORT", transport)
    added.append(EntryPoint("mem", "tests.unit.test_plugins:TRANSPORT", "shmq.transports"))
    assert isinstance(shmq.connect("mem://there", token="t"), _Closed)
    assert calls == [("mem://there", "t", None, 5.0, 30.0, True)]


def test_a_scheme_without_a_transport_is_refused_with_those_that_exist() -> None:
    with pytest.raises(shmq.InvalidOption, match=r"shmq://.*no transport for http:// is installed"):
        shmq.connect("http://127.0.0.1")


@pytest.mark.parametrize("url", ["shmq://h", "shmqs://h", "shmq+unix:///p"])
def test_a_server_of_shmq_needs_no_entry_point(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "find", None)
    assert plugins.find_transport(url) is None


def test_a_command_of_another_package_is_in_the_help_and_runs(
    added: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    added.append(EntryPoint("mine", "tests.unit.test_plugins:COMMAND", "shmq.commands"))
    monkeypatch.setattr(main._commands, "__dict__", dict(vars(main._commands)))
    vars(main._commands).pop("added", None)
    help_text = CliRunner().invoke(main.cli, ["--help"]).output
    assert "Mine:" in help_text
    assert "Do it" in help_text
    assert CliRunner().invoke(main.cli, ["mine", "zsh"]).exit_code == 0


def test_no_package_replaces_a_command_of_shmq(added: list[EntryPoint]) -> None:
    added.append(EntryPoint("list", "tests.unit.test_plugins:COMMAND", "shmq.commands"))
    assert "list" not in main.Commands().added


def test_what_cannot_be_loaded_is_omitted_with_a_warning(
    added: list[EntryPoint], caplog: pytest.LogCaptureFixture
) -> None:
    added.append(EntryPoint("gone", "no_such_module:COMMAND", "shmq.commands"))
    found = main.Commands()
    assert "gone" not in found.added
    assert "console" in found.added
    assert "shmq.commands 'gone' of no_such_module:COMMAND cannot be loaded" in caplog.text


class _Closed:
    def close(self) -> None:
        """It has nothing to close."""


TRANSPORT: Any = None
COMMAND = plugins.Command("Mine", "Do it", "shmq.cli.main:completion")
