"""A fork while other threads hold locks of shmq: the child uses the handles that it inherited."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmq.client.transaction.transaction_log import hold
from shmq.disk.storage.inventory import LOCK, is_written
from shmq.host.namespace.namespace import Namespace
from tests.support.first_use import LIMIT
from tests.support.namespaces import own_namespace
from tests.support.processes import ROOT, Child, Start, environment
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.writer_process import running_writer


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace in which the program's threads wait at its end."""
    with own_namespace(debris=True) as name:
        yield name


@pytest.mark.parametrize("transport", ["local", "tcp"])
@pytest.mark.parametrize("program", ["main", "end"])
def test_no_process_waits_for_a_lock_that_a_thread_holds_which_has_ended(
    namespace: str, transport: str, program: str
) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(running_writer(namespace))
        tcp = transport == "tcp"
        target = stack.enter_context(TCP_SERVERS.serve(namespace)) if tcp else namespace
        code = f"from tests.support import held_locks; held_locks.{program}({target!r})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=9 * LIMIT,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "ignored" not in done.stderr


@pytest.fixture
def child_of_lock(start: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    """A child that is forked right after the first flock(2) of the test, and then only lives."""
    children: list[Child] = []
    flock = fcntl.flock

    def lock_and_fork(fd: int, how: int) -> None:
        flock(fd, how)
        if not children:
            children.append(start(lambda pipe: pipe.recv()))

    monkeypatch.setattr(fcntl, "flock", lock_and_fork)
    yield children
    children[0].tell()
    children[0].ends()


def test_a_child_forked_during_a_check_for_a_writer_keeps_no_writer_out(
    tmp_path: Path, child_of_lock: list[Child]
) -> None:
    (tmp_path / LOCK).touch(0o600)
    assert not is_written(tmp_path)
    assert child_of_lock
    with (tmp_path / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_child_forked_during_a_commit_does_not_hold_the_transaction(
    namespace: str, child_of_lock: list[Child]
) -> None:
    where: Any = Namespace.of(namespace), os.getpid()
    with hold(*where, make=True) as log:
        assert log is not None
        log.write({})
        log.commit()
    assert child_of_lock
    with hold(*where, make=False) as log:
        assert log is not None
        log.finish()
