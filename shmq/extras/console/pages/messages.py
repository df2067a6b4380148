"""The messages of a queue, those to be delivered first at the top, and the text of their bodies."""

from __future__ import annotations

import json
import time
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

import shmq
from shmq.api.message import error_of
from shmq.api.properties import TEXTS
from shmq.extras.console.pages.rendering import as_text
from shmq.extras.console.pages.visit import Shown, Visit, page
from shmq.extras.console.problem import Problem
from shmq.model.codec.strict_json import decode_json
from shmq.protocol.opcodes import Right

#: Where a body is cut, in bytes.
CUT: Final = 4096
_PER_LINE: Final = 16

Form = Literal["json", "text", "hex"]

#: How a body can be shown.
FORMS: Final[tuple[Form, ...]] = get_args(Form)


class ShownBody(NamedTuple):
    """A body for a page."""

    #: How it is shown.
    form: Form
    text: str
    #: The bytes of the whole body.
    size: int
    cut: bool


def shown_body(message: shmq.Message, form: Form | None = None) -> ShownBody:
    """The body in that form, or in the first that fits; cut at `CUT` bytes."""
    raw = bytes(message.view)
    piece, cut = raw[:CUT], len(raw) > CUT
    if form in {None, "json"} and not cut and (text := _as_json(message, raw)) is not None:
        return ShownBody("json", as_text(text), len(raw), False)
    if form != "hex":
        text = _decode_value(piece, cut)
        if text is not None:
            return ShownBody("text", as_text(text), len(raw), cut)
    return ShownBody("hex", as_hex(piece), len(raw), cut)


def _as_json(message: shmq.Message, raw: bytes) -> str | None:
    try:
        if message.codec in {"bytes", "text"}:
            value: Any = decode_json(raw)
            if not isinstance(value, dict | list):
                return None
        else:
            value = msgspec.to_builtins(message.body)
        return json.dumps(value, allow_nan=False, indent=2, ensure_ascii=False, default=str)
    except (shmq.ShmqError, TypeError, ValueError, RecursionError):
        return None


def _decode_value(piece: bytes, cut: bool) -> str | None:
    """The piece as text; the last character may be cut in two."""
    try:
        return piece.decode()
    except UnicodeDecodeError as error:
        return piece[: error.start].decode() if cut and error.start >= len(piece) - 3 else None


def as_hex(raw: bytes) -> str:
    """Lines with the offset, sixteen bytes, and the characters of those that have one."""
    lines = []
    for at in range(0, len(raw), _PER_LINE):
        row = raw[at : at + _PER_LINE]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:06x}  {row.hex(' '):<{_PER_LINE * 3 - 1}}  {plain}")
    return "\n".join(lines)


_DEFAULT: Final = 30
_MOST: Final = 100


@page("/queues/{name}/messages")
def show_messages(visit: Visit) -> Shown:
    """Peek at a queue."""
    name = visit["name"]
    visit.need(Right.CONSUME, "queue", name)
    where, form = visit.text("where"), visit.text("as", 10)
    if form is not None and form not in FORMS:
        raise Problem.invalid(f"as={form!r} is none of {', '.join(FORMS)}")
    limit = visit.whole("limit", _DEFAULT, 1, _MOST)
    read_at = time.time()
    with visit.console.broker.queue(name) as queue:
        found = queue.peek(limit, where=where)
        rows = [_make_row(one, form) for one in found]
        depth = queue.qsize()
    return Shown(
        "messages.html",
        {
            "name": name,
            "rows": rows,
            "read_at": read_at,
            "depth": depth,
            "where": where,
            "form": form,
            "forms": FORMS,
            "limit": limit,
            "most": _MOST,
            "put": visit.whole("put", 0, 0, (1 << 64) - 1),
        },
    )


def _make_row(message: shmq.Message, form: Form | None) -> dict[str, Any]:
    return {
        "message": message,
        "body": shown_body(message, form),
        "headers": [
            (as_text(str(key)), _show_value(value)) for key, value in message.headers.items()
        ],
        "texts": [(name.replace("_", " "), getattr(message, name)) for name in TEXTS],
        "dead": message.dead,
        "error": error_of(message),
    }


def _show_value(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return as_text(text[:1000]) + ("…" if len(text) > 1000 else "")
