"""Connections that send too little: no request, half of one, or a body that does not come."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from shmq.extras.console.api import routes
from shmq.extras.console.problem import Problem
from shmq.extras.console.server import process as connection
from tests.support.waiting import PATIENCE, eventually

#: How long the server waits for a request. One that is to come in time is sent again if it did not.
SOON = 0.2
REQUEST = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def slow(_: Request) -> Response:
    await asyncio.sleep(2 * SOON)
    return PlainTextResponse("late")


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(await websocket.receive_text())
    await websocket.close()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where a server listens whose connections wait as long as that."""
    monkeypatch.setattr(connection, "PATIENCE", SOON)
    app = Starlette(routes=[Route("/slow", slow), WebSocketRoute("/echo", echo)])
    with socket.create_server(("127.0.0.1", 0)) as sock:
        config = uvicorn.Config(
            app, http=connection.Connection, ws="websockets-sansio", log_config=None, lifespan="off"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        yield sock.getsockname()[1]
        server.should_exit = True
        thread.join(PATIENCE)


def told(port: int, *sent: bytes) -> bytes:
    """What the server says until it closes the connection; the answer to REQUEST is awaited."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        for piece in sent:
            client.sendall(piece)
            if piece == REQUEST:
                while not found.endswith(b"late"):
                    answer = client.recv(4096)
                    if not answer:
                        return found
                    found += answer
        while piece := client.recv(4096):
            found += piece
    return found


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /slow HTTP/1.1\r\nHost: local"])
def test_a_connection_without_a_whole_request_is_closed(port: int, sent: bytes) -> None:
    assert told(port, sent) == b""


def test_an_answer_may_take_longer_and_half_a_second_request_may_not(port: int) -> None:
    eventually(
        lambda: told(port, REQUEST, b"GET /s").endswith(b"late"), "a request is sent and answered"
    )


def test_a_websocket_may_be_silent(port: int) -> None:
    made: list[ClientConnection] = []

    def is_made() -> bool:
        with contextlib.suppress(OSError, WebSocketException):
            made.append(connect(f"ws://127.0.0.1:{port}/echo"))
        return bool(made)

    eventually(is_made, "a request for one is sent and answered")
    with made[0] as client:
        told(port, b"")  # as long as a connection may wait
        client.send("still here")
        assert client.recv(PATIENCE) == "still here"


def test_a_body_that_does_not_come_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PATIENCE", SOON)
    pieces = [{"type": "http.request", "body": b"abc", "more_body": True}]

    async def receive() -> Any:
        if not pieces:
            await asyncio.Event().wait()
        return pieces.pop()

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(Problem, match="only 3 bytes") as refused:
        asyncio.run(routes.read_body(request, 10))
    assert (refused.value.status, refused.value.code) == (408, "too-slow")
