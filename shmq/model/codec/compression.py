"""Compresses and expands batches of records: LZ4 frames and Zstandard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shmq.api.options import check_one_of
from shmq.errors import ShmqError, Unsupported
from shmq.lazy_imports import late_imports

COMPRESSIONS: Final = ("lz4", "zstd")

#: The largest batch before compression, in bytes: nothing is expanded beyond it.
LARGEST: Final = 64 << 20


def compressor(name: str) -> Callable[[bytes], bytes]:
    """A function that compresses a batch, for one thread at a time.

    Raises :class:`~shmq.InvalidOption`, TypeError, and :class:`~shmq.Unsupported` if its
    library is not installed.
    """
    check_one_of("compression", name, COMPRESSIONS)
    compress: Callable[[bytes], bytes]
    compress = (
        _load_lz4().compress if name == "lz4" else _load_zstandard().ZstdCompressor().compress
    )
    return compress


def expand(name: str, packed: bytes, size: int) -> bytes:
    """Expand a batch of ``size`` bytes; takes no more memory than that for any input.

    Raises :class:`~shmq.ShmqError` for invalid bytes or another size, and
    :class:`~shmq.Unsupported` if the library is not installed.
    """
    if not 0 < size <= LARGEST:
        raise ShmqError(f"a batch of {size} bytes cannot be: it has 1 to {LARGEST}")
    return _expand_lz4(packed, size) if name == "lz4" else _expand_zstd(packed, size)


def _expand_lz4(packed: bytes, size: int) -> bytes:
    lz4 = _load_lz4()
    try:
        reader = lz4.LZ4FrameDecompressor()
        found: bytes = reader.decompress(packed, max_length=size)
    except RuntimeError as error:
        raise ShmqError(f"that is not an LZ4 frame: {error}") from error
    if len(found) != size or not reader.eof or reader.unused_data:
        raise ShmqError(f"the LZ4 frame is not one of {size} bytes")
    return found


def _expand_zstd(packed: bytes, size: int) -> bytes:
    zstd = _load_zstandard()
    try:
        said = zstd.frame_content_size(packed)
        if said in (size, -1):  # -1: it does not say
            found: bytes = zstd.ZstdDecompressor().decompress(
                packed, max_output_size=size, allow_extra_data=False
            )
            if len(found) == size:
                return found
    except zstd.ZstdError as error:
        raise ShmqError(f"that is not a Zstandard frame of {size} bytes: {error}") from error
    raise ShmqError(f"the Zstandard frame is not one of {size} bytes")


def _load_lz4() -> Any:
    try:
        with late_imports:
            import lz4.frame  # noqa: PLC0415 - of the extra "compression"
    except ImportError as error:
        raise _make_not_installed("lz4", "lz4") from error
    return lz4.frame


def _load_zstandard() -> Any:
    try:
        with late_imports:
            import zstandard  # noqa: PLC0415 - of the extra "compression"
    except ImportError as error:
        raise _make_not_installed("zstd", "zstandard") from error
    return zstandard


def _make_not_installed(name: str, library: str) -> Unsupported:
    return Unsupported(
        f"compression {name!r} takes {library}, which is not installed: "
        f"pip install 'shmq[compression]'"
    )
