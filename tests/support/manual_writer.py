"""Shared by tests of persistence: durable queues that are written step by step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.client.local.queue import attach
from shmq.namespace.namespace import Namespace
from shmq.persistence.journal import WriteSizes
from shmq.persistence.journal_writer import JournalWriter, Transfers
from shmq.storage.disk import Disk
from tests.support.processes import Start
from tests.support.writer_process import Persister, persisting

SMALL = WriteSizes(segment=16 << 10, ahead=4 << 10, commit=8 << 10, chunk=4 << 10)


class Desk:
    """A namespace and a directory; the test decides when its queues are written."""

    def __init__(self, broker: shmq.Broker, namespace: str, path: Path) -> None:
        self.broker = broker
        self.namespace = Namespace.of(namespace)
        self.disk: Disk = Disk(path)
        self.moves = Transfers(self.namespace)
        self._kept: list[JournalWriter] = []

    def create(self, name: str = "q", **options: Any) -> shmq.Queue:
        """A queue with a journal."""
        options.setdefault("durability", "journal")
        return self.broker.create_queue(name, **options)

    def keep(self, name: str = "q", sizes: WriteSizes = SMALL) -> JournalWriter:
        """Follow the queue with a journal, checking for moves in every step."""
        handle = attach(self.namespace, name)
        kept = JournalWriter(self.disk, handle, sizes, self.moves, look=0.0)
        self._kept.append(kept)
        return kept

    def lose(self, kept: JournalWriter) -> None:
        """Kill the writer: what it had in memory is lost, and nothing is cleaned up."""
        self._kept.remove(kept)
        self.moves.leave(kept)
        kept.journal.abandon()
        kept.handle.close()

    def close(self) -> None:
        """Detach from all queues."""
        for kept in self._kept:
            with contextlib.suppress(OSError, shmq.ShmqError):
                kept.close()


@pytest.fixture
def desk(broker: shmq.Broker, namespace: str, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(broker, namespace, tmp_path)
    yield desk
    desk.close()


def run_out(kept: JournalWriter) -> None:
    """Write until nothing is left to write."""
    while kept.step():
        continue
    assert kept.error is None


@pytest.fixture
def start() -> Iterator[Start]:
    """Start child processes of the test."""
    starter = Start()
    yield starter
    starter.close()


@pytest.fixture
def persister(namespace: str) -> Iterator[Persister]:
    """A persistence writer of the test's namespace."""
    with persisting(namespace) as persister:
        yield persister
