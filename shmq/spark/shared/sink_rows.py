"""Turns Arrow batches into rows for a queue or a stream, without an object for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import shmq
from shmq.errors import InvalidOption
from shmq.model.codec.codecs import OTHER, PUT_ARGUMENTS
from shmq.native import _arrow
from shmq.native._core import codec_number

if TYPE_CHECKING:
    from shmq.spark.shared.columns import SinkColumns

#: The key in the properties of each argument of a put, in the order in which a put writes them.
_KEYS: Final = {argument: key.encode() for key, argument in PUT_ARGUMENTS.items()}

#: The types of texts and bytes whose buffers are read; the others are cast to one of them.
_READ: Final = (pa.string(), pa.binary())

_MS: Final = 1000


def by_queue(
    batch: pa.RecordBatch, columns: SinkColumns, topic: str | None
) -> Iterator[tuple[str, shmq.Rows]]:
    """The rows of a batch by their target queue, in their order.

    Raises :class:`~shmq.InvalidOption` for a row without a value or a queue, and for properties
    that no message can have.
    """
    for name, part in parts_by_topic(batch, columns, topic):
        yield name, _make_rows(part, columns)


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


def is_text(kind: pa.DataType) -> bool:
    """Whether the type is text, not bytes."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def buffers_of(column: pa.Array) -> tuple[Any, Any, Any, int]:
    """Texts or bytes as C reads them: bits, ends, bytes, and the place of the first.

    Raises :class:`~shmq.InvalidOption` for another type, and for more than 2 GiB.
    """
    if column.type not in _READ:
        column = _cast(column, pa.string() if is_text(column.type) else pa.binary())
    there, ends, data = column.buffers()
    return there, ends, data, column.offset


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidOption(f"a column of {column.type} cannot be {kind}: {error}") from None


def packed_headers(column: pa.Array) -> pa.Array | None:
    """The headers of each row as a msgpack map, or no bytes; None: no row has any.

    Raises :class:`~shmq.InvalidOption` for headers that are no map.
    """
    made = _pack([(None, "headers", column)], len(column))
    if made is None:
        return None
    return pa.Array.from_buffers(pa.binary(), len(column), [None, *map(pa.py_buffer, made)])


def _make_rows(batch: pa.RecordBatch, columns: SinkColumns) -> shmq.Rows:
    bodies = bodies_of(batch, columns)
    named = {argument: batch.column(at) for argument, at in columns.arguments}
    default = "text" if is_text(bodies.type) else "bytes"
    codec = _find_only_codec(named["codec"], default) if "codec" in named else default
    if codec is not None:
        named.pop("codec", None)
    given = [(_KEYS[name], name, named[name]) for name in _KEYS if name in named]
    made = _pack(given, len(batch))
    ends, maps = (None, None) if made is None else (made[0], made[1])
    codec = default if codec is None else codec
    return shmq.Rows(*_read_bodies(bodies), None if codec == "bytes" else codec, maps, ends)


def _read_bodies(column: pa.Array) -> tuple[memoryview, memoryview]:
    """The bytes of all bodies, and the offset of each."""
    _, ends, data, first = buffers_of(column)
    if not len(column):
        return memoryview(b""), memoryview(bytes(4)).cast("i")
    offsets = memoryview(ends).cast("B")[4 * first : 4 * (first + len(column) + 1)]
    return memoryview(data or b""), offsets.cast("i")


def _find_only_codec(column: pa.Array, default: str) -> str | None:
    """The codec of every row; None: they differ, or it has no number."""
    names = pc.unique(column.fill_null(default)).to_pylist() or [default]
    return names[0] if len(names) == 1 and codec_number(names[0]) != OTHER else None


def _pack(
    columns: Sequence[tuple[bytes | None, str, pa.Array]], count: int
) -> tuple[bytes, bytes] | None:
    """The maps of these columns, as ends and bytes; None: none of them has a value."""
    filled = [each for each in columns if each[2].null_count < count]
    if not filled:
        return None
    packed = [(key, *_map_column(name, column)) for key, name, column in filled]
    made = _arrow.pack_maps(packed, count)
    if isinstance(made, _arrow.MapFault):
        raise _make_refusal(made, *filled[made.column][1:])
    return made if made[1] else None


def _map_column(name: str, column: pa.Array) -> tuple[str, Any]:
    """The kind of a column, and its buffers."""
    if name == "headers":
        return "pairs", _read_pairs(column)
    if name == "priority":
        return "int", _read_numbers(column.cast(pa.int64()))
    if name in {"delay", "ttl"}:
        return "int", _read_numbers(_read_millis(name, column))
    return "text", buffers_of(column)


def _read_numbers(column: pa.Array) -> tuple[Any, Any, int]:
    there, data = column.buffers()
    return there, data, column.offset


def _read_millis(name: str, column: pa.Array) -> pa.Array:
    """Seconds or intervals in whole ms, rounded up. Raises :class:`~shmq.InvalidOption`."""
    if pa.types.is_duration(column.type):
        column = pc.divide(column.cast(pa.duration("us")).cast(pa.int64()).cast(pa.float64()), 1e6)
    seconds = column.cast(pa.float64())
    try:
        # Seconds in binary are a little more or less than what was meant: 0.3 s are 300 ms.
        return pc.ceil(pc.round(pc.multiply(seconds, float(_MS)), 6)).cast(pa.int64())
    except pa.ArrowInvalid:
        raise InvalidOption(
            f"the column {name} has a number of seconds that is not finite, or too large: "
            f"{_find_strangest(seconds)}"
        ) from None


def _find_strangest(seconds: pa.Array) -> float:
    numbers = seconds.drop_null().to_numpy()
    strange = numbers[~np.isfinite(numbers)]
    return float(strange[0] if len(strange) else np.abs(numbers).max())


def _read_pairs(column: pa.Array) -> tuple[Any, ...]:
    """Lists of pairs as C reads them. Raises :class:`~shmq.InvalidOption`."""
    if not (pa.types.is_list(column.type) or pa.types.is_map(column.type)):
        raise InvalidOption(
            f"the column headers is {column.type}, and must be a list of structs, or a map"
        )
    pairs = column.values
    if pairs.null_count and column.flatten().null_count:
        raise InvalidOption("the column headers has a list with null in it: drop it from the list")
    keys, values = pairs.field(0), pairs.field(1)
    there, ends = column.buffers()[:2]
    lists = (there, ends, column.offset)
    return lists, buffers_of(keys), buffers_of(values), len(pairs), not is_text(values.type)


def _make_refusal(fault: _arrow.MapFault, name: str, column: pa.Array) -> InvalidOption:
    if fault.fault == "names":
        pairs = column[fault.row].as_py()
        keys = [pair[0] if isinstance(pair, tuple) else next(iter(pair.values())) for pair in pairs]
        return InvalidOption(
            f"headers have names, and each one once, not {', '.join(map(repr, keys))}: a "
            f"message's headers are a map"
        )
    if name == "group":
        return InvalidOption(
            "the column key is not UTF-8 in some row, and a message's group is text: make text of "
            "it, as hex(key) or base64(key)"
        )
    return InvalidOption(
        f"the column {name} is not UTF-8 in row {fault.row} of a batch: make text of it, as "
        f"hex({name}) or base64({name})"
    )
