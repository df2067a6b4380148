"""A process that is stopped while it holds the registry lock, and what writes or restores."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.client.local.stream import LocalStream
from shmq.disk.persistence import backup, process, recovery
from shmq.disk.persistence.process import Persistence
from shmq.disk.persistence.restore import restore, restore_aside
from shmq.disk.persistence.writer import Writer
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.inventory import is_written
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace
from tests.support.server import Server
from tests.support.stopped import stopped_inside
from tests.support.waiting import PATIENCE, eventually
from tests.system.persistence.test_writer import synced, writing

#: Holds the registry of a namespace, stopped.
HOLD = """
import os, signal, sys
from shmq.host.namespace.namespace import Namespace
with Namespace.of(sys.argv[1]).locked():
    os.kill(os.getpid(), signal.SIGSTOP)
"""
WAITS = "the writer waits .* the registry of namespace .* is locked"


@contextlib.contextmanager
def held(namespace: str) -> Iterator[Callable[[], None]]:
    """A stopped process holds the registry; the call lets it go on, and waits for its end."""
    with stopped_inside(HOLD, namespace) as holder:

        def release() -> None:
            holder.send_signal(signal.SIGCONT)
            assert holder.wait(PATIENCE) == 0

        yield release


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(True, id="with files"),
        pytest.param(False, id="without files", marks=pytest.mark.prove),
    ],
)
def test_a_server_starts_although_a_stopped_process_holds_the_registry(
    stored: bool, namespace: str, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    if stored:  # they are recovered before it listens
        data_dir.mkdir(mode=0o700)
    server = Server(tmp_path, namespace, {"data_dir": str(data_dir)})
    try:
        with held(namespace) as release:
            server.start()
            server.hears(WAITS)
            release()
        server.ready()
        assert len(server.said(WAITS)) == 1
        assert server.stops() == 0, server.log
    finally:
        server.close()


@pytest.mark.parametrize("idle", [None, PATIENCE], ids=["by hand", "automatically"])
def test_a_writer_that_had_to_wait_recovers_and_joins_its_directory_once(
    idle: float | None, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    persistence = Persistence(namespace, tmp_path / "data", idle)
    with held(namespace) as release:

        def warn(*_: object) -> None:
            release()

        monkeypatch.setattr(process.log, "warning", warn)
        persistence.recover()
    assert (persistence.directory.held, is_written(tmp_path / "data")) == (True, True)
    persistence.stop()
    persistence.run()


def refused_once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[int]:
    """Let the first call of that name raise LockTimeout; the list has a number for each call."""
    real, calls = getattr(owner, name), list[int]()

    def late(*arguments: Any, **named: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 1:
            raise shmq.LockTimeout("the registry is locked", 1)
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, late)
    return calls


@pytest.mark.parametrize("step", ["claim", "ready"])
def test_a_writer_that_cannot_lock_its_directory_tries_again(
    step: str, broker: shmq.Broker, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = refused_once(monkeypatch, DataDirectory, step)
    with writing(namespace, Disk(tmp_path / "data")):
        queue = broker.create_queue("q", durability="journal", dead_letter=None)
        queue.put(b"1")
        synced(queue)
    assert len(calls) > 1
    queue.close()
    broker.delete_queue("q")


def test_a_directory_that_is_created_late_is_joined_once_the_registry_is_free(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHMQ_DATA_DIR", raising=False)
    persistence = Persistence(namespace)
    persistence.recover()
    assert not persistence.directory.held
    calls = refused_once(monkeypatch, process, "join_memory")
    persistence.directory.ready()
    assert calls == [0, 1]
    persistence.stop()
    persistence.run()


def test_an_idle_writer_goes_on_while_it_cannot_lock_the_registry(
    namespace: str, tmp_path: Path
) -> None:
    registry = Namespace.of(namespace)
    registry.processes.own_number()
    idle = 1e-9
    writer = Writer(namespace, DataDirectory(namespace, Disk(tmp_path / "data")), idle=idle)
    assert not writer._is_unused(idle)
    with held(namespace) as release:
        assert not writer._is_unused(idle)
        release()
    assert writer._is_unused(idle)


def test_a_stream_whose_metadata_waits_for_the_registry_has_no_failing_disk(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    stream = broker.create_stream("s", partitions=1, durability="journal")
    assert isinstance(stream, LocalStream)
    directory = DataDirectory(namespace, Disk(tmp_path / "data"))
    directory.claim(make=True)
    streams = Writer(namespace, directory)._streams

    def is_written() -> bool:
        streams.look_around()
        streams.grow()
        kept = streams.kept("s")
        return kept is not None and len(kept.partitions) == len(stream.logs)

    try:
        for partitions in (1, 2):
            if partitions > 1:
                stream.repartition(partitions)
            with held(namespace) as release:
                assert not is_written()
                assert {each.disk_error for each in stream.logs} == {0}
                release()
            eventually(is_written, "all partitions are written")
            stream.append(b"1", confirm="disk", timeout=PATIENCE)
    finally:
        streams.end()
        directory.close()
        stream.close()
        broker.delete_stream("s")


def test_a_recovery_that_meets_a_held_lock_starts_again(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = refused_once(monkeypatch, recovery, "finish_erasures")
    persistence = Persistence(namespace, tmp_path / "data")
    persistence.recover()
    assert calls == [0, 1]
    assert persistence.directory.held
    assert len(persistence.directory._taken) == 2, "what is called once it is locked, once each"
    persistence.stop()
    persistence.run()


@pytest.mark.parametrize("restoring", [restore, lambda name: restore_aside(name, "q.snap.aside")])
def test_a_restore_names_the_process_that_holds_the_registry(
    restoring: Callable[[str], object],
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHMQ_DATA_DIR", str(tmp_path))
    (tmp_path / namespace).mkdir(mode=0o700)
    with held(namespace) as release:
        with pytest.raises(shmq.LockTimeout) as caught:
            restoring(namespace)
        assert caught.value.state == "stopped"
        release()


def test_a_backup_says_what_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused_once(monkeypatch, backup, "_check_target")
    with pytest.raises(shmq.LockTimeout, match="the registry is locked"):
        backup.backup(tmp_path, [], [], tmp_path / "copy")
