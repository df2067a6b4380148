"""A chat with rooms: the server processes share them, and other programs write to them as well.

In this folder, after ``pip install 'shmq[socketio]' fastapi uvicorn websockets aiohttp``:

    uvicorn app:app --workers 2                     # any number of processes, and no Redis
    python app.py listen tea                        # a client; as many as you like
    curl -H 'Content-Type: application/json' -d '{"text": "It is ready"}' localhost:8000/rooms/tea
    python app.py announce "We close at five"       # another process, to all rooms
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from typing import Any

import socketio
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import shmq
from shmq.extras.socketio import AsyncShmqManager, ShmqManager

#: The longest name of a room, in characters.
LONGEST_NAME = 100
#: How long a client waits for an answer to its connection, in seconds.
TIMEOUT = 30

# ---- the server; each of its processes has the clients that are connected to it ----

# A client that uses WebSockets alone stays with one process, whichever one accepts it: a load
# balancer needs no sticky sessions.
server = socketio.AsyncServer(
    async_mode="asgi", transports=["websocket"], client_manager=AsyncShmqManager()
)
pages = FastAPI(title="Rooms")
app = socketio.ASGIApp(server, pages)


async def join(sid: str, room: Any = None) -> dict[str, str]:
    """Let a client hear a room. What a client sends is checked here: it may be anything."""
    if not isinstance(room, str) or not 0 < len(room) <= LONGEST_NAME:
        return {"error": f"a room is a text of 1 to {LONGEST_NAME} characters"}
    await server.enter_room(sid, room)
    return {"joined": room}


server.on("join", join)


class Line(BaseModel):
    text: str = Field(min_length=1, max_length=10_000)


@pages.post("/rooms/{room}", status_code=202)
async def say(room: str, line: Line) -> dict[str, str]:
    """Say it to all clients in the room, whichever process they are connected to."""
    try:
        await server.emit("said", {"room": room, "text": line.text}, room=room)
    except (shmq.NoSpace, shmq.ConnectionLost):  # the clients of the other processes missed it
        raise HTTPException(503, "not all clients were reached") from None
    return {"room": room}


# ---- programs beside it ----


def announce(text: str) -> None:
    """Say it to all clients of all processes. A program that only emits needs no server."""
    ShmqManager(write_only=True).emit("said", {"room": "all", "text": text})


async def listen(url: str, room: str) -> None:
    """Print what is said in a room, until Ctrl-C."""
    client = socketio.AsyncClient(handle_sigint=False)  # asyncio.run does

    def on_joined(answer: dict[str, str]) -> None:
        print(*answer.popitem(), sep=": ", flush=True)

    async def on_connect() -> None:  # also after a lost connection: the new one is in no room
        await client.emit("join", room, callback=on_joined)

    def on_said(line: dict[str, str]) -> None:
        print(f"[{line['room']}] {line['text']}", flush=True)

    client.on("connect", on_connect)
    client.on("said", on_said)
    try:
        await client.connect(url, transports=["websocket"], wait_timeout=TIMEOUT, retry=True)
        await client.wait()
    finally:
        await client.disconnect()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    listening, announcing = commands.add_parser("listen"), commands.add_parser("announce")
    listening.add_argument("room")
    listening.add_argument("--url", default="http://localhost:8000")
    announcing.add_argument("text")
    given = parser.parse_args()
    try:
        if given.command == "announce":
            announce(given.text)
        else:
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(listen(given.url, given.room))
    except shmq.ShmqError as error:  # its text says what to do
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
