"""Entry points: found by group and name; one that cannot be loaded is omitted with a warning."""

from __future__ import annotations

import importlib.metadata
import sys
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import shmq
from shmq import plugins
from shmq.cli import main
from shmq.client.remote.address import Address


class Added:
    """The entry points of another package, installed beside shmq in a folder of the path."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "another-1.0.dist-info" / "entry_points.txt"
        self._file.parent.mkdir()

    def append(self, one: EntryPoint) -> None:
        """Add an entry point."""
        with self._file.open("a") as file:
            file.write(f"[{one.group}]\n# a comment\n{one.name} = {one.value}\n\n")


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Added:
    """The entry points of another package, beside those of shmq."""
    monkeypatch.syspath_prepend(tmp_path)
    return Added(tmp_path)


@pytest.mark.parametrize("group", ["shmq.commands", "shmq.transports", "console_scripts"])
def test_the_entry_points_are_those_of_importlib(group: str, added: Added, tmp_path: Path) -> None:
    added.append(EntryPoint("one", "package.module:a.b [extra]", group))
    # A second one of the same name, later on the path, counts for nothing.
    again = tmp_path / "later"
    (again / "Another-0.9.dist-info").mkdir(parents=True)
    (again / "Another-0.9.dist-info" / "entry_points.txt").write_text(f"[{group}]\ntwo = x\n")
    sys.path.append(str(again))
    try:
        found = [(each.name, each.value) for each in plugins._load_entry_points(group)]
        expected = importlib.metadata.entry_points(group=group)
    finally:
        sys.path.remove(str(again))
    assert sorted(found) == sorted((each.name, each.value) for each in expected)
    assert ("one", "package.module:a.b [extra]") in found


def test_packages_that_are_in_no_folder_are_found_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped-1.0.dist-info/METADATA", "Name: zipped\nVersion: 1.0\n")
        file.writestr("zipped-1.0.dist-info/entry_points.txt", "[shmq.commands]\nz = zipped:Z\n")
    monkeypatch.syspath_prepend(archive)
    assert "z" in [each.name for each in plugins._load_entry_points("shmq.commands")]


def test_a_transport_is_found_by_the_scheme_of_a_url(
    added: Added, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize("url", ["://h", "foo", ""])
def test_what_is_no_url_is_refused_with_the_forms_of_one(url: str) -> None:
    wanted = "shmq://HOST:PORT, shmqs://HOST:PORT or shmq+unix:///PATH"
    with pytest.raises(shmq.InvalidOption) as error:
        Address.parse(url)
    assert str(error.value) == f"url={url!r} must be {wanted}"


@pytest.mark.parametrize("url", ["shmq://h", "shmqs://h", "shmq+unix:///p"])
def test_a_server_of_shmq_needs_no_entry_point(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "find", None)
    assert plugins.find_transport(url) is None


def test_a_command_of_another_package_is_in_the_help_and_runs(
    added: Added, monkeypatch: pytest.MonkeyPatch
) -> None:
    added.append(EntryPoint("mine", "tests.unit.test_plugins:COMMAND", "shmq.commands"))
    monkeypatch.setattr(main._commands, "__dict__", dict(vars(main._commands)))
    vars(main._commands).pop("added", None)
    help_text = CliRunner().invoke(main.cli, ["--help"]).output
    assert "Mine:" in help_text
    assert "Do it" in help_text
    assert CliRunner().invoke(main.cli, ["mine", "zsh"]).exit_code == 0


def test_no_package_replaces_a_command_of_shmq(added: Added) -> None:
    added.append(EntryPoint("list", "tests.unit.test_plugins:COMMAND", "shmq.commands"))
    assert "list" not in main.Commands().added


def test_what_cannot_be_loaded_is_omitted_with_a_warning(
    added: Added, caplog: pytest.LogCaptureFixture
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
