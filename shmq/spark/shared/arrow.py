"""Runs of messages as Arrow batches, without copies where the columns allow it.

:class:`Rows` has what the batches of queues and streams share; :class:`MessageRows` are those of
a queue, and of its files.
"""

from __future__ import annotations

import base64
import functools
import json
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgpack
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from shmq.api.columns import REASONS, STATES
from shmq.errors import ShmqError
from shmq.model.codec.codecs import CODECS, OTHER, unpack_properties
from shmq.native import _arrow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shmq.api import Columns

Words = Mapping[int, str | None]
Numbers = np.ndarray[Any, Any]

#: How many numbers a word can have: the values of a byte.
_NUMBERS: Final = 256

CODEC_WORDS: Final[Words] = MappingProxyType(dict(enumerate(CODECS)))
_STATES: Final[Words] = MappingProxyType(dict(enumerate(STATES)))
_REASONS: Final[Words] = MappingProxyType(dict(enumerate(REASONS)))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Exactly the Arrow schema that Spark derives from its own schema."""
    return to_arrow_schema(schema, timezone="UTC")


class Rows:
    """The rows of one batch, from which its columns are made."""

    #: The function that makes each column.
    MAKERS: ClassVar[Mapping[str, Callable[[Any, pa.DataType], pa.Array]]]

    def __init__(self, count: int, topic: str) -> None:
        self.count = count
        self.topic = topic

    def batch(self, schema: pa.Schema, wanted: Numbers | None = None) -> pa.RecordBatch:
        """The columns of the schema, in its order; with ``wanted`` the rows where it is true."""
        arrays = [self.MAKERS[field.name](self, field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return batch if wanted is None or wanted.all() else batch.filter(pa.array(wanted))

    def plain(self, buffer: Any, kind: pa.DataType) -> pa.Array:
        """A column of the buffer's numbers, none of them null."""
        return pa.Array.from_buffers(kind, self.count, [None, pa.py_buffer(buffer)])

    def constant(self, number: int, kind: pa.DataType) -> pa.Array:
        """The same 32-bit number in every row."""
        return self.plain(np.full(self.count, number, np.int32), kind)

    def topics(self, kind: pa.DataType) -> pa.Array:
        """The topic in every row."""
        return self.alike(self.topic, kind)

    def alike(self, word: str, kind: pa.DataType) -> pa.Array:
        """The same text in every row."""
        text = word.encode()
        ends = np.arange(self.count + 1, dtype=np.int32) * len(text)
        return self.texts((None, ends, text * self.count), kind)

    def words(self, numbers: Numbers, names: Words, kind: pa.DataType) -> pa.Array:
        """The word for each number below 256; null for a number without a word."""
        if self.count and (numbers == numbers[0]).all():
            word = names.get(int(numbers[0]))
            return self.alike(word, kind) if word else pa.nulls(self.count, kind)
        table = pa.array([names.get(number) for number in range(_NUMBERS)], kind)
        return table.take(pa.array(numbers))

    def texts(self, made: tuple[Any, Any, Any] | None, kind: pa.DataType) -> pa.Array:
        """Texts or bytes, given as bits, ends and bytes; None: there is none."""
        if made is None:
            return pa.nulls(self.count, kind)
        buffers = [None if each is None else pa.py_buffer(each) for each in made]
        return pa.Array.from_buffers(kind, self.count, buffers)

    def headers_of(self, ends: Any, maps: Any, key: bytes | None, kind: pa.DataType) -> pa.Array:
        """The headers in maps, or in the maps that are the values of ``key`` in these.

        Raises :class:`~shmq.ShmqError` for headers that are damaged.
        """
        made = _arrow.pairs_of(ends, maps, key, self._make_plain_headers) if len(maps) else None
        if made is None:
            return pa.nulls(self.count, kind)
        pair = kind.value_type
        texts = Rows(made.count, "")
        fields = [
            texts.texts((None, made.key_ends, made.keys), pair.field(0).type),
            texts.texts((made.has_value, made.value_ends, made.values), pair.field(1).type),
        ]
        pairs = pa.Array.from_buffers(pair, made.count, [None], children=fields)
        lists = [pa.py_buffer(made.there), pa.py_buffer(made.ends)]
        return pa.Array.from_buffers(kind, self.count, lists, children=[pairs])

    def named(self, row: int) -> str:
        """The row, as errors name it."""
        raise NotImplementedError

    def _make_plain_headers(self, packed: bytes, row: int) -> bytes:
        try:
            return _make_plain(packed)
        except Exception as error:  # msgpack's own errors, and unhashable keys
            raise ShmqError(
                f"the headers of {self.named(row)} are damaged: {error!r:.80}; read it without "
                f"the column 'headers', or from behind it"
            ) from error


@functools.lru_cache(4096)
def _make_plain(packed: bytes) -> bytes:
    """The map with texts as keys, and texts, bytes and nil as values: anything else as JSON."""
    headers = unpack_properties(packed)
    plain: bytes = msgpack.packb({str(key): _as_bytes(value) for key, value in headers.items()})
    return plain


def _as_bytes(value: Any) -> str | bytes | None:
    if value is None or isinstance(value, str | bytes):
        return value
    text = json.dumps(_make_valid(value), allow_nan=False, ensure_ascii=False, default=_as_json)
    return text.encode()


def _make_valid(value: Any) -> Any:
    """The value with keys and numbers that JSON holds: NaN and infinities become text."""
    if isinstance(value, list):
        return [_make_valid(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if not isinstance(value, dict):
        return value
    return {
        _make_valid(key)
        if isinstance(key, str | int | float | None)
        else _as_json(key): _make_valid(each)
        for key, each in value.items()
    }


def _as_json(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


class MessageRows(Rows):
    """Messages of one queue."""

    def __init__(self, run: Columns, topic: str) -> None:
        super().__init__(run.count, topic)
        self.run = run

    def named(self, row: int) -> str:
        return f"message {self.run.sequence[row]} of queue {self.topic!r}"

    def small(self, column: memoryview) -> Numbers:
        """A column of 8-bit numbers as a NumPy array, without a copy."""
        return np.frombuffer(column, np.uint8, self.count)

    def moments(self, column: memoryview, kind: pa.DataType) -> pa.Array:
        """A column of times, where 0 is null, without a copy."""
        there = np.frombuffer(column, np.int64, self.count) != 0
        if there.all():
            return self.plain(column, kind)
        bits = pa.py_buffer(np.packbits(there, bitorder="little"))
        return pa.Array.from_buffers(kind, self.count, [bits, pa.py_buffer(column)])

    def values(self, kind: pa.DataType) -> pa.Array:
        """The bodies, without a copy."""
        return self.texts((None, self.run.body_offsets, self.run.bodies), kind)

    def headers(self, kind: pa.DataType) -> pa.Array:
        """The headers of each message; null if it has none."""
        return self.headers_of(self.run.meta_offsets, self.run.metas, b"headers", kind)

    def property(self, key: bytes, kind: pa.DataType, outer: bytes | None = None) -> pa.Array:
        """A text of each message's properties, or of the map ``outer`` in them."""
        return self.texts(self._find(_arrow.texts_of, outer, key), kind)

    def number(self, key: bytes, outer: bytes) -> pa.Array:
        """A number in the map ``outer`` of each message's properties."""
        made = self._find(_arrow.ints_of, outer, key)
        if made is None:
            return pa.nulls(self.count, pa.int64())
        return pa.Array.from_buffers(pa.int64(), self.count, [*map(pa.py_buffer, made)])

    def _find(self, find: Callable[..., Any], outer: bytes | None, key: bytes) -> Any:
        run = self.run
        try:
            return find(run.meta_offsets, run.metas, outer, key) if len(run.metas) else None
        except ValueError as error:
            raise ShmqError(
                f"the properties of a message of queue {self.topic!r} are damaged: {error}"
            ) from error

    def codecs(self, kind: pa.DataType) -> pa.Array:
        """The codec of each message; a codec without a number is named in the properties."""
        numbers = self.small(self.run.codec)
        numbered = self.words(numbers, CODEC_WORDS, kind)
        named = (numbers == OTHER).any()
        return numbered.fill_null(self.property(b"codec", kind)) if named else numbered

    def dead_reasons(self, kind: pa.DataType) -> pa.Array:
        """Why each message is dead, from its dead letter or, if it is dying, its own state."""
        letters = self.property(b"reason", kind, b"dead")
        reasons = self.small(self.run.reason)
        return letters.fill_null(self.words(reasons, _REASONS, kind)) if reasons.any() else letters

    def dead_moments(self, kind: pa.DataType) -> pa.Array:
        """When each message died, from its dead letter or, if it is dying, its own state."""
        letters = self.number(b"at", b"dead").cast(pa.timestamp("ms", kind.tz)).cast(kind)
        return letters.fill_null(self.moments(self.run.dead_at, kind))

    def last_errors(self, kind: pa.DataType) -> pa.Array:
        """The error of each message's last delivery, from its dead letter or its own properties."""
        letters = self.property(b"line", kind, b"dead.error")
        return letters.fill_null(self.property(b"line", kind, b"error"))

    MAKERS = MappingProxyType(
        {
            "key": lambda m, kind: m.property(b"group", kind),
            "value": values,
            "topic": Rows.topics,
            "partition": lambda m, kind: m.constant(0, kind),
            "offset": lambda m, kind: m.plain(m.run.sequence, kind),
            "timestamp": lambda m, kind: m.plain(m.run.put_at, kind),
            "timestampType": lambda m, kind: m.constant(0, kind),
            "headers": headers,
            "priority": lambda m, kind: m.plain(m.run.priority, kind),
            "delivery_count": lambda m, kind: m.plain(m.run.deliveries, kind),
            "state": lambda m, kind: m.words(m.small(m.run.state), _STATES, kind),
            "codec": codecs,
            "correlation_id": lambda m, kind: m.property(b"corr", kind),
            "reply_to": lambda m, kind: m.property(b"reply_to", kind),
            "visible_at": lambda m, kind: m.moments(m.run.visible_at, kind),
            "lease_until": lambda m, kind: m.moments(m.run.lease_until, kind),
            "expires_at": lambda m, kind: m.moments(m.run.expires, kind),
            "dead_reason": dead_reasons,
            "dead_queue": lambda m, kind: m.property(b"queue", kind, b"dead"),
            "dead_deliveries": lambda m, kind: m.number(b"deliveries", b"dead").cast(kind),
            "dead_at": dead_moments,
            "last_error": last_errors,
        }
    )
