"""Queues: their list, one of them, who is attached, and what changes them."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Final

import msgspec

import shmq
from shmq.api.options import without_sharing
from shmq.client.shared.differences import check_same
from shmq.extras.console.api.operation import Answer, Call, Parameter, ensure, operation, view_as
from shmq.extras.console.api.rows import PAGE, Page, Table
from shmq.extras.console.problem import Problem
from shmq.host.diagnose.activity import QueueActivity
from shmq.model.expression.parse import quoted
from shmq.protocol.opcodes import Right

_SECONDS: Final = {"oldest_age", "snapshot_age"}
_BYTES: Final = {"arena_bytes", "arena_used", "arena_largest_free", "shm_bytes", "journal_bytes"}
_TEXTS: Final = {"name", "durability", "journal_error", "errors"}


def _choose_kind(name: str) -> str:
    if name in _TEXTS:
        return "text"
    return "seconds" if name in _SECONDS else "bytes" if name in _BYTES else "number"


#: The columns of the list: the fields of QueueStats, and what else is known of a queue.
COLUMNS: Final = {
    **{field.name: _choose_kind(field.name) for field in dataclasses.fields(shmq.QueueStats)},
    "identity": "text",
    "attached": "number",
    "problem": "text",
}
_TABLE: Final = Table(COLUMNS)
_NAME: Final = Parameter("name", "string", "the queue's name", most=255)


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """One queue."""

    name: str
    #: The queue's identity, as a string.
    identity: str
    #: Its options now; null if it cannot be used.
    options: dict[str, Any] | None
    #: Its numbers; null if it cannot be used.
    stats: dict[str, Any] | None
    #: How many handles other processes have.
    attached: int
    problem: str | None = None


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """The handles of other processes."""

    items: list[dict[str, Any]]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The last ten minutes: a value of each list for each look, oldest first."""

    at: list[float]
    rate_in: list[float]
    rate_out: list[float]
    rate_failed: list[float]
    rate_expired: list[float]
    rate_dead: list[float]
    depth: list[float]
    oldest_age: list[float]


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages."""

    count: int


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages were counted."""

    count: int
    #: Whether there are more than were counted.
    more: bool = False


class Redrive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to send back."""

    #: An expression: ``reason = 'expired' and age < 2h``.
    where: str | None = None
    #: At most so many; null: all.
    limit: int | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages to move, and where."""

    #: The queue that gets them.
    to: str
    #: An expression: ``priority > 1``.
    where: str | None = None
    #: At most so many; null: all that are visible.
    limit: int | None = None


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


def row_of(queue: QueueActivity) -> dict[str, Any]:
    """The queue's row; the numbers of one that cannot be used are null."""
    numbers = (
        dataclasses.asdict(queue.stats) if queue.stats is not None else dict.fromkeys(COLUMNS, None)
    )
    return {
        **numbers,
        "name": queue.name,
        "identity": str(queue.identity),
        "attached": sum(one.alive for one in queue.attachments),
        "problem": queue.problem,
    }


@operation(
    "GET",
    "/queues",
    *PAGE,
    Parameter("sort", "string", "largest first, on one page, by this column", None, most=64),
    answer=Page,
    tag="queues",
)
def list_queues(call: Call) -> Page:
    """List queues with their numbers, in pages."""
    found = {one.name: one for one in call.latest.queues if call.caller.sees("queue", one.name)}
    if call["sort"] is not None:
        rows = (row_of(one) for one in found.values())
        return _TABLE.largest(call, rows, call["sort"], call["limit"])
    return _TABLE.page(call, found, lambda name: row_of(found[name]))


@operation("GET", "/queues/{name}", _NAME, answer=QueueView, tag="queues")
def get_queue(call: Call) -> QueueView:
    """Show one queue: its options and its numbers."""
    name = call["name"]
    call.see("queue", name)
    with call.console.broker.put_target(name) as queue:
        return _make_view(queue)


def _make_view(queue: shmq.Queue) -> QueueView:
    return QueueView(
        name=queue.name,
        identity=str(queue.identity),
        options=queue.options.as_dict(),
        stats=dataclasses.asdict(queue.stats()),
        attached=sum(one.alive and one.pid != os.getpid() for one in queue.attachments()),
    )


@operation("PUT", "/queues/{name}", _NAME, body=dict[str, Any], answer=QueueView, tag="queues",
           also=(201,), audit="queue.create")  # fmt: skip
def put_queue(call: Call) -> Answer:
    """Create the queue, or see that it is there with these options.

    201 if it was made, 200 if it existed with these options, 409 with the differences otherwise.
    """
    name = call["name"]
    call.need(Right.ADMIN, "queue", name)
    broker = call.console.broker
    if call.body.get("exclusive"):
        raise Problem.invalid(
            "exclusive=True: a queue belongs to a connection, and a call has none"
        )
    queue, status = ensure(name, call.body, broker.queue, broker.create_queue, shmq.NoSuchQueue)
    with queue:
        check_same(queue, without_sharing(call.body))
        return Answer(value=_make_view(queue), status=status)


@operation("PATCH", "/queues/{name}", _NAME, body=dict[str, Any], answer=QueueView, tag="queues",
           audit="queue.alter")  # fmt: skip
def alter_queue(call: Call) -> QueueView:
    """Change options of the queue while it is in use; those that are not named stay."""
    name = call["name"]
    call.need(Right.ADMIN, "queue", name)
    with call.console.broker.put_target(name) as queue:
        queue.options.altered(name, call.body)  # a key need not be a keyword
        call.console.broker.alter_queue(name, **call.body)
        return _make_view(queue)


@operation("DELETE", "/queues/{name}", _NAME, tag="queues", status=204, audit="queue.delete")
def delete_queue(call: Call) -> Answer:
    """Delete the queue and all its messages, and its own dead-letter queue if that is empty."""
    call.need(Right.ADMIN, "queue", call["name"])
    call.console.broker.delete_queue(call["name"])
    return Answer(status=204)


@operation("GET", "/queues/{name}/attachments", _NAME, answer=Attached, tag="queues")
def list_attachments(call: Call) -> Attached:
    """Show which processes are attached, and how many messages each holds leased."""
    call.see("queue", call["name"])
    with call.console.broker.put_target(call["name"]) as queue:
        own = os.getpid()
        return Attached(
            items=[
                {**dataclasses.asdict(one), "console": one.pid == own}
                for one in queue.attachments()
            ]
        )


@operation("GET", "/queues/{name}/history", _NAME, answer=History, tag="queues")
def queue_history(call: Call) -> History:
    """Show rates, depth and age of the last ten minutes."""
    call.see("queue", call["name"])
    with call.console.broker.put_target(call["name"]):  # one that does not exist is refused
        series = call.console.observer.history.of("queue", call["name"])
    return view_as(History, series)


@operation("POST", "/queues/{name}/purge", _NAME, body=Nothing, answer=Count, tag="queues",
           audit="queue.purge")  # fmt: skip
def purge_queue(call: Call) -> Count:
    """Remove the visible and the delayed messages; leased ones stay."""
    call.need(Right.ADMIN, "queue", call["name"])
    with call.console.broker.queue(call["name"]) as queue:
        return Count(count=queue.purge())


#: So many dead letters that match an expression are counted.
MOST_COUNTED: Final = 100_000


@operation(
    "GET",
    "/queues/{name}/redrive",
    _NAME,
    Parameter("where", "string", "which dead letters", None, most=4096),
    answer=Counted,
    tag="queues",
)
def count_redrive(call: Call) -> Counted:
    """Count the dead letters that a redrive would send, up to 100,000, and send none."""
    call.need(Right.ADMIN, "queue", call["name"])
    with call.console.broker.queue(call["name"]) as queue:
        source = None if _is_letters(queue) else queue.name
        letters = queue.name if source is None else queue.options.dead_letter
        if letters is None:
            return Counted(count=0)
    where = call["where"]
    if source is not None:
        mine = f"queue = {quoted(source)}"
        where = mine if where is None else f"({where}) and {mine}"
    try:
        with call.console.broker.queue(letters) as dead:
            if where is None:
                return Counted(count=dead.stats().depth)
            found = len(dead.peek(MOST_COUNTED + 1, where=where))
            return Counted(count=min(found, MOST_COUNTED), more=found > MOST_COUNTED)
    except shmq.NoSuchQueue:
        return Counted(count=0)


def _is_letters(queue: shmq.Queue) -> bool:
    return queue.options.dead_letter is None


@operation("POST", "/queues/{name}/redrive", _NAME, body=Redrive, answer=Count, tag="queues",
           audit="queue.redrive")  # fmt: skip
def redrive_queue(call: Call) -> Count:
    """Send dead letters back to the queue that they came from, oldest first."""
    call.need(Right.ADMIN, "queue", call["name"])
    with call.console.broker.queue(call["name"]) as queue:
        return Count(count=queue.redrive(call.body.limit, where=call.body.where))


@operation("POST", "/queues/{name}/move", _NAME, body=Move, answer=Count, tag="queues",
           audit="queue.move")  # fmt: skip
def move_queue(call: Call) -> Count:
    """Move visible messages to another queue, each exactly once, until that one is full."""
    call.need(Right.CONSUME, "queue", call["name"])
    call.need(Right.PRODUCE, "queue", call.body.to)
    with call.console.broker.queue(call["name"]) as queue:
        return Count(count=queue.move_to(call.body.to, call.body.limit, where=call.body.where))
