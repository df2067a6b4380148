"""A writer with another directory than the one before it, and the loss of memory after that."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

import shmq
from shmq.namespace.namespace import Namespace
from shmq.storage.writer_control import ask_for_snapshots
from tests.support.memory_loss import lose_memory
from tests.support.namespaces import SHM, own_namespace
from tests.support.processes import PATIENCE, ROOT, environment, eventually


@pytest.fixture
def namespace() -> Iterator[str]:
    with own_namespace(debris=True) as name:
        yield name


@contextlib.contextmanager
def writer(namespace: str, directory: Path) -> Iterator[None]:
    """A writer for the block, which is killed at its end."""
    command = [sys.executable, "-m", "shmq.cli", "-n", namespace, "persist"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(directory)],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "keeping the durable queues" in line:
                break
        else:
            pytest.fail("the writer has ended")
        yield
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def written(directory: Path) -> None:
    """Wait until all of the queue is in the writer's files there."""
    assert [error for _, error in ask_for_snapshots(directory, ["q"])] == [None]


@pytest.mark.parametrize("durability", ["journal", "snapshot"])
def test_the_files_that_were_left_behind_do_not_come_back(
    durability: Literal["journal", "snapshot"],
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHMQ_AUTOSTART", "0")
    monkeypatch.setenv("SHMQ_DATA_DIR", str(tmp_path / "unused"))
    first, second = tmp_path / "first", tmp_path / "second"
    with shmq.connect(namespace) as broker:
        with writer(namespace, first):
            queue = broker.create_queue("q", durability=durability, dead_letter=None)
            queue.put(b"early")
            written(first)
        with writer(namespace, second):
            confirm: Literal["disk", "memory"] = "disk" if durability == "journal" else "memory"
            queue.put(b"late", confirm=confirm, timeout=PATIENCE)
            written(second)
            names = os.listdir(first)
            assert [name for name in names if name.endswith(".dmsq")] == []
            assert [name for name in names if name.startswith("q") and ".dmsq." in name]
        queue.close()
    lose_memory(namespace)
    (SHM / f"shmq@{namespace}").unlink()
    eventually(lambda: Namespace.of(namespace).writer_pid is None, "no writer lives")
    with writer(namespace, first), shmq.connect(namespace) as broker:
        assert broker.queue_names() == []
    with writer(namespace, second), shmq.connect(namespace) as broker:
        assert [message.body for message in broker.queue("q").get_many(3)] == [b"early", b"late"]
