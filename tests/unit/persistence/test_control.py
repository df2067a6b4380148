"""What the writer answers to requests that make no sense."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.disk.persistence.process import Persistence
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import UNFINISHED_SOCKET
from shmq.disk.storage.writer_control import (
    Control,
    CutFile,
    WriterEnding,
    ask_for_snapshots,
    ask_to_define,
)
from shmq.errors import ShmqError
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace
from tests.support.waiting import PATIENCE


class Nothing:
    """A writer that keeps no queue."""

    def snapshot(self, name: str, timeout: float | None = None) -> None:
        raise ShmqError(f"there is no {name}")

    def cut(self, queues: list[str], streams: list[str]) -> list[CutFile]:
        raise ShmqError(f"there are no {queues} and no {streams}")

    def define(self) -> None:
        """There is nothing."""

    def give_way(self) -> None:
        raise ShmqError("it goes on")


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Path]:
    control = Control(tmp_path, Nothing())
    yield tmp_path / "writer.sock"
    control.close()


def ask(address: Path, request: bytes) -> list[dict[str, object]]:
    """The lines that are answered until the writer ends the connection."""
    with socket.socket(socket.AF_UNIX) as way:
        way.settimeout(PATIENCE)
        way.connect(str(address))
        way.sendall(request)
        with way.makefile("rb") as file:
            return [json.loads(line) for line in file]


@pytest.mark.parametrize(
    "request_",
    [
        b"\n",
        b"[1]\n",
        b"{}\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"9" * 5000 + b"\n",
        b'{"do": [], "queues": ["q"]}\n',
        b'{"do": "cut", "queues": 5}\n',
        b'{"do": "cut", "queues": [5]}\n',
    ],
)
def test_a_request_that_is_none_is_answered(request_: bytes, answers: Path) -> None:
    (answer,) = ask(answers, request_)
    assert "does not know the request" in str(answer["error"])


@pytest.mark.parametrize("do", ["snapshot", "cut"])
@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "../../etc/passwd", "x" * 5000])
def test_a_name_that_no_queue_can_have_is_refused(do: str, name: str, answers: Path) -> None:
    (answer,) = ask(answers, json.dumps({"do": do, "queues": [name]}).encode() + b"\n")
    assert "invalid queue name" in str(answer["error"])


class Ending(Nothing):
    """A writer that ends."""

    def snapshot(self, name: str, timeout: float | None = None) -> None:
        raise WriterEnding

    def define(self) -> None:
        raise WriterEnding


def test_one_that_is_ending_does_not_answer_and_so_the_next_one_is_asked(tmp_path: Path) -> None:
    control = Control(tmp_path, Ending())
    try:
        with pytest.raises(ShmqError, match="ended before it had written them: ask again"):
            ask_to_define(tmp_path, PATIENCE)
        with pytest.raises(ShmqError, match="ended before it had written q: ask again"):
            list(ask_for_snapshots(tmp_path, ["q"]))
    finally:
        control.close()


class Succeeded(Nothing):
    """A writer that ends at the first request, and the one that follows it."""

    asked = 0

    def define(self) -> None:
        self.asked += 1
        if self.asked == 1:
            raise WriterEnding


def test_a_definition_waits_for_the_writer_that_follows_one_that_is_ending(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    registry, source = Namespace.of(namespace), Succeeded()
    registry.roles.become_writer(tmp_path)
    control = Control(tmp_path, source)
    try:
        broker.create_exchange("x", "direct")
        assert source.asked == 2
        broker.delete_exchange("x")
    finally:
        control.close()
        registry.roles.release_writer()


def test_the_socket_has_its_name_once_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that finds the socket of a live writer is not told that there is none."""
    address = tmp_path / "writer.sock"
    address.touch()  # left by a writer that died
    listen = socket.socket.listen

    def refuses(way: socket.socket, backlog: int) -> None:
        with socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
            early.connect(str(tmp_path / UNFINISHED_SOCKET))
        assert not address.is_socket()
        listen(way, backlog)

    monkeypatch.setattr(socket.socket, "listen", refuses)
    control = Control(tmp_path, Nothing())
    try:
        assert [path.name for path in tmp_path.iterdir()] == ["writer.sock"]
        assert ask(address, b"{}\n")
    finally:
        control.close()
    assert list(tmp_path.iterdir()) == []


def test_a_socket_that_cannot_be_made_is_a_clear_error(namespace: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "writer.sock").mkdir(parents=True)
    folder.chmod(0o700)
    persistence = Persistence(namespace, folder)

    with pytest.raises(ShmqError, match="cannot have a socket"):
        persistence.recover()
    assert not (folder / UNFINISHED_SOCKET).exists()

    persistence.directory.close()
    free = DataDirectory(namespace, Disk(folder))
    free.ready()
    free.close()
