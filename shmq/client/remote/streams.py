"""The streams of a server's namespace: create, find, list and delete them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from shmq import api, errors
from shmq.api.names import check_name
from shmq.api.stream_options import StreamOptions
from shmq.client.remote.connection import Connection
from shmq.client.remote.stream import RemoteStream, attach
from shmq.native import _core
from shmq.protocol.messages.payload import pack_name
from shmq.protocol.messages.stream import STREAMS, StreamCreate
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import error_of

__all__ = ["RemoteStreams"]


class RemoteStreams:
    """The stream methods of a :class:`~shmq.client.remote.broker.RemoteBroker`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._open: weakref.WeakSet[RemoteStream] = weakref.WeakSet()

    def create(self, name: str, options: Mapping[str, Any]) -> RemoteStream:
        """See ``create_stream`` of :class:`shmq.api.Broker`."""
        check_name(name, "stream")
        wanted = StreamOptions.given(options)
        answer = self._make(name, wanted, options)
        if answer.status == Status.QUEUE_EXISTS:
            raise self._exists(name, wanted)
        self._check_made(answer, name)
        return self.attached(name)

    def ensure(self, name: str, options: Mapping[str, Any]) -> RemoteStream:
        """See ``ensure_stream`` of :class:`shmq.api.Broker`."""
        check_name(name, "stream")
        wanted = StreamOptions.given(options)
        try:
            return self.attached(name)
        except errors.NoSuchStream:
            answer = self._make(name, wanted, options)
            if answer.status != Status.QUEUE_EXISTS:
                self._check_made(answer, name)
            return self.attached(name)

    def attached(self, name: str) -> RemoteStream:
        """See ``stream`` of :class:`shmq.api.Broker`."""
        stream = attach(self._connection.target, check_name(name, "stream"), self._namespace)
        self._open.add(stream)
        return stream

    def delete(self, name: str) -> None:
        """See ``delete_stream`` of :class:`shmq.api.Broker`."""
        answer = self._ask(Type.STREAM_DELETE, check_name(name, "stream"))
        if answer.status == Status.NO_QUEUE:
            raise errors.NoSuchStream(
                f"there is no stream {name!r} in namespace {self._namespace!r} of "
                f"{self._connection.url}: see `shmq stream list`"
            )
        self._check(answer, name)

    def summaries(self) -> list[api.StreamSummary]:
        """See ``list_streams`` of :class:`shmq.api.Broker`."""
        answer = self._connection.call(
            lambda wire: wire.request(Type.STREAM_LIST, False, b""), again=True
        )
        if answer.status != Status.OK:
            raise error_of(answer, self._connection.url)
        return STREAMS.unpack(answer)

    def close(self) -> None:
        """Close every handle."""
        for stream in list(self._open):
            stream.close()

    def _make(self, name: str, wanted: StreamOptions, options: Mapping[str, Any]) -> _core.Answer:
        sent = {key: getattr(wanted, key) for key in options}
        return self._ask(Type.STREAM_CREATE, name, StreamCreate(sent).pack())

    def _exists(self, name: str, wanted: StreamOptions) -> errors.ShmqError:
        try:
            differences = self.attached(name).options.differences(wanted)
        except errors.ShmqError:
            differences = {}
        told = ", ".join(
            f"{key} is {has!r}, not {asked!r}" for key, (has, asked) in differences.items()
        )
        return errors.StreamExists(
            f"stream {name!r} exists with other options{told and ': ' + told}; use it as it is, "
            f"or delete it first"
        )

    def _check_made(self, answer: _core.Answer, name: str) -> None:
        if answer.status == Status.NO_QUEUE:  # no right to create: the answer tells no more
            raise errors.NoSuchStream(
                f"there is no stream {name!r} for this token in namespace {self._namespace!r} of "
                f"{self._connection.url}, and it may make none of that name"
            )
        self._check(answer, name)

    def _check(self, answer: _core.Answer, name: str) -> None:
        if answer.status != Status.OK:
            raise error_of(answer, f"stream {name!r} of {self._connection.url}")

    def _ask(self, kind: int, name: str, rest: bytes = b"") -> _core.Answer:
        payload = pack_name(name) + rest
        return self._connection.call(
            lambda wire: wire.request(kind, False, payload), again=kind == Type.STREAM_CREATE
        )

    @property
    def _namespace(self) -> str:
        greeting = self._connection.greeting
        return "" if greeting is None else greeting.namespace
