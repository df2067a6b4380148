"""How the running writer is asked, where its process has come to a limit."""

from __future__ import annotations

import json
import os
import resource
import socket
import threading
from pathlib import Path

import pytest

from shmq.disk.storage.writer_control import Control, CutFile
from shmq.errors import ShmqError
from tests.support.waiting import PATIENCE, eventually


class Source:
    """Has written whatever is asked for, once it may say so."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def snapshot(self, name: str, timeout: float | None = None) -> None:
        """It is there."""
        assert self.may_answer.wait(PATIENCE)

    def cut(self, queues: list[str], streams: list[str]) -> list[CutFile]:
        """There is nothing."""
        return []

    def define(self) -> None:
        """There is nothing."""

    def give_way(self) -> None:
        raise ShmqError("it goes on")


def test_a_writer_that_was_out_of_descriptors_answers_once_it_has_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    control = Control(tmp_path, source)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        lowest = os.dup(first.fileno())  # every number below it is taken
        os.close(lowest)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            # accept(2) may have a descriptor from before. The first request keeps it until it
            # is answered, so that there is none for the second.
            ask(first, tmp_path)
            ask(second, tmp_path)
            eventually(lambda: "cannot accept a request" in caplog.text, "there are none left")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            source.may_answer.set()
        assert answer(first) == answer(second) == {"queue": "q", "error": None}
    control.close()


def ask(way: socket.socket, directory: Path) -> None:
    way.settimeout(PATIENCE)
    way.connect(str(directory / "writer.sock"))
    way.sendall(json.dumps({"do": "snapshot", "queues": ["q"]}).encode() + b"\n")


def answer(way: socket.socket) -> object:
    with way.makefile("rb") as file:
        return json.loads(file.readline())
