"""A chat for WebSockets, whose members are in one group: an application of Channels."""

from __future__ import annotations

import os
from typing import Any

import django
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

settings.configure(
    SECRET_KEY="chat",
    CHANNEL_LAYERS={
        "default": {
            "BACKEND": "shmq.extras.channels.ShmqChannelLayer",
            "CONFIG": {"namespace": os.environ["CHAT_TARGET"]},
        }
    },
)
django.setup()


class Chat(AsyncWebsocketConsumer):  # type: ignore[misc]
    """Passes on each text to all members, and begins with its channel's name."""

    async def connect(self) -> None:
        await self.channel_layer.group_add("room", self.channel_name)
        await self.accept()
        await self.send(text_data=self.channel_name)

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard("room", self.channel_name)

    async def receive(self, text_data: str) -> None:
        await self.channel_layer.group_send("room", {"type": "chat.message", "text": text_data})

    async def chat_message(self, event: dict[str, Any]) -> None:
        await self.send(text_data=event["text"])


application = Chat.as_asgi()
