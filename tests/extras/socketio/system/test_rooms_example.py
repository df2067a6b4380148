"""The example with rooms, run as its user does, with two server processes."""

from __future__ import annotations

import contextlib
import json
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.support.examples import Command, command, printed
from tests.support.server import fixed_port
from tests.support.waiting import PATIENCE, eventually

UVICORN = ("-m", "uvicorn", "app:app", "--log-level", "warning", "--port")


def _say(port: int, text: str, room: str = "tea") -> None:
    """Say it by a request to the server process with that port."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/rooms/{room}",
        json.dumps({"text": text}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.status == 202


def _say_until_heard(port: int, text: str, clients: list[Command]) -> None:
    """Say it until all hear it: a process that has just started may not hear the others yet."""

    def is_heard() -> bool:
        _say(port, text)
        return all(f"[tea] {text}\n" in client.log() for client in clients)

    eventually(is_heard, f"all clients hear {text!r}", pause=0.05)


def _has_heard(client: Command, texts: list[str]) -> bool:
    """Whether the client has heard each of these once, in this order."""
    lines = [line.partition("] ")[2] for line in client.log().splitlines()]
    return [line for line in lines if line in texts] == texts


def _announce(namespace: str, text: str, clients: list[Command]) -> None:
    """Announce it from another process, after all that was said before; all clients hear it."""
    assert printed("rooms", namespace, "announce", text) == []
    for client in clients:
        client.says(f"[all] {text}")


@pytest.mark.prove
def test_clients_of_both_processes_hear_a_room_and_those_of_one_outlive_the_other(
    namespace: str, tmp_path: Path
) -> None:
    ports = [fixed_port(), fixed_port()]
    with contextlib.ExitStack() as stack:

        def start(log: str, *arguments: str) -> Command:
            return stack.enter_context(command("rooms", namespace, tmp_path / log, *arguments))

        def listen(log: str, room: str, port: int) -> Command:
            return start(log, "app.py", "listen", room, "--url", f"http://127.0.0.1:{port}")

        servers = [start(f"server-{port}", *UVICORN, str(port)) for port in ports]
        clients = [
            listen(f"tea-{number}-{port}", "tea", port) for number in (1, 2) for port in ports
        ]
        jam = listen("jam", "jam", ports[1])
        for client in [*clients, jam]:
            client.says("joined: ")
        for port in ports:
            _say_until_heard(port, f"hello from {port}", clients)

        lines = [[f"line {number} to {port}" for number in range(10)] for port in ports]
        for pair in zip(*lines, strict=True):
            for port, text in zip(ports, pair, strict=True):
                _say(port, text)
        _announce(namespace, "We close at five", [*clients, jam])
        assert all(_has_heard(client, texts) for client in clients for texts in lines)
        assert "[tea]" not in jam.log()

        servers[0].process.kill()
        servers[0].process.wait(PATIENCE)
        later = [f"later {number}" for number in range(20)]
        for text in later:
            _say(ports[1], text)
        _announce(namespace, "We are still here", [*clients[1::2], jam])
        assert all(_has_heard(client, later) for client in clients[1::2])

        servers[0] = start("server-again", *UVICORN, str(ports[0]))
        for client in clients[::2]:  # they have connected again, and joined again
            client.says("joined: tea", 2)
        _say_until_heard(ports[1], "welcome back", clients)
        for each in [*clients, jam, *servers]:
            assert each.ends(signal.SIGINT) == 0, each.log()
