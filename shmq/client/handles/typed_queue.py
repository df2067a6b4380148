"""Queues and streams whose bodies are checked against a schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from shmq import api
from shmq.client.handles.producer import Producer
from shmq.errors import SchemaError
from shmq.lazy_imports import late_imports
from shmq.model.schema.check import checker
from shmq.native import _stream

if TYPE_CHECKING:
    from shmq.api.keywords import ProducerKeywords

#: The header that holds the version of the schema against which a message was checked.
VERSION = "shmq-schema"


class _Bodies:
    """The bodies that one schema version of a queue or a stream allows."""

    def __init__(self, schema: api.SchemaVersion, kind: type | None) -> None:
        self._name = schema.name
        self.version = schema.version
        self._kind = kind
        self._check = checker(schema.name, schema.version, schema.schema)

    def plain(self, body: Any) -> Any:
        """The body as a msgpack value, checked."""
        if self._kind is not None and isinstance(body, self._kind):
            with late_imports:
                import msgspec  # noqa: PLC0415 - of the extra "schemas"; it made the schema

            body = msgspec.to_builtins(body)
        self._check(body)
        return body

    def read(self, body: Any) -> Any:
        """A received body, checked, as the schema's type."""
        self._check(body)
        if self._kind is None:
            return body
        with late_imports:
            import msgspec  # noqa: PLC0415 - of the extra "schemas"; it made the schema

        try:
            return msgspec.convert(body, self._kind)
        except msgspec.ValidationError as error:
            raise SchemaError(
                f"a body of {self._name!r} is not a {self._kind.__name__}: {error}", self._name
            ) from error

    def headers(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """The given headers and the one that holds the version."""
        return {**(given or {}), VERSION: self.version}


class TypedQueue(api.TypedQueue[Any]):
    """Implements :class:`shmq.api.TypedQueue`."""

    def __init__(self, queue: api.Queue, bodies: _Bodies) -> None:
        self._queue = queue
        self._bodies = bodies

    @property
    def queue(self) -> api.Queue:
        return self._queue

    @property
    def version(self) -> int:
        return self._bodies.version

    def check(self, body: Any) -> None:
        self._bodies.plain(body)

    def _add_headers(self, given: dict[str, Any]) -> dict[str, Any]:
        headers = self._bodies.headers(given.pop("headers", None))
        return {"codec": "msgpack", **given, "headers": headers}

    def put(
        self, body: Any, block: bool | None = None, timeout: float | None = None, **properties: Any
    ) -> api.Put:
        plain = self._bodies.plain(body)
        return self._queue.put(plain, block, timeout, **self._add_headers(properties))

    async def aput(self, body: Any, timeout: float | None = None, **properties: Any) -> api.Put:
        plain = self._bodies.plain(body)
        return await self._queue.aput(plain, timeout, **self._add_headers(properties))

    def put_many(
        self,
        bodies: Iterable[Any],
        block: bool | None = None,
        timeout: float | None = None,
        **properties: Any,
    ) -> int:
        plain = [self._bodies.plain(body) for body in bodies]
        return self._queue.put_many(plain, block, timeout, **self._add_headers(properties))

    def body(self, message: api.Message) -> Any:
        return self._bodies.read(message.body)


class TypedStream(api.TypedStream[Any]):
    """Implements :class:`shmq.api.TypedStream`."""

    def __init__(self, stream: api.Stream, bodies: _Bodies) -> None:
        self._stream = stream
        self._bodies = bodies

    @property
    def stream(self) -> api.Stream:
        return self._stream

    @property
    def version(self) -> int:
        return self._bodies.version

    def check(self, value: Any) -> None:
        self._bodies.plain(value)

    def append(
        self, value: Any, *, headers: Mapping[str, Any] | None = None, **how: Any
    ) -> api.Appended:
        plain, more = self._bodies.plain(value), self._bodies.headers(headers)
        return self._stream.append(plain, headers=more, **{"codec": "msgpack", **how})

    def append_many(
        self,
        values: Iterable[Any],
        *,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        **how: Any,
    ) -> list[api.AppendedRange]:
        _stream.check_many(values)
        plain = [self._bodies.plain(value) for value in values]
        _stream.check_each("headers", headers, len(plain))
        given = [None] * len(plain) if headers is None else headers
        more = [self._bodies.headers(each) for each in given]
        return self._stream.append_many(plain, headers=more, **{"codec": "msgpack", **how})

    def producer(self, **options: Unpack[ProducerKeywords]) -> api.Producer:
        return _TypedProducer(self._stream, self._bodies, {"codec": "msgpack", **options})

    def body(self, record: api.Record) -> Any:
        return self._bodies.read(record.body)


class _TypedProducer(Producer):
    """A producer that refuses values that do not match the schema."""

    def __init__(self, stream: api.Stream, bodies: _Bodies, options: dict[str, Any]) -> None:
        super().__init__(stream, **options)
        self._bodies = bodies

    def send(
        self,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
    ) -> int:
        plain, more = self._bodies.plain(value), self._bodies.headers(headers)
        return super().send(plain, key=key, headers=more, partition=partition)


def typed(
    opened: api.Queue | api.Stream, schema: api.SchemaVersion, kind: type | None
) -> TypedQueue | TypedStream:
    """The queue or the stream, checked by the schema, with bodies read as ``kind``."""
    bodies = _Bodies(schema, kind)
    if isinstance(opened, api.Stream):
        return TypedStream(opened, bodies)
    return TypedQueue(opened, bodies)
