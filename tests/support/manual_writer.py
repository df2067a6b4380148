"""Shared by tests of persistence: durable queues that are written step by step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.client.local.queue import attach
from shmq.disk.persistence.journal_writer import JournalWriter
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.transfers import Transfers
from shmq.disk.storage.disk import Disk
from shmq.host.namespace.namespace import Namespace
from tests.support.processes import Start
from tests.support.writer_process import WriterProcess, running_writer

SMALL = WriteSizes(segment=16 << 10, ahead=4 << 10, commit=8 << 10, chunk=4 << 10)


class ManualWriter:
    """A persistence writer in the test's own thread: it writes where the test says so."""

    def __init__(self, broker: shmq.Broker, namespace: str, path: Path) -> None:
        self.broker = broker
        self.namespace = Namespace.of(namespace)
        self.disk: Disk = Disk(path)
        self.moves = Transfers(self.namespace)
        self._followed: list[JournalWriter] = []

    def create(self, name: str = "q", **options: Any) -> shmq.Queue:
        """A queue with a journal."""
        options.setdefault("durability", "journal")
        return self.broker.create_queue(name, **options)

    def follow(self, name: str = "q", sizes: WriteSizes = SMALL) -> JournalWriter:
        """Follow the queue with a journal, checking for moves in every step."""
        handle = attach(self.namespace, name)
        journal_writer = JournalWriter(self.disk, handle, sizes, self.moves, look=0.0)
        self._followed.append(journal_writer)
        return journal_writer

    def kill(self, journal_writer: JournalWriter) -> None:
        """Kill the writer: what it had in memory is lost, and nothing is cleaned up."""
        self._followed.remove(journal_writer)
        self.moves.leave(journal_writer)
        journal_writer.journal.abandon()
        journal_writer.handle.close()

    def close(self) -> None:
        """Detach from all queues."""
        for journal_writer in self._followed:
            with contextlib.suppress(OSError, shmq.ShmqError):
                journal_writer.close()


@pytest.fixture
def writer(broker: shmq.Broker, namespace: str, tmp_path: Path) -> Iterator[ManualWriter]:
    writer = ManualWriter(broker, namespace, tmp_path)
    yield writer
    writer.close()


def run_out(journal_writer: JournalWriter) -> None:
    """Write until nothing is left to write."""
    while journal_writer.step():
        continue
    assert journal_writer.error is None


@pytest.fixture
def start() -> Iterator[Start]:
    """Start child processes of the test."""
    starter = Start()
    yield starter
    starter.close()


@pytest.fixture
def writer_process(namespace: str) -> Iterator[WriterProcess]:
    """A persistence writer of the test's namespace."""
    with running_writer(namespace) as writer_process:
        yield writer_process
