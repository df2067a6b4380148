"""``shmq stats NAME --errors``: the messages of a queue by the error of their last delivery."""

from __future__ import annotations

import collections
import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, Final

import shmq
from shmq.api.columns import REASONS
from shmq.cli.shared.output import cell, counted, note, quoted, show_json, show_table, table
from shmq.model.codec.codecs import unpack_properties
from shmq.model.expression.error_group import select_group
from shmq.model.failure import unpack_error

#: What stands in place of a dead letter's reason for a message that waits for another delivery.
_RETRY: Final = "retry"
#: A table shows so many characters of an error.
_SHOWN: Final = 200

#: Why a message is a dead letter, or that it is to be delivered again; and its error, if any.
_Kind = tuple[str, str | None]


def report(broker: shmq.Broker, name: str, most: int, *, as_json: bool) -> None:
    """Show how many messages there are of each reason and error, the most frequent first."""
    with broker.queue(name) as queue:
        letters = queue.options.dead_letter
        kinds = list(itertools.islice(_read_kinds(queue.bulk()), most + 1))
    read, more = kinds[:most], len(kinds) > most
    groups = collections.Counter(kind for kind in read if kind is not None).most_common()
    if as_json:
        rows = [_describe(kind, count) for kind, count in groups]
        show_json({"name": name, "read": len(read), "more": more, "errors": rows})
        return
    if groups:
        made = table(["messages", "reason", "error"], right=("messages",))
        for (reason, error), count in groups:
            made.add_row(*(cell(value) for value in (f"{count:,}", reason, _shorten(error or ""))))
        show_table(made)
    else:
        note(f"no message of queue {quoted(name)} has failed")
    if more:
        note(f"only the first {counted(most, 'message')} found were read: raise it with --count")
    if letters is not None:
        _note_dead_letters(broker, letters)


def _note_dead_letters(broker: shmq.Broker, name: str) -> None:
    """Name the command for the dead letters, if there are any that the user may see."""
    with contextlib.suppress(shmq.ShmqError), broker.queue(name) as queue:
        if held := queue.stats().depth:
            note(f"{counted(held, 'dead letter')} in {quoted(name)}: shmq stats {name} --errors")


def _read_kinds(queue: shmq.BulkQueue) -> Iterator[_Kind | None]:
    """The kind of each message, in the order of their slots; None: it has not failed."""
    start: int | None = 0
    while start is not None:
        run, start = queue.read_columns(start, max_bytes=1 << 20)
        for at in range(len(run)):
            found = unpack_properties(meta) if (meta := bytes(run.meta(at))) else {}
            dead = found["dead"] if isinstance(found.get("dead"), dict) else {}
            error = unpack_error(dead.get("error", found.get("error")))
            reason = dead.get("reason", REASONS[run.reason[at]])
            if error is None and reason is None:
                yield None
            else:
                yield str(reason or _RETRY), None if error is None else str(error)


def _describe(kind: _Kind, count: int) -> dict[str, Any]:
    """The group as JSON; ``where`` selects it for peek and redrive."""
    reason, error = kind
    where = select_group(error, None if reason == _RETRY else reason)
    return {"messages": count, "reason": reason, "error": error, "where": where}


def _shorten(error: str) -> str:
    return error if len(error) <= _SHOWN else error[: _SHOWN - 1] + "…"
