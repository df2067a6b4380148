"""The messages of a queue, those to be delivered first at the top; none is leased."""

from __future__ import annotations

from typing import Any, Final

import shmq
from shmq.extras.console.pages.bodies import FORMS, Form, as_text, shown_body
from shmq.extras.console.pages.visit import Shown, Visit, page
from shmq.extras.console.problem import Problem
from shmq.protocol.opcodes import Right

_DEFAULT: Final = 10
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
    with visit.console.broker.queue(name) as queue:
        found = queue.peek(limit, where=where)
        rows = [_row(one, form) for one in found]
        depth = queue.qsize()
    return Shown(
        "messages.html",
        {
            "name": name,
            "rows": rows,
            "depth": depth,
            "where": where,
            "form": form,
            "forms": FORMS,
            "limit": limit,
            "most": _MOST,
            "put": visit.whole("put", 0, 0, (1 << 64) - 1),
        },
    )


def _row(message: shmq.Message, form: Form | None) -> dict[str, Any]:
    return {
        "message": message,
        "body": shown_body(message, form),
        "headers": [(as_text(str(key)), _value(value)) for key, value in message.headers.items()],
        "dead": message.dead,
    }


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return as_text(text[:1000]) + ("…" if len(text) > 1000 else "")
