"""The streams of a namespace of a cluster: made, found and deleted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn

from shmq import api, errors
from shmq.api.stream_options import StreamOptions
from shmq.client.handles.put import is_durable
from shmq.client.ports.broker import CollectionPort
from shmq.extras.nats.client import site
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.jetstream import delete_stream
from shmq.extras.nats.client.names import escape, kv_key
from shmq.extras.nats.client.partition import Partition, Row, StreamGone
from shmq.extras.nats.client.queue_layout import check_synced
from shmq.extras.nats.client.stream import NatsStream, check_possible
from shmq.model.codec import codecs
from shmq.native import _clock as time

log = logging.getLogger("shmq")


class StreamCollection(CollectionPort):
    """The streams of one namespace."""

    def __init__(
        self, connection: ClusterConnection, definitions: Definitions, exchanges: Any
    ) -> None:
        self._connection = connection
        self._definitions = definitions
        self._exchanges = exchanges

    def make(
        self, name: str, wanted: StreamOptions, given: Mapping[str, Any], exact: bool
    ) -> NatsStream:
        check_possible(self._connection, name, wanted)
        making = self._make(name, wanted, "allow_same_name" not in given)
        stream = self._make_stream(name, self._connection.run(making))
        if exact and (differences := wanted.differences(stream.options)):
            stream.close()
            raise errors.StreamExists.of(name, differences)
        return stream

    async def _make(self, name: str, wanted: StreamOptions, alone: bool) -> Mapping[str, Any]:
        key = kv_key("stream", name)
        found = await self._definitions.get(key)
        if found is not None:
            return found.value
        if alone:
            await self._definitions.check_alone("stream", name)
        if wanted.mirror is not None:
            await site.check_joined(self._connection, wanted.mirror)
        await asyncio.gather(
            *(
                Partition(self._connection, name, number, wanted).make()
                for number in range(wanted.partitions)
            )
        )
        if wanted.mirror is not None:  # before the definition, which says that it is there
            await self._definitions.make()
            await site.mirror(self._connection, name, wanted.partitions, wanted.mirror)
        made = {
            "options": wanted.as_dict(),
            "identity": secrets.randbits(63) | 1,
            "created_at": time.time(),
        }
        revision = await self._definitions.put(key, made, 0)
        if revision is None:
            return await self._make(name, wanted, alone)
        try:
            if alone:
                await self._definitions.check_alone("stream", name, revision)
        except errors.AlreadyExists:
            await self._delete(name)
            raise
        return made

    def alter(self, name: str, given: Mapping[str, Any]) -> NoReturn:
        del given
        raise errors.Unsupported(
            f"altering stream {name!r} is not possible on a cluster: its servers have made streams "
            f"by its options; create another stream, and delete this one once it is read"
        )

    def open(self, name: str, to_put: bool = False) -> NatsStream:
        del to_put
        found = self._connection.run(self._definitions.get(kv_key("stream", name)))
        if found is None:
            raise errors.NoSuchStream.of(name, self._connection.where)
        return self._make_stream(name, found.value)

    def _make_stream(self, name: str, definition: Mapping[str, Any]) -> NatsStream:
        try:
            return NatsStream(self._connection, self._definitions, name, definition)
        except (KeyError, TypeError, ValueError) as error:
            raise errors.ServerError(
                f"the definition of stream {name!r} of {self._connection.url} cannot be read: "
                f"{error}"
            ) from error

    def delete(self, name: str) -> None:
        if not self._connection.run(self._delete(name)):
            raise errors.NoSuchStream.of(name, self._connection.where)
        self._connection.run(self._exchanges.forget("stream", name))

    async def _delete(self, name: str) -> bool:
        """Delete the stream, its groups and its schema; whether it was there."""
        found = await self._definitions.get(kv_key("stream", name))
        if found is None:
            return False
        await self._definitions.remove(kv_key("stream", name))
        await self._definitions.remove(f"group.{escape(name)}.>")
        if await self._definitions.get(kv_key("queue", name)) is None:
            await self._definitions.remove(kv_key("schema", name))
        options = StreamOptions(**found.value["options"])
        if options.mirror is not None:
            await self._remove_copy(name, options.partitions, options.mirror)
        for number in range(options.partitions):
            partition = Partition(self._connection, name, number, options)
            await delete_stream(self._connection, partition.stream)
        return True

    async def _remove_copy(self, name: str, partitions: int, where: str) -> None:
        """Remove the copy at a site; one that is away keeps it."""
        try:
            await site.remove(self._connection, name, partitions, where)
        except errors.ConnectionLost as error:
            log.warning("stream %s: its copy stays: %s", name, error)

    def summaries(self) -> list[api.StreamSummary]:
        found = []
        for name in self.names():
            with contextlib.suppress(errors.NoSuchStream, errors.StreamDeleted):
                found.append(summary_of(self.open(name)))
        return found

    def names(self) -> list[str]:
        return self._connection.run(self._definitions.names("stream"))

    async def find(self, name: str) -> NatsStream | None:
        """The stream, for what runs in the loop; None: there is none."""
        found = await self._definitions.get(kv_key("stream", name))
        return None if found is None else self._make_stream(name, found.value)


class StreamCopies:
    """The records for one stream, in order."""

    def __init__(self, place: Partition, name: str, rows: list[Row]) -> None:
        self._place = place
        self._rows = rows
        self.name = f"stream/{name}"
        self.error: errors.ShmqError | None = None
        self.duplicates = 0
        self.is_gone = False

    async def run(self, block: bool | None, until: float | None) -> int:
        """Append them; returns how many the stream took."""
        del block, until  # there is always room: the oldest go
        try:
            await self._place.append(self._rows)
        except StreamGone:
            self.is_gone = True
            return 0
        except errors.ShmqError as error:
            self.error = error
            return 0
        return len(self._rows)


def copies_for(
    stream: NatsStream,
    bodies: list[Any],
    key: str,
    properties: Mapping[str, Any],
    confirm: Any,
    default: codecs.Default | None,
) -> StreamCopies:
    """The records of what an exchange publishes for a stream."""
    if is_durable(stream, confirm, "stream"):
        check_synced(stream.connection, f"stream {stream.name!r}")
    rows = []
    for body in bodies:
        buffer, number = codecs.encode_body(body, properties.get("codec"), default)
        codec = properties.get("codec") or codecs.CODECS[number]
        headers = dict(properties.get("headers") or {})
        rows.append(Row(bytes(buffer), key.encode(), headers, codec, time.time_ns()))
    place = stream.logs_of[zlib.crc32(key.encode()) % stream.partitions]
    place.check_size(rows)
    return StreamCopies(place, stream.name, rows)


def summary_of(stream: NatsStream) -> api.StreamSummary:
    """The stream's entry of the list."""
    ends = stream.offsets()
    return api.StreamSummary(
        name=stream.name,
        partitions=stream.partitions,
        records=sum(one.latest - one.earliest for one in ends),
        bytes=sum(one.bytes for one in ends),
    )
