"""Processes that log, and the listener, are killed: no record is lost."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.extras.logs import Listener, QueueHandler
from tests.support.namespaces import own_namespace
from tests.support.waiting import PATIENCE, eventually

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def namespace() -> Any:
    with own_namespace(inhabited=True) as name:
        yield name


def _log_for_ever(namespace: str, name: str, counts: Path) -> None:
    """Log numbers, and note each in a file of its own after the call has returned."""
    log = logging.getLogger("shop")
    log.addHandler(QueueHandler(url=namespace, capacity=1_000_000))
    noted = os.open(counts / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(1_000_000):
        log.error("%s %d", name, number)
        os.write(noted, b".")


def _listen(namespace: str, path: Path) -> None:
    listener = Listener("logs", logging.FileHandler(path), url=namespace)
    signal.signal(signal.SIGTERM, lambda *_: listener.stop())
    listener.run()


def _start(target: Any, *args: Any) -> BaseProcess:
    process = SPAWN.Process(target=target, args=args)
    process.start()
    return process


def _kill(process: BaseProcess) -> None:
    process.kill()
    process.join(PATIENCE)


def _is_empty(namespace: str) -> bool:
    with shmq.connect(namespace) as broker, broker.queue("logs") as queue:
        stats = queue.stats()
        return not stats.depth + stats.in_flight


@pytest.mark.parametrize("kills", [0, 3])
def test_each_record_is_in_the_file_whoever_is_killed(
    namespace: str, tmp_path: Path, kills: int
) -> None:
    """Exactly once, unless the listener is killed: then the record that it handled is repeated."""
    counts, path = tmp_path / "counts", tmp_path / "log"
    counts.mkdir()
    writers = [_start(_log_for_ever, namespace, f"p{n}", counts) for n in range(4)]

    def has_noted(number: int) -> bool:
        sizes = [file.stat().st_size for file in counts.iterdir()]
        return len(sizes) == len(writers) and min(sizes) >= number

    listener = _start(_listen, namespace, path)
    for number in range(kills):
        eventually(lambda number=number: has_noted(200 * number), "they log")  # type: ignore[misc]
        size = path.stat().st_size if path.exists() else 0
        eventually(lambda size=size: path.exists() and path.stat().st_size > size, "it writes")  # type: ignore[misc]
        _kill(listener)
        listener = _start(_listen, namespace, path)
    eventually(lambda: has_noted(1000), "they log")
    for writer in writers:
        _kill(writer)
    eventually(lambda: _is_empty(namespace), "all records are written")
    listener.terminate()
    listener.join(PATIENCE)
    assert listener.exitcode == 0

    found = Counter(path.read_text().splitlines())
    for file in counts.iterdir():
        noted = file.stat().st_size
        assert not [n for n in range(noted) if not found[f"{file.name} {n}"]]
        # One more may have been put and not noted.
        assert sum(1 for line in found if line.startswith(f"{file.name} ")) in {noted, noted + 1}
    assert sum(found.values()) - len(found) <= kills
