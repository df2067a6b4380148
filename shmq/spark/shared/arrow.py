"""A run of messages as Arrow batches, without copies where the columns allow it."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from shmq.api.columns import REASONS, STATES
from shmq.codec.codecs import CODECS, OTHER, unpack_properties

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shmq.api import Columns

__all__ = ["Batches", "constant", "header_value", "plain", "words"]

#: How many numbers a word can have: the values of a byte.
_NUMBERS: Final = 256


def plain(buffer: Any, count: int, kind: pa.DataType) -> pa.Array:
    """An array over the buffer's numbers, none of them null."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(buffer)])


def constant(text: bytes, count: int, kind: pa.DataType) -> pa.Array:
    """The same text in every row."""
    offsets = np.arange(count + 1, dtype=np.int32) * len(text)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text * count)]
    return pa.Array.from_buffers(kind, count, buffers)


def words(
    numbers: np.ndarray[Any, Any], names: Mapping[int, str | None], kind: pa.DataType
) -> pa.Array:
    """The word for each number below 256; null for a number without a word."""
    count = len(numbers)
    if count and (numbers == numbers[0]).all():
        word = names.get(int(numbers[0]))
        return constant(word.encode(), count, kind) if word else pa.nulls(count, kind)
    table = pa.array([names.get(number) for number in range(_NUMBERS)], kind)
    return table.take(pa.array(numbers))


#: How many distinct unpacked properties are cached.
_ALIKE: Final = 4096

Properties = Mapping[str, Any]


class Batches:
    """Makes the batches of one queue, in the columns of a schema and in their order."""

    def __init__(self, schema: pa.Schema, topic: str) -> None:
        self._schema = schema
        self._topic = topic.encode()

    @classmethod
    def for_spark(cls, schema: StructType, topic: str) -> Self:
        """Batches with exactly the Arrow schema that Spark derives from its own schema."""
        return cls(to_arrow_schema(schema, timezone="UTC"), topic)

    def batch(self, run: Columns, states: frozenset[int] | None = None) -> pa.RecordBatch:
        """The run as a batch; with ``states``, given as numbers, only messages in these states."""
        made = _Making(run, self._topic)
        arrays = [made.column(field.name, field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if states is None:
            return batch
        wanted = np.isin(made.numbers(run.state, np.uint8), list(states))
        return batch if wanted.all() else batch.filter(pa.array(wanted))


class _Making:
    """One batch in the making: the data that its columns share."""

    def __init__(self, run: Columns, topic: bytes) -> None:
        self._run = run
        self._count = run.count
        self._topic = topic
        self._properties: list[Properties] | None = None

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """The column of that name, with the type that the schema has."""
        return _MAKERS[name](self, kind)

    def numbers(self, column: memoryview, kind: Any) -> np.ndarray[Any, Any]:
        """A column of numbers as a NumPy array, without a copy."""
        return np.frombuffer(column, dtype=kind, count=self._count)

    def plain(self, column: memoryview, kind: pa.DataType) -> pa.Array:
        """A column of numbers, none of them null, without a copy."""
        return plain(column, self._count, kind)

    def moments(self, column: memoryview, kind: pa.DataType) -> pa.Array:
        """A column of times, where 0 is null, without a copy."""
        there = self.numbers(column, np.int64) != 0
        if there.all():
            return self.plain(column, kind)
        bits = pa.py_buffer(np.packbits(there, bitorder="little"))
        return pa.Array.from_buffers(kind, self._count, [bits, pa.py_buffer(column)])

    def values(self, kind: pa.DataType) -> pa.Array:
        """The bodies, without a copy."""
        run = self._run
        parts = [None, pa.py_buffer(run.body_offsets), pa.py_buffer(run.bodies)]
        return pa.Array.from_buffers(kind, self._count, parts)

    def zeros(self, kind: pa.DataType) -> pa.Array:
        return self.plain(memoryview(bytes(4 * self._count)), kind)

    def topics(self, kind: pa.DataType) -> pa.Array:
        return constant(self._topic, self._count, kind)

    def words(
        self, column: memoryview, names: Mapping[int, str | None], kind: pa.DataType
    ) -> pa.Array:
        """The word for each number; null for a number without a word."""
        return words(self.numbers(column, np.uint8), names, kind)

    def codecs(self, kind: pa.DataType) -> pa.Array:
        """The codec of each message; a codec without a number is named in the properties."""
        if not (self.numbers(self._run.codec, np.uint8) == OTHER).any():
            return self.words(self._run.codec, _CODECS, kind)
        numbers = self.numbers(self._run.codec, np.uint8)
        named = zip(numbers.tolist(), self.properties(), strict=True)
        return pa.array([_CODECS.get(n) or each.get("codec") for n, each in named], kind)

    def of_properties(self, value: Callable[[Properties], Any], kind: pa.DataType) -> pa.Array:
        """A value from each message's properties; null if it has none."""
        if not len(self._run.metas):
            return pa.nulls(self._count, kind)
        return pa.array(map(value, self.properties()), kind, size=self._count)

    def properties(self) -> list[Properties]:
        """The properties of each message; equal ones are unpacked once."""
        if self._properties is None:
            known: dict[bytes, Properties] = {b"": {}}
            metas = bytes(self._run.metas)
            offsets = np.frombuffer(self._run.meta_offsets, np.int32, self._count + 1).tolist()
            found = []
            for start, end in itertools.pairwise(offsets):
                packed = metas[start:end]
                each = known.get(packed)
                if each is None:
                    each = unpack_properties(packed)
                    if len(known) < _ALIKE:
                        known[packed] = each
                found.append(each)
            self._properties = found
        return self._properties

    def dead_reasons(self, kind: pa.DataType) -> pa.Array:
        """Why each message is dead, from its dead letter or, if it is dying, its own state."""
        letters = self.of_properties(lambda each: _letter(each).get("reason"), kind)
        if not self.numbers(self._run.reason, np.uint8).any():
            return letters
        return letters.fill_null(self.words(self._run.reason, _REASONS, kind))

    def dead_moments(self, kind: pa.DataType) -> pa.Array:
        """When each message died, from its dead letter or, if it is dying, its own state."""
        letters = self.of_properties(_died_at, pa.int64()).cast(kind)
        return letters.fill_null(self.moments(self._run.dead_at, kind))


def header_value(value: Any) -> bytes | None:
    """A header's value as bytes: text in UTF-8, bytes as they are, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    text = json.dumps(_keyed(value), ensure_ascii=False, default=_as_json)
    return text.encode("utf-8", "surrogatepass")


def _keyed(value: Any) -> Any:
    """The value, with the keys of its maps made valid for JSON."""
    if isinstance(value, list):
        return [_keyed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key if isinstance(key, str | int | float | None) else _as_json(key): _keyed(each)
        for key, each in value.items()
    }


def _as_json(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _headers(properties: Properties) -> list[dict[str, Any]] | None:
    headers = properties.get("headers")
    if not headers:
        return None
    return [{"key": str(key), "value": header_value(value)} for key, value in headers.items()]


def _key(properties: Properties) -> bytes | None:
    group = properties.get("group")
    return None if group is None else group.encode("utf-8", "surrogatepass")


def _letter(properties: Properties) -> Properties:
    letter: Properties = properties.get("dead") or {}
    return letter


def _died_at(properties: Properties) -> int | None:
    at = _letter(properties).get("at")
    return None if at is None else int(at) * 1000


_STATES: Final[Mapping[int, str | None]] = MappingProxyType(dict(enumerate(STATES)))
_REASONS: Final[Mapping[int, str | None]] = MappingProxyType(dict(enumerate(REASONS)))
_CODECS: Final[Mapping[int, str | None]] = MappingProxyType(dict(enumerate(CODECS)))

_Maker = Callable[[_Making, pa.DataType], pa.Array]

#: The function that makes each column of :data:`shmq.spark.shared.columns.COLUMNS`.
_MAKERS: Final[Mapping[str, _Maker]] = MappingProxyType(
    {
        "key": lambda m, kind: m.of_properties(_key, kind),
        "value": lambda m, kind: m.values(kind),
        "topic": lambda m, kind: m.topics(kind),
        "partition": lambda m, kind: m.zeros(kind),
        "offset": lambda m, kind: m.plain(m._run.sequence, kind),
        "timestamp": lambda m, kind: m.plain(m._run.put_at, kind),
        "timestampType": lambda m, kind: m.zeros(kind),
        "headers": lambda m, kind: m.of_properties(_headers, kind),
        "priority": lambda m, kind: m.plain(m._run.priority, kind),
        "delivery_count": lambda m, kind: m.plain(m._run.deliveries, kind),
        "state": lambda m, kind: m.words(m._run.state, _STATES, kind),
        "codec": lambda m, kind: m.codecs(kind),
        "correlation_id": lambda m, kind: m.of_properties(lambda each: each.get("corr"), kind),
        "reply_to": lambda m, kind: m.of_properties(lambda each: each.get("reply_to"), kind),
        "visible_at": lambda m, kind: m.moments(m._run.visible_at, kind),
        "lease_until": lambda m, kind: m.moments(m._run.lease_until, kind),
        "expires_at": lambda m, kind: m.moments(m._run.expires, kind),
        "dead_reason": lambda m, kind: m.dead_reasons(kind),
        "dead_queue": lambda m, kind: m.of_properties(
            lambda each: _letter(each).get("queue"), kind
        ),
        "dead_deliveries": lambda m, kind: m.of_properties(
            lambda each: _letter(each).get("deliveries"), kind
        ),
        "dead_at": lambda m, kind: m.dead_moments(kind),
    }
)
