"""Socket.IO servers in several processes on a stream of shmq, with clients of python-socketio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import socketio
import werkzeug.serving

import shmq
from shmq.extras.socketio import AsyncShmqManager, ShmqManager
from shmq.extras.socketio.event_stream import EventStream
from tests.support.asgi_servers import Process, asgi_servers
from tests.support.processes import Start
from tests.support.server import serve
from tests.support.waiting import PATIENCE, eventually

log = logging.getLogger("test.socketio")


def _command(port: int) -> list[str]:
    app = "tests.extras.socketio.system.chat_app:application"
    return ["uvicorn", "--log-level", "warning", "--port", str(port), app]


@contextlib.contextmanager
def _workers(target: str, folder: Path, count: int = 2) -> Iterator[list[tuple[Process, str]]]:
    """So many servers of uvicorn with the chat, and their URLs."""
    with asgi_servers([_command] * count, target, folder) as started:
        yield [(process, f"http://127.0.0.1:{port}") for process, port in started]


async def _joined(url: str, room: str) -> tuple[socketio.AsyncClient, str, list[Any]]:
    """A client in the room, its id, and what it hears."""
    client, heard = socketio.AsyncClient(), list[Any]()
    client.on("said", heard.append)
    client.on("question", lambda text: f"{text}!")
    async with asyncio.timeout(PATIENCE):
        while not client.connected:
            try:
                await client.connect(url, transports=["websocket"])
            except socketio.exceptions.ConnectionError:
                await asyncio.sleep(0.05)
        return client, await client.call("join", room), heard


async def _until_heard(
    emit: Callable[[], Coroutine[Any, Any, None]], heard: list[Any], value: Any
) -> None:
    """Emit until a client hears it: its process may not listen to the others yet."""
    async with asyncio.timeout(PATIENCE):
        while value not in heard:
            await emit()
            await asyncio.sleep(0.02)


@pytest.fixture(params=["here", pytest.param("tcp", marks=pytest.mark.prove)])
def target(request: pytest.FixtureRequest, namespace: str) -> Iterator[str]:
    """A namespace of this host, and a server."""
    if request.param == "here":
        yield f"shmq://{namespace}"
    else:
        with serve(namespace) as server:
            yield server.url


def test_clients_of_two_processes_hear_each_other(
    target: str, namespace: str, tmp_path: Path
) -> None:
    async def main() -> None:
        with _workers(target, tmp_path) as started:
            (_, one_url), (process, other_url) = started
            one, one_sid, heard = await _joined(one_url, "room")
            other, other_sid, heard_there = await _joined(other_url, "room")
            third, _, heard_elsewhere = await _joined(one_url, "elsewhere")
            for client, ears in ((one, heard_there), (other, heard)):
                for value in ("привіт", [1, {"data": b"\0\xff"}]):
                    await _until_heard(lambda: client.emit("say", ("room", value)), ears, value)  # noqa: B023
            assert heard_elsewhere == []
            assert await one.call("ask", (other_sid, "so"), timeout=PATIENCE) == "so!"
            assert await other.call("ask", (one_sid, "so"), timeout=PATIENCE) == "so!"

            writer = ShmqManager(target, write_only=True)
            await _until_heard(
                lambda: asyncio.to_thread(writer.emit, "said", "from a task", room="elsewhere"),
                heard_elsewhere,
                "from a task",
            )
            awriter = AsyncShmqManager(target, write_only=True)
            await _until_heard(lambda: awriter.emit("said", "all"), heard_there, "all")

            with shmq.connect(namespace) as broker:
                broker.delete_stream("socketio.socketio")
            await _until_heard(lambda: one.emit("say", ("room", "new")), heard_there, "new")
            await _until_heard(lambda: awriter.emit("said", "new too"), heard, "new too")

            process.kill()
            process.wait()
            await awriter.emit("said", "still", room="room")
            await _until_heard(lambda: third.emit("say", (None, "here")), heard, "here")
            assert "still" in heard
            for client in (one, third):
                await client.disconnect()

    try:
        asyncio.run(main())
    except BaseException:
        for output in tmp_path.glob("*.log"):
            print(output.read_text(errors="replace")[-3000:])
        raise


def _serve_threads(pipe: Connection, namespace: str) -> None:
    manager = ShmqManager(f"shmq://{namespace}")
    server = socketio.Server(async_mode="threading", client_manager=manager)
    http = werkzeug.serving.make_server("127.0.0.1", 0, socketio.WSGIApp(server), threaded=True)
    pipe.send(http.server_port)
    http.serve_forever()


@pytest.mark.prove
def test_a_server_with_threads_hears_other_processes(namespace: str) -> None:
    start = Start()
    heard: list[Any] = []
    client = socketio.Client()
    client.on("said", heard.append)
    try:
        port = start(_serve_threads, namespace, method="spawn").hear()
        client.connect(f"http://127.0.0.1:{port}", transports=["polling"])
        writer = ShmqManager(f"shmq://{namespace}", write_only=True, logger=log)

        def is_heard(text: str) -> bool:
            writer.emit("said", text)
            return text in heard

        eventually(lambda: is_heard("слово"), "an emit of another process is heard", pause=0.05)
        with shmq.connect(namespace) as broker:
            broker.delete_stream("socketio.socketio")
        eventually(lambda: is_heard("new"), "an emit to a new stream is heard", pause=0.05)
        client.disconnect()
    finally:
        start.close()


def test_events_that_cannot_be_stored_are_errors(target: str) -> None:
    writer = ShmqManager(target, write_only=True, logger=log)
    awriter = AsyncShmqManager(target, write_only=True, logger=log)
    for value, error in (({1}, TypeError), ("x" * (17 << 20), shmq.MessageTooLarge)):
        with pytest.raises(error):
            writer.emit("said", value)
        with pytest.raises(error):
            asyncio.run(awriter.emit("said", value))


def test_events_that_were_overwritten_are_reported(
    namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader = AsyncShmqManager(namespace, channel="кімната", logger=log)
    writer = ShmqManager(namespace, channel="кімната", write_only=True, logger=log)

    async def main() -> None:
        listening = reader._listen()
        first = asyncio.ensure_future(anext(listening))
        while not first.done():
            writer.emit("first", None)
            await asyncio.sleep(0.01)
        for _ in range(9):
            writer.emit("large", "x" * (9 << 20))
        writer.emit("last", None)
        while '"last"' not in await asyncio.wait_for(anext(listening), PATIENCE):
            pass
        await listening.aclose()

    asyncio.run(main())
    assert "events were overwritten before this process read them" in caplog.text


def test_wrong_settings_are_rejected(namespace: str) -> None:
    with pytest.raises(shmq.InvalidOption, match="shmq://NAMESPACE"):
        ShmqManager("redis://")
    with pytest.raises(shmq.InvalidOption, match="shmq://NAMESPACE"):
        AsyncShmqManager("shmq://here/and/there")
    server = socketio.Server(async_mode="gevent", client_manager=ShmqManager(namespace))
    with pytest.raises(RuntimeError, match="async_mode='threading'"):
        server.manager.initialize()


def test_a_listener_that_loses_the_stream_leaves_an_emit_its_handle(target: str) -> None:
    events = EventStream(target, "lost", None, None)
    stream = events.open()  # of an emit
    events.forget(stream)
    stream.append("event")
    assert events.open() is not stream
