"""A shell, a broker and a queue in the test's own namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import shmq
from shmq.cli.main import cli
from tests.support.shell import Shell


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the test's contexts are, and none of whoever runs it."""
    home = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    return home


@pytest.fixture
def shell(namespace: str) -> Iterator[Shell]:
    """Runs the command as processes, in the test's namespace."""
    shell = Shell(namespace)
    yield shell
    shell.close()


@pytest.fixture
def invoke(namespace: str) -> Callable[..., Result]:
    """Runs the command within the test, in the test's namespace."""
    runner = CliRunner(env={"SHMQ_NAMESPACE": namespace, "SHMQ_TRACEBACK": None})

    def run(*arguments: str, **extra: object) -> Result:
        return runner.invoke(cli, arguments, **extra)  # type: ignore[arg-type]

    return run


@pytest.fixture
def queue(broker: shmq.Broker) -> shmq.Queue:
    """A queue called ``jobs``."""
    return broker.create_queue("jobs")
