"""Conversion between records of a stream and Arrow's columns: see shmq/core/stream/columns.h."""

from typing import final

from typing_extensions import Buffer

_Texts = tuple[Buffer | None, Buffer, Buffer | None]

@final
class RecordColumns:
    """Records as columns: buffers in Arrow's format, which numpy reads as well."""

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
    def key_ends(self) -> bytes: ...
    @property
    def header_ends(self) -> bytes: ...
    @property
    def values(self) -> bytes: ...
    @property
    def keys(self) -> bytes: ...
    @property
    def headers(self) -> bytes: ...
    @property
    def has_key(self) -> bytes | None: ...

def columns_of(block: Buffer, start: int, end: int) -> RecordColumns | None: ...
def pack_columns(
    values: _Texts,
    keys: _Texts | None,
    headers: _Texts | None,
    codec: int | Buffer,
    start: int,
    end: int,
    *,
    max_bytes: int = ...,
) -> tuple[bytes, int]: ...
