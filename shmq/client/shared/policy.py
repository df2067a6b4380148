"""The functions that the binding calls in the layers above it: codecs, expressions, contracts.

Importing this module registers them with the binding of queues. Functions that most processes do
not need are loaded at their first call.
"""

from __future__ import annotations

from typing import Any, Final

from shmq import api
from shmq.lazy_imports import late_imports
from shmq.model.codec import codecs
from shmq.native import _core


def compile_filter(where: str) -> _core.Filter:
    """See :func:`shmq.model.expression.compiler.compile_filter`."""
    with late_imports:
        from shmq.model.expression import compiler  # noqa: PLC0415

    return compiler.compile_filter(where)


def _expand(name: str, packed: bytes, size: int) -> bytes:
    with late_imports:
        from shmq.model.codec import compression  # noqa: PLC0415

    return compression.expand(name, packed, size)


def _columns(data: bytes) -> api.Columns:
    return api.Columns(data)


def _run(sequences: bytes, receipts: bytes, slots: bytes) -> api.Run:
    return api.Run(sequences, receipts, slots)


def dead_letter(properties: dict[str, Any]) -> api.DeadLetter:
    """The property ``dead`` of the wire contract as an object."""
    return api.DeadLetter(
        reason=properties["reason"],
        queue=properties["queue"],
        deliveries=properties["deliveries"],
        at=properties["at"] / 1000,
        error=_failure(properties.get("error")),
    )


def _failure(kept: Any) -> api.Failure | None:
    if kept is None:
        return None
    with late_imports:
        from shmq.model import failure  # noqa: PLC0415

    return failure.unpack_error(kept)


def _pack_error(error: BaseException | api.Failure | str) -> bytes:
    with late_imports:
        from shmq.model import failure  # noqa: PLC0415

    return failure.pack_error(error)


POLICY: Final = _core.Policy(
    encode_body=codecs.encode_body,
    decode_body=codecs.decode_body,
    pack_properties=codecs.pack_properties,
    unpack_properties=codecs.unpack_properties,
    expand=_expand,
    columns=_columns,
    run=_run,
    dead_letter=dead_letter,
    compile_filter=compile_filter,
    failure=_failure,
    pack_error=_pack_error,
)
_core.set_policy(POLICY)
