"""Arrow's batches as the messages that they are to become."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from shmq.errors import InvalidOption

if TYPE_CHECKING:
    from shmq.spark.sink_columns import SinkColumns

__all__ = ["Properties", "Rows", "by_queue"]

#: The arguments of ``Queue.put`` for one body, by name.
Properties = dict[str, Any]

#: How text is said to be text, where no column says the codec.
_TEXT: Final = "text"

#: The types that text has, each with the one of the same bytes.
_TEXTS: Final = MappingProxyType({pa.string(): pa.binary(), pa.large_string(): pa.large_binary()})


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Messages for one queue: their bodies, and the properties of each.

    The bodies are bytes as their codecs have them, whatever type the column had.
    """

    bodies: pa.Array
    #: The arguments of ``Queue.put`` for each body; None: none for any.
    properties: list[Properties] | None

    def __len__(self) -> int:
        return len(self.bodies)

    def parcels(self) -> list[bytes] | list[tuple[bytes, Properties]]:
        """The bodies, each with its properties where there are any."""
        bodies: list[bytes] = self.bodies.to_pylist()
        if self.properties is None:
            return bodies
        return list(zip(bodies, self.properties, strict=True))


def by_queue(
    batch: pa.RecordBatch, columns: SinkColumns, topic: str | None
) -> Iterator[tuple[str, Rows]]:
    """The rows of a batch by the queue that they are for, in their order.

    Raises :class:`~shmq.InvalidOption` for a row without a value or a queue, and for one whose
    key is no text.
    """
    if columns.queue is None:
        assert topic is not None
        yield topic, _rows(batch, columns)
        return
    queues = batch.column(columns.queue)
    if queues.null_count:
        raise InvalidOption(
            f"the column topic is null in {queues.null_count:,} of {len(queues):,} rows: fill it, "
            f"or give .option('topic', NAME)"
        )
    names = pc.unique(queues)
    for name in names:
        part = batch if len(names) == 1 else batch.filter(pc.equal(queues, name))
        yield name.as_py(), _rows(part, columns)


def _rows(batch: pa.RecordBatch, columns: SinkColumns) -> Rows:
    bodies = batch.column(columns.body)
    if bodies.null_count:
        raise InvalidOption(
            f"the column value is null in {bodies.null_count:,} of {len(bodies):,} rows: a message "
            f"has a body, so drop those rows or fill them: coalesce(value, '')"
        )
    named = {argument: batch.column(at) for argument, at in columns.arguments}
    if _is_text(bodies.type):
        bodies = bodies.cast(_TEXTS[bodies.type])
        codecs = named.get("codec", pa.nulls(len(bodies), pa.string()))
        named["codec"] = codecs.fill_null(_TEXT)
    lists = {name: _values(name, column) for name, column in named.items()}
    lists = {name: values for name, values in lists.items() if any(v is not None for v in values)}
    if not lists:
        return Rows(bodies, None)
    return Rows(bodies, _properties(tuple(lists), list(lists.values())))


def _properties(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[Properties]:
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]


def _values(name: str, column: pa.Array) -> Sequence[Any]:
    """The values of one argument of a put; None where there is none."""
    read = _READERS.get(name)
    return _listed(column) if read is None else read(column)


def _listed(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _groups(column: pa.Array) -> Sequence[str | None]:
    try:
        groups = column if _is_text(column.type) else column.cast(pa.large_string())
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


def _headers(column: pa.Array) -> Sequence[Mapping[str, Any] | None]:
    rows: list[Any] = column.to_pylist()
    if not pa.types.is_map(column.type):
        rows = [each and [tuple(pair.values()) for pair in each] for each in rows]
    return [_as_headers(each) if each else None for each in rows]


def _as_headers(pairs: Sequence[tuple[Any, Any]]) -> Mapping[str, Any]:
    """The headers of one message: values in UTF-8 are text, as they were when they were put."""
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


def _is_text(kind: pa.DataType) -> bool:
    return kind in _TEXTS


_READERS: Final = MappingProxyType(
    {"group": _groups, "delay": _seconds, "ttl": _seconds, "headers": _headers}
)
