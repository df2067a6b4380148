"""The expression that selects messages which failed in the same way."""

from __future__ import annotations

from shmq.model.expression.parse import quoted


def select_group(error: str | None, reason: str | None = None, source: str | None = None) -> str:
    """Return the ``where`` of messages with that error; None: without one.

    With a ``reason`` only of dead letters that died for it, and with a ``source`` only of those
    from that queue.
    """
    terms = [] if reason is None else [f"reason = {quoted(reason)}"]
    if source is not None:
        terms.append(f"queue = {quoted(source)}")
    terms.append("error = null" if error is None else f"error = {quoted(error)}")
    return " and ".join(terms)
