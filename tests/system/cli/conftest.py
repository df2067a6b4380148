"""A shell, a broker and a queue in the test's own namespace."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner, Result

import shmq
from shmq.cli.main import cli
from shmq.cli.shared.output import Warnings
from tests.support.shell import Ran, Shell


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the test's contexts are, and none of the user who runs the tests."""
    home = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    return home


class Quick(Shell):
    """Runs the command in the process of the test, with files as standard streams.

    For what needs no process, terminal or pipe of its own: a process takes half a second.
    """

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"", code: int | None = 0) -> Ran:
        """Run the command to its end and check its exit code, unless that is None."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write(stdin)
            files[0].seek(0)
            with _streams([file.fileno() for file in files]):
                ended = self._run([os.fsdecode(argument) for argument in arguments])
            for file in files:
                file.seek(0)
            ran = Ran(ended, files[1].read(), files[2].read())
        assert code is None or ran.code == code, ran
        return ran

    def _run(self, arguments: list[str]) -> int:
        warnings = Warnings()
        logging.getLogger("shmq").addHandler(warnings)
        try:
            with mock.patch.dict(os.environ, self.environment(), clear=True):
                cli.main(arguments, prog_name="shmq")
        except SystemExit as ended:
            return int(ended.code or 0)
        finally:
            logging.getLogger("shmq").removeHandler(warnings)


@contextlib.contextmanager
def _streams(descriptors: list[int]) -> Iterator[None]:
    """Let the descriptors 0, 1 and 2, and the streams of sys on them, be those."""
    before = sys.stdin, sys.stdout, sys.stderr
    for stream in before[1:]:
        stream.flush()
    saved = [os.dup(number) for number in range(3)]
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = (
            open(number, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
            for number in (1, 2)
        )
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdin, sys.stdout, sys.stderr = before
        for number, kept in enumerate(saved):
            os.dup2(kept, number)
            os.close(kept)


@pytest.fixture
def quick(namespace: str) -> Quick:
    """Runs the command within the test, in the test's namespace, as ``shell`` does."""
    return Quick(namespace)


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
