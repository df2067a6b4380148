"""Objects as messages, and back.

An object is pickled with multiprocessing's reducers, but with protocol 5. A small object
becomes one pickle. A large object becomes a frame, written into the queue's memory piece by
piece; large bytes and array buffers are copied only there:

    count, bytes of the pickle, bytes of each of the `count` buffers: u64 each
    the pickle
    the buffers, each from the next multiple of 64 on

Unpickling runs code that the pickle names. The memory is the user's own, mode 0600.
"""

from __future__ import annotations

import copyreg
import pickle
import struct
import threading
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, cast

#: The codec of a message that holds a frame. A small pickle has the codec "bytes".
FRAME: Final = "pickle"
#: A pickle of more bytes becomes a frame; a buffer of fewer bytes stays within the pickle.
SMALL: Final = 4096

_ALIGN: Final = 64
_PROTOCOL: Final = 5
_ATOMS: Final = frozenset({bool, bytes, float, int, str, type(None)})
#: The tables of reducers that multiprocessing consults, including later registrations.
_TABLES: Final = (cast(Any, ForkingPickler)._extra_reducers, copyreg.dispatch_table)


class Frame:
    """A pickle and its buffers, in pieces that are not copied yet."""

    def __init__(self, pieces: list[Any], buffers: list[memoryview]) -> None:
        sizes = [sum(map(len, pieces)), *(buffer.nbytes for buffer in buffers)]
        self._pieces = [struct.pack(f"={len(sizes) + 1}Q", len(buffers), *sizes), *pieces]
        self._buffers = buffers
        ends = [end for _, end in _compute_spans(sizes)]
        self.size = ends[-1]

    def write(self, view: memoryview) -> None:
        """Write the frame into the view of ``size`` bytes."""
        at = 0
        for piece in self._pieces:
            view[at : at + len(piece)] = piece
            at += len(piece)
        for buffer in self._buffers:
            at = _align(at)
            view[at : at + buffer.nbytes] = buffer
            at += buffer.nbytes


class _Sink:
    """The file that a pickler writes to."""

    __slots__ = ("write",)


class _Reducers:
    """The reducers of multiprocessing's own pickler, and one for NumPy arrays."""

    def __getitem__(self, kind: type) -> Any:
        for table in _TABLES:
            if kind in table:
                return table[kind]
        if kind.__name__ == "ndarray" and kind.__module__ == "numpy":
            return _reduce_array
        raise KeyError(kind)


_reducers = _Reducers()


class _Encoder:
    """A reusable pickler: making one takes longer than a small pickle."""

    def __init__(self) -> None:
        self.busy = False
        self._pieces: list[Any] = []
        self._buffers: list[memoryview] = []
        sink = _Sink()
        sink.write = self._pieces.append  # type: ignore[attr-defined]
        self._pickler = pickle.Pickler(cast(Any, sink), _PROTOCOL, buffer_callback=self._is_inline)
        self._pickler.dispatch_table = _reducers  # type: ignore[assignment]

    def encode(self, obj: object) -> bytes | Frame:
        """See :func:`encode`. Keeps no reference to the object."""
        pieces, buffers = self._pieces, self._buffers
        self.busy = True
        try:
            self._pickler.dump(obj)
            if not buffers and sum(map(len, pieces)) <= SMALL:
                return b"".join(pieces)
            return Frame(pieces[:], buffers[:])
        finally:
            pieces.clear()
            buffers.clear()
            self._pickler.clear_memo()
            self.busy = False

    def _is_inline(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALL:
            return True
        self._buffers.append(raw)
        return False


class _Local(threading.local):
    def __init__(self) -> None:
        self.encoder = _Encoder()


_local = _Local()


def encode(obj: object) -> bytes | Frame:
    """The object as a small pickle or as a frame. Raises what pickling raises."""
    if type(obj) in _ATOMS and (type(obj) not in {bytes, str} or len(cast(str, obj)) < SMALL):
        return pickle.dumps(obj, _PROTOCOL)
    encoder = _local.encoder
    if encoder.busy:  # pickling this object puts another one
        encoder = _Encoder()
    return encoder.encode(obj)


def read_frame(view: memoryview, *, in_place: bool) -> Any:
    """The object of a frame. Raises what unpickling raises.

    Its buffers are private writable copies, or, with ``in_place``, read-only views of the frame.
    """
    count = int(struct.unpack_from("=Q", view)[0])
    sizes = struct.unpack_from(f"={count + 1}Q", view, 8)
    (first, end), *spans = _compute_spans(sizes)
    parts = (view[start:stop] for start, stop in spans)
    buffers = parts if in_place else map(bytearray, parts)
    return pickle.loads(view[first:end], buffers=buffers)


def _compute_spans(sizes: Any) -> Iterator[tuple[int, int]]:
    """Where the pickle, and then each buffer, begins and ends in a frame."""
    end = 8 * (len(sizes) + 1)
    yield end, (end := end + sizes[0])
    for size in sizes[1:]:
        start = _align(end)
        yield start, (end := start + size)


def _align(at: int) -> int:
    return -(-at // _ALIGN) * _ALIGN


# Protocol 5 keeps a read-only array read-only. multiprocessing gives the getter an array of
# its own, which is writable.


def _reduce_array(array: Any) -> Any:
    make, arguments, *rest = array.__reduce_ex__(_PROTOCOL)
    if array.flags.writeable or not isinstance(arguments[0], pickle.PickleBuffer):
        return (make, arguments, *rest)
    return _make_private, (make, *arguments)


def _make_private(make: Any, buffer: Any, *shape: Any) -> Any:
    """An array over the buffer: writable if the buffer is a copy, not the queue's memory."""
    if isinstance(buffer, bytes):
        return make(bytearray(buffer), *shape)
    return make(buffer.obj if isinstance(buffer.obj, bytearray) else buffer, *shape)
