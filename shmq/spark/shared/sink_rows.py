"""Turns Arrow batches into messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import shmq
from shmq.errors import InvalidOption

if TYPE_CHECKING:
    from shmq.spark.shared.columns import SinkColumns

__all__ = [
    "Properties",
    "Rows",
    "bodies_of",
    "by_queue",
    "headers_of",
    "is_text",
    "parts_by_topic",
]

#: The arguments of ``Queue.put`` for one body, by name.
Properties = dict[str, Any]

#: The codec of text if no column names the codec.
_TEXT: Final = "text"

#: The types of text, each with the binary type of the same bytes.
_TEXTS: Final = MappingProxyType({pa.string(): pa.binary(), pa.large_string(): pa.large_binary()})


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Messages for one queue: their bodies, and the properties of each.

    The bodies are encoded bytes, whatever type the column had.
    """

    bodies: pa.Array
    #: The codec of all bodies; None: bytes, or the codec in each body's properties.
    codec: str | None
    #: The arguments of ``Queue.put`` for each body; None: no body has any but the codec.
    properties: list[Properties] | None

    def __len__(self) -> int:
        return len(self.bodies)

    def prepared_puts(self) -> shmq.Rows | list[tuple[bytes, Properties]]:
        """The messages for ``StagedPublisher.stage``, uncopied if they have only bodies."""
        if self.properties is not None:
            return list(zip(self.bodies.to_pylist(), self.properties, strict=True))
        if self.bodies.type != pa.binary():
            alike: Properties = {} if self.codec is None else {"codec": self.codec}
            return [(body, alike) for body in self.bodies.to_pylist()]
        _, offsets, data = self.bodies.buffers()
        first, count = self.bodies.offset, len(self.bodies)
        begins = memoryview(offsets).cast("B")[4 * first : 4 * (first + count + 1)]
        return shmq.Rows(memoryview(data or b""), begins.cast("i"), self.codec)


def by_queue(
    batch: pa.RecordBatch, columns: SinkColumns, topic: str | None
) -> Iterator[tuple[str, Rows]]:
    """The rows of a batch by their target queue, in their order.

    Raises :class:`~shmq.InvalidOption` for a row without a value or a queue, and for a key
    that is not text.
    """
    for name, part in parts_by_topic(batch, columns, topic):
        yield name, _rows(part, columns)


def parts_by_topic(
    batch: pa.RecordBatch, columns: SinkColumns, topic: str | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows by their target queue or stream. Raises :class:`~shmq.InvalidOption`."""
    if columns.queue is None:
        assert topic is not None
        yield topic, batch
        return
    queues = batch.column(columns.queue)
    if queues.null_count:
        raise InvalidOption(
            f"the column topic is null in {queues.null_count:,} of {len(queues):,} rows: fill it, "
            f"or give .option('topic', NAME)"
        )
    names = pc.unique(queues)
    for name in names:
        yield name.as_py(), batch if len(names) == 1 else batch.filter(pc.equal(queues, name))


def bodies_of(batch: pa.RecordBatch, columns: SinkColumns) -> pa.Array:
    """The column ``value``. Raises :class:`~shmq.InvalidOption` if it is null in any row."""
    bodies = batch.column(columns.body)
    if bodies.null_count:
        raise InvalidOption(
            f"the column value is null in {bodies.null_count:,} of {len(bodies):,} rows: a message "
            f"has a body, so drop those rows or fill them: coalesce(value, '')"
        )
    return bodies


def _rows(batch: pa.RecordBatch, columns: SinkColumns) -> Rows:
    bodies = bodies_of(batch, columns)
    named = {argument: batch.column(at) for argument, at in columns.arguments}
    codec = None
    if is_text(bodies.type):
        bodies = bodies.cast(_TEXTS[bodies.type])
        if "codec" in named:
            named["codec"] = named["codec"].fill_null(_TEXT)
        else:
            codec = _TEXT
    lists = {name: _values(name, column) for name, column in named.items()}
    lists = {name: values for name, values in lists.items() if any(v is not None for v in values)}
    if not lists:
        return Rows(bodies, codec, None)
    if codec is not None:
        lists["codec"] = [codec] * len(bodies)
    return Rows(bodies, None, _properties(tuple(lists), list(lists.values())))


def _properties(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[Properties]:
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]


def _values(name: str, column: pa.Array) -> Sequence[Any]:
    """The values of one argument of a put; None for a row without a value."""
    read = _READERS.get(name)
    return _listed(column) if read is None else read(column)


def _listed(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _groups(column: pa.Array) -> Sequence[str | None]:
    try:
        groups = column if is_text(column.type) else column.cast(pa.large_string())
    except pa.ArrowInvalid:
        raise InvalidOption(
            "the column key is not UTF-8 in some row, and a message's group is text: make text of "
            "it, as hex(key) or base64(key)"
        ) from None
    return _listed(groups)


def _seconds(column: pa.Array) -> Sequence[float | None]:
    if pa.types.is_duration(column.type):
        micros = _listed(column.cast(pa.duration("us")).cast(pa.int64()))
        return [None if each is None else each / 1e6 for each in micros]
    return _listed(column.cast(pa.float64()))


def headers_of(column: pa.Array) -> Sequence[Mapping[str, Any] | None]:
    """The headers of each row, by name. Raises :class:`~shmq.InvalidOption`."""
    rows: list[Any] = column.to_pylist()
    if not pa.types.is_map(column.type):
        rows = [each and [tuple(pair.values()) for pair in each] for each in rows]
    return [_as_headers(each) if each else None for each in rows]


def _as_headers(pairs: Sequence[tuple[Any, Any]]) -> Mapping[str, Any]:
    """The headers of one message; a value in valid UTF-8 becomes text, as it was when put."""
    headers = {key: _as_text(value) for key, value in pairs}
    if len(headers) < len(pairs) or None in headers:
        names = ", ".join(repr(key) for key, _ in pairs)
        raise InvalidOption(
            f"headers have names, and each one once, not {names}: a message's headers are a map"
        )
    return headers


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def is_text(kind: pa.DataType) -> bool:
    """Whether the type is text, not bytes."""
    return kind in _TEXTS


_READERS: Final = MappingProxyType(
    {"group": _groups, "delay": _seconds, "ttl": _seconds, "headers": headers_of}
)
