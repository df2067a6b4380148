"""WebSockets of several server processes in one group, and the death of one of them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect

import shmq
from shmq.extras.channels import ShmqChannelLayer
from tests.support.asgi_servers import Process, asgi_servers
from tests.support.waiting import PATIENCE

APP = "tests.extras.channels.system.chat_app:application"


def _command(server: str, port: int) -> list[str]:
    if server == "daphne":
        return ["daphne", "-b", "127.0.0.1", "-p", str(port), APP]
    return ["uvicorn", "--lifespan", "off", "--log-level", "warning", "--port", str(port), APP]


@contextlib.contextmanager
def _started(
    servers: list[str], namespace: str, folder: Path
) -> Iterator[list[tuple[Process, str]]]:
    """The processes of these servers, with their URLs."""
    commands = [functools.partial(_command, server) for server in servers]
    with asgi_servers(commands, namespace, folder) as started:
        yield [(process, f"ws://127.0.0.1:{port}/") for process, port in started]


async def _join(url: str) -> ClientConnection:
    """A connection that is a member of the group, once its server accepts it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                member = await connect(url, open_timeout=PATIENCE, ping_interval=None)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                assert "!" in await member.recv()
                return member


async def _hear(members: list[ClientConnection], text: str) -> None:
    async with asyncio.timeout(PATIENCE):
        assert [await member.recv() for member in members] == [text] * len(members)


@pytest.mark.parametrize(
    "servers",
    [
        ["uvicorn", "uvicorn"],
        pytest.param(["daphne", "daphne", "uvicorn"], marks=pytest.mark.prove),
    ],
)
def test_a_group_has_members_in_all_processes_and_survives_one(
    namespace: str, tmp_path: Path, servers: list[str]
) -> None:
    async def main() -> None:
        with _started(servers, namespace, tmp_path) as started:
            members = [await _join(url) for _, url in started for _ in range(3)]
            await members[0].send("привіт")
            await _hear(members, "привіт")

            started[0][0].kill()
            started[0][0].wait()
            others = members[3:]
            for number in range(20):
                await others[number % len(others)].send(f"{number}")
                await _hear(others, f"{number}")

            layer = ShmqChannelLayer(namespace)
            await layer.group_send("room", {"type": "chat.message", "text": "from outside"})
            await _hear(others, "from outside")
            with shmq.connect(namespace) as broker:
                inboxes = [name for name in broker.queue_names() if ".inbox." in name]
                bound = {each.target for each in broker.exchange("asgi.groups").bindings()}
            assert bound == set(inboxes)
            assert len(inboxes) == len(servers) - 1
            for member in others:
                await member.close()

    try:
        asyncio.run(main())
    except BaseException:
        for log in tmp_path.glob("*.log"):
            print(log.read_text(errors="replace")[-3000:])
        raise
