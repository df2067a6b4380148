"""Queues and streams whose bodies are checked by a schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from shmq import contract
from shmq.client.producing import Producer
from shmq.core import _log
from shmq.errors import SchemaError
from shmq.schemas.check import checker

if TYPE_CHECKING:
    from shmq.contract.keywords import ProducerKeywords

__all__ = ["VERSION", "TypedQueue", "TypedStream", "typed"]

#: The header that says by which version of its schema a message was checked.
VERSION = "shmq-schema"


class _Bodies:
    """The bodies that one version of a schema allows, of a queue or a stream."""

    def __init__(self, schema: contract.SchemaVersion, kind: type | None) -> None:
        self._name = schema.name
        self.version = schema.version
        self._kind = kind
        self._check = checker(schema.name, schema.version, schema.schema)

    def plain(self, body: Any) -> Any:
        """The body as msgpack holds it, checked."""
        if self._kind is not None and isinstance(body, self._kind):
            import msgspec  # noqa: PLC0415 - of the extra "schemas"; it made the schema

            body = msgspec.to_builtins(body)
        self._check(body)
        return body

    def read(self, body: Any) -> Any:
        """A body that came, checked, as the schema's type."""
        self._check(body)
        if self._kind is None:
            return body
        import msgspec  # noqa: PLC0415 - of the extra "schemas"; it made the schema

        try:
            return msgspec.convert(body, self._kind)
        except msgspec.ValidationError as error:
            raise SchemaError(
                f"a body of {self._name!r} is no {self._kind.__name__}: {error}", self._name
            ) from error

    def headers(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Those, and the one that says the version."""
        return {**(given or {}), VERSION: self.version}


class TypedQueue(contract.TypedQueue):
    """See :class:`shmq.contract.TypedQueue`."""

    def __init__(self, queue: contract.Queue, bodies: _Bodies) -> None:
        self._queue = queue
        self._bodies = bodies

    @property
    def queue(self) -> contract.Queue:
        """See :class:`shmq.contract.TypedQueue`."""
        return self._queue

    @property
    def version(self) -> int:
        """See :class:`shmq.contract.TypedQueue`."""
        return self._bodies.version

    def check(self, body: Any) -> None:
        """See :class:`shmq.contract.TypedQueue`."""
        self._bodies.plain(body)

    def _properties(self, given: dict[str, Any]) -> dict[str, Any]:
        headers = self._bodies.headers(given.pop("headers", None))
        return {"codec": "msgpack", **given, "headers": headers}

    def put(
        self, body: Any, block: bool | None = None, timeout: float | None = None, **properties: Any
    ) -> contract.Put:
        """See :class:`shmq.contract.TypedQueue`."""
        plain = self._bodies.plain(body)
        return self._queue.put(plain, block, timeout, **self._properties(properties))

    async def aput(
        self, body: Any, timeout: float | None = None, **properties: Any
    ) -> contract.Put:
        """See :class:`shmq.contract.TypedQueue`."""
        plain = self._bodies.plain(body)
        return await self._queue.aput(plain, timeout, **self._properties(properties))

    def put_many(
        self,
        bodies: Iterable[Any],
        block: bool | None = None,
        timeout: float | None = None,
        **properties: Any,
    ) -> int:
        """See :class:`shmq.contract.TypedQueue`."""
        plain = [self._bodies.plain(body) for body in bodies]
        return self._queue.put_many(plain, block, timeout, **self._properties(properties))

    def body(self, message: contract.Message) -> Any:
        """See :class:`shmq.contract.TypedQueue`."""
        return self._bodies.read(message.body)


class TypedStream(contract.TypedStream):
    """See :class:`shmq.contract.TypedStream`."""

    def __init__(self, stream: contract.Stream, bodies: _Bodies) -> None:
        self._stream = stream
        self._bodies = bodies

    @property
    def stream(self) -> contract.Stream:
        """See :class:`shmq.contract.TypedStream`."""
        return self._stream

    @property
    def version(self) -> int:
        """See :class:`shmq.contract.TypedStream`."""
        return self._bodies.version

    def check(self, value: Any) -> None:
        """See :class:`shmq.contract.TypedStream`."""
        self._bodies.plain(value)

    def append(
        self, value: Any, *, headers: Mapping[str, Any] | None = None, **how: Any
    ) -> contract.Appended:
        """See :class:`shmq.contract.TypedStream`."""
        plain, more = self._bodies.plain(value), self._bodies.headers(headers)
        return self._stream.append(plain, headers=more, **{"codec": "msgpack", **how})

    def append_many(
        self,
        values: Iterable[Any],
        *,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        **how: Any,
    ) -> list[contract.AppendedRange]:
        """See :class:`shmq.contract.TypedStream`."""
        _log.check_many(values)
        plain = [self._bodies.plain(value) for value in values]
        _log.check_each("headers", headers, len(plain))
        given = [None] * len(plain) if headers is None else headers
        more = [self._bodies.headers(each) for each in given]
        return self._stream.append_many(plain, headers=more, **{"codec": "msgpack", **how})

    def producer(self, **options: Unpack[ProducerKeywords]) -> contract.Producer:
        """See :class:`shmq.contract.TypedStream`."""
        return _TypedProducer(self._stream, self._bodies, {"codec": "msgpack", **options})

    def body(self, record: contract.Record) -> Any:
        """See :class:`shmq.contract.TypedStream`."""
        return self._bodies.read(record.body)


class _TypedProducer(Producer):
    """A producer that refuses what is not as the schema says."""

    def __init__(self, stream: contract.Stream, bodies: _Bodies, options: dict[str, Any]) -> None:
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
        """See :class:`shmq.contract.TypedStream`."""
        plain, more = self._bodies.plain(value), self._bodies.headers(headers)
        return super().send(plain, key=key, headers=more, partition=partition)


def typed(
    opened: contract.Queue | contract.Stream, schema: contract.SchemaVersion, kind: type | None
) -> TypedQueue | TypedStream:
    """The queue or the stream with bodies that the schema allows, read as ``kind``."""
    bodies = _Bodies(schema, kind)
    if isinstance(opened, contract.Stream):
        return TypedStream(opened, bodies)
    return TypedQueue(opened, bodies)
