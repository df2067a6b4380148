"""A chat of Socket.IO with rooms, and questions that a client asks another one."""

from __future__ import annotations

import os
from typing import Any

import socketio

from shmq.extras.socketio import AsyncShmqManager

server = socketio.AsyncServer(
    async_mode="asgi", client_manager=AsyncShmqManager(os.environ["CHAT_TARGET"])
)
application = socketio.ASGIApp(server)


@server.event  # type: ignore[untyped-decorator]
async def join(sid: str, room: str) -> str:
    await server.enter_room(sid, room)
    return sid


@server.event  # type: ignore[untyped-decorator]
async def say(sid: str, room: str | None, text: Any) -> None:
    await server.emit("said", text, room=room)


@server.event  # type: ignore[untyped-decorator]
async def ask(sid: str, other: str, text: str) -> Any:
    return await server.call("question", text, to=other, timeout=60)
