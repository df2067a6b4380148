"""The error of a failed delivery: what a message keeps of it, as bytes and as an object.

Stored as the property ``error``, a msgpack map of ``line``, ``type``, ``trace`` and ``at`` (ms
since 1970), of which absent parts are left out. The line is that of a log, with the type: filters
of the core compare it as a whole.
"""

from __future__ import annotations

import collections
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgpack

from shmq.api.message import Failure
from shmq.native import _clock as time
from shmq.native import _core

#: Frames of a traceback that are formatted: the last ones.
_MOST_FRAMES: Final = 20
#: The most types that are shown each.
MOST_TYPES: Final = 20
#: All others, and what stands for errors without a type: a text.
OTHER: Final = "other"
TEXT: Final = "text"


def pack_error(error: BaseException | Failure | str) -> bytes:
    """Return the error as a message keeps it, at most `MAX_ERROR_BYTES`. Raises TypeError."""
    if isinstance(error, BaseException):
        error = describe_error(error)
    if isinstance(error, Failure):
        name, text, trace = error.type, error.text, error.trace
    elif isinstance(error, str):
        name, text, trace = "", error, ""
    else:
        raise TypeError(
            f"an error is an exception or a str, not {type(error).__name__}: {error!r:.60}"
        )
    kept: dict[str, Any] = {
        "at": int(time.time() * 1000),
        "line": _escape(str(Failure(name, text))),
        **({"type": _escape(name)} if name else {}),
        **({"trace": _escape(trace)} if trace else {}),
    }
    return _core.fit_error(msgpack.packb(kept), _core.MAX_ERROR_BYTES)


def describe_error(error: BaseException, trace: str | None = None) -> Failure:
    """Return the exception as a failure, with that ``trace`` instead of its own."""
    name, text = _name_of(type(error)), _text_of(error)
    return Failure(name, text, _format_trace(error) if trace is None else trace)


def unpack_error(kept: Any) -> Failure | None:
    """Return the property ``error`` as an object; None if it is not one."""
    if not isinstance(kept, Mapping):
        return None
    at, name, line = kept.get("at", 0), _plain(kept.get("type")), _plain(kept.get("line"))
    return Failure(
        type=name,
        text=line.removeprefix(name).removeprefix(": ") if name else line,
        trace=_plain(kept.get("trace")),
        at=at / 1000 if isinstance(at, int | float) and not isinstance(at, bool) else 0.0,
    )


def rank_types(failed: int, counted: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the failures by type, the most frequent first: `MOST_TYPES` of them, then the others.

    ``failed`` counts all failures, those whose type is not counted among them.
    """
    ranked = sorted(counted, key=lambda row: (-row[1], row[0]))[:MOST_TYPES]
    types: collections.Counter[str] = collections.Counter()
    for name, count in ranked:
        if count:
            types[name or TEXT] += count  # a class may have that name, too
    others = failed - types.total()
    if others > 0:
        types[OTHER] += others
    return dict(types)


def _escape(text: str) -> str:
    """The text, with what UTF-8 cannot express, a lone surrogate, escaped."""
    return text.encode(errors="backslashreplace").decode()


def _plain(value: object) -> str:
    return value if isinstance(value, str) else ""


def _name_of(kind: type[BaseException]) -> str:
    name = kind.__qualname__
    return name if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{name}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 - of the application's class
        return f"its text raised {type(other).__name__}"


def _format_trace(error: BaseException) -> str:
    """The last frames, as Python prints them."""
    frames = traceback.extract_tb(error.__traceback__)[-_MOST_FRAMES:]
    return "".join(traceback.format_list(frames)).rstrip("\n")
