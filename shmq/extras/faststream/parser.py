"""Between FastStream's bodies and headers and those of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from faststream._internal.constants import ContentTypes
from faststream.message import StreamMessage, decode_message

import shmq
from shmq.extras.faststream.message import ShmqBatchMessage, ShmqMessage
from shmq.model.codec.codecs import CODECS, decode_body
from shmq.model.codec.strict_json import decode_json

#: The header with the id that FastStream knows a request and its reply by: the message's own
#: correlation is that of the request that waits for the reply.
CORRELATION: Final = "correlation-id"
#: The header with a media type that no codec stands for.
_TYPE: Final = "content-type"
#: The media types that codecs stand for.
_MEDIA: Final = {"text": ContentTypes.TEXT.value, "json": ContentTypes.JSON.value}
#: The codecs whose bodies FastStream cannot decode itself.
_OWN: Final = frozenset(CODECS) - {"bytes", "text", "json"}


def stored(
    payload: bytes, media: str | None, headers: Mapping[str, Any]
) -> tuple[Any, str, dict[str, Any]]:
    """The body, the codec and the headers of a put, for encoded bytes and their media type.

    A text or a JSON value is stored as such, so that a consumer without FastStream reads it.
    """
    kept = dict(headers)
    if media == ContentTypes.TEXT.value:
        return payload.decode(), "text", kept
    if media == ContentTypes.JSON.value:
        try:
            return decode_json(payload), "json", kept
        except ValueError:  # an encoder of the application's, which says JSON and means another
            pass
    if media is not None:
        kept[_TYPE] = media
    return payload, "bytes", kept


class ShmqParser:
    """Parses and decodes messages; ``waits`` says whether their settlement waits for a server."""

    def __init__(self, waits: Callable[[], bool]) -> None:
        self._waits = waits

    async def parse_message(self, message: shmq.Message) -> ShmqMessage:
        """The message as FastStream's handlers see it."""
        headers = dict(message.headers)
        correlation = headers.pop(CORRELATION, None) or message.correlation
        media = headers.pop(_TYPE, None) or _MEDIA.get(message.codec)
        parsed = ShmqMessage(
            message,
            bytes(message.view),
            headers=headers,
            reply_to=message.reply_to or "",
            content_type=media,
            correlation_id=correlation,
            message_id=str(message.sequence),
        )
        parsed.waits = self._waits()
        return parsed

    async def decode_message(self, message: StreamMessage[Any]) -> Any:
        """The body as a value: that of a codec, or what the media type says."""
        codec = message.raw_message.codec
        if codec in _OWN and isinstance(message.body, bytes):
            return decode_body(message.body, CODECS.index(codec), codec)
        return decode_message(message)

    async def parse_batch(self, messages: list[shmq.Message]) -> ShmqBatchMessage:
        """The batch as FastStream's handlers see it; its headers are those of the first."""
        each = [await self.parse_message(one) for one in messages]
        first = each[0]
        parsed = ShmqBatchMessage(
            messages,
            [one.body for one in each],
            headers=first.headers,
            batch_headers=[one.headers for one in each],
            reply_to=first.reply_to,
            correlation_id=first.correlation_id,
            message_id=f"{first.message_id}-{each[-1].message_id}",
        )
        parsed.waits = self._waits()
        return parsed

    async def decode_batch(self, batch: StreamMessage[Any]) -> list[Any]:
        """The bodies of a batch, each as a value."""
        return [
            await self.decode_message(await self.parse_message(one)) for one in batch.raw_message
        ]
