"""Records of a stream as columns, as Arrow has them, and back: see shmq/core/stream/columns.h."""

from typing import final

from typing_extensions import Buffer

#: What an array of Arrow's is, of texts or binaries, without an offset: a bit for each item,
#: the lowest first (None: all are there); the ends, signed 32-bit, one more than items; and
#: the bytes (None: there are none).
_Texts = tuple[Buffer | None, Buffer, Buffer | None]

@final
class RecordColumns:
    """Records as columns: buffers as Arrow has them, which numpy takes as well.

    Numbers are one for each record, but for the ends, which have one more: value i goes from
    ``value_ends[i]`` to ``value_ends[i + 1]`` of ``values``, and so do keys and headers.
    """

    @property
    def count(self) -> int: ...
    @property
    def offsets(self) -> bytes: ...
    @property
    def timestamps(self) -> bytes: ...
    @property
    def codecs(self) -> bytes: ...
    @property
    def value_ends(self) -> bytes: ...
    @property
    def values(self) -> bytes: ...
    @property
    def key_ends(self) -> bytes: ...
    @property
    def keys(self) -> bytes: ...
    @property
    def has_key(self) -> bytes | None: ...
    @property
    def header_ends(self) -> bytes: ...
    @property
    def headers(self) -> bytes: ...

def columns_of(block: Buffer, start: int, end: int) -> RecordColumns | None:
    """The records of a block of entries, of offsets from ``start`` up to ``end``, as columns.

    None where some of them are compressed: these have to be expanded before. Raises ValueError
    for bytes that are no entries, or whose texts are more than 2 GiB.
    """

def pack_columns(
    values: _Texts,
    keys: _Texts | None,
    headers: _Texts | None,
    codec: int | Buffer,
    start: int,
    end: int,
    *,
    max_bytes: int = ...,
) -> tuple[bytes, int]:
    """Rows from ``start`` up to ``end`` as a block for ``append_block``, and where that ended.

    Headers are a msgpack map each, or no bytes; the codec is the number of all, or a byte for
    each. The block has ``max_bytes`` at most (1 MiB), or one row. Raises ValueError for ends
    that contradict their bytes.
    """
