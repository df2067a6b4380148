"""Moving messages between the queues of a cluster: dead letters to their origin, and others."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

from shmq.errors import Full, NoSuchQueue, QueueDeleted
from shmq.extras.nats.client.message import NatsMessage
from shmq.extras.nats.client.names import kv_key
from shmq.extras.nats.client.put import Puts
from shmq.extras.nats.client.queue_layout import QueueLayout, options_of
from shmq.model.expression.parse import Where

#: The most messages that are looked at in one call.
_MOST: Final = 10_000
#: The properties that a message that is sent back, and one that moves, no longer has.
_GONE: Final = ("dead", "dedupe", "delay", "ttl")
_LEFT_BEHIND: Final = ("dedupe", "delay", "error")


async def redrive(queue: Any, limit: int | None, where: Where | None) -> int:
    """Send up to ``limit`` dead letters back, oldest first; returns how many were sent."""
    await queue.puts.check_there()
    letters, source = queue, None
    if queue.options.dead_letter is not None:
        letters, source = await _open_dead_letters(queue), queue.name

    def find_origin(message: NatsMessage) -> str | None:
        dead = message.dead
        return None if dead is None or source not in {None, dead.queue} else dead.queue

    return await _send_all(letters, limit, where, find_origin, _GONE)


async def move_to(queue: Any, target: str, limit: int | None, where: Where | None) -> int:
    """Move up to ``limit`` messages to the queue ``target``; returns how many."""
    await queue.puts.check_there()
    if await _find_puts(queue, target) is None:
        raise NoSuchQueue.of(target, queue.connection.where)
    moved = 0
    while limit is None or moved < limit:  # a group delivers one message at a time
        rest = None if limit is None else limit - moved
        try:
            now = await _send_all(queue, rest, where, lambda _: target, _LEFT_BEHIND)
        except Full:
            if not moved:
                raise
            break
        if not now:
            break
        moved += now
    return moved


async def _send_all(
    source: Any,
    limit: int | None,
    where: Where | None,
    find_target: Callable[[NatsMessage], str | None],
    gone: Container[str],
) -> int:
    """Put messages of ``source`` into their targets, oldest first, and acknowledge them.

    Returns how many, when a target is full. Raises Full if none could be sent.
    """
    messages = await source.take_messages(_MOST, None, waits=False)
    messages.sort(key=lambda one: one.sequence)
    targets: dict[str, Puts | None] = {}
    sent = 0
    try:
        for message in messages:
            if sent == limit:
                break
            if not await source.settlements.current([message]):
                continue  # its lease has ended: it is back in the queue
            name = find_target(message)
            if name is None or not (where is None or where.matches(message)):
                continue
            if name not in targets:
                targets[name] = await _find_puts(source, name)
            if (puts := targets[name]) is not None:
                await _send(puts, source, message, gone)
                sent += 1
    except Full:
        if not sent:
            raise
    except QueueDeleted:
        pass
    finally:
        await source.return_all(messages)
    return sent


async def _open_dead_letters(queue: Any) -> Any:
    name = queue.options.dead_letter
    assert name is not None
    found = await queue.definitions.get(kv_key("queue", name))
    if found is None:
        raise NoSuchQueue(
            f"queue {queue.name!r} has no dead-letter queue {name!r} any more: it was deleted, "
            f"and is made again by the next dead letter"
        )
    return type(queue)(queue.connection, queue.definitions, name, found.value)


async def _find_puts(letters: Any, name: str) -> Puts | None:
    """The puts of the queue that a dead letter came from; None: it is gone."""
    found = await letters.definitions.get(kv_key("queue", name))
    if found is None:
        return None
    return Puts(QueueLayout(letters.connection, name, options_of(found.value)), letters.definitions)


async def _send(puts: Puts, source: Any, message: NatsMessage, gone: Container[str]) -> None:
    properties: dict[str, Any] = {
        key: value for key, value in message.all_properties.items() if key not in gone
    }
    if "pri" in properties:
        properties["pri"] = min(properties["pri"], puts.options.priorities - 1)
    made = puts.item_of(properties, message.raw)
    identity = f"move:{source.layout.stream}:{message.sequence}"
    await puts.put(made._replace(headers=made.headers | {"Nats-Msg-Id": identity}), False, None)
    assert message.lease is not None  # it was taken just now
    await source.settlements.ack(message.lease)
