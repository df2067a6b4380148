"""The chat: what a visitor writes reaches all visitors of the room, in all processes."""

import os
from typing import Any

from channels.generic.websocket import AsyncJsonWebsocketConsumer


class Chat(AsyncJsonWebsocketConsumer):
    """A visitor of a room."""

    async def connect(self) -> None:
        """Join the room, then tell the visitor which process serves the connection."""
        self.room = f"chat.{self.scope['url_route']['kwargs']['room']}"
        await self.channel_layer.group_add(self.room, self.channel_name)
        await self.accept()
        await self.send_json({"process": os.getpid()})

    async def disconnect(self, _: int) -> None:
        """Leave the room."""
        await self.channel_layer.group_discard(self.room, self.channel_name)

    async def receive_json(self, content: dict[str, Any]) -> None:
        """Send what the visitor writes to the room."""
        message = {"type": "chat.message", "text": str(content["text"])}
        await self.channel_layer.group_send(self.room, message)

    async def chat_message(self, event: dict[str, Any]) -> None:
        """Show the visitor a message of the room."""
        await self.send_json({"text": event["text"]})
