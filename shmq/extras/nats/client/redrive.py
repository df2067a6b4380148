"""Sending the dead letters of a queue of a cluster back to where they came from."""

from __future__ import annotations

from typing import Any, Final

from shmq.errors import Full, NoSuchQueue, QueueDeleted
from shmq.extras.nats.client.message import NatsMessage
from shmq.extras.nats.client.names import kv_key
from shmq.extras.nats.client.put import Puts
from shmq.extras.nats.client.queue_layout import QueueLayout, options_of
from shmq.model.expression.parse import Where

#: The most dead letters that are looked at in one call.
_MOST: Final = 10_000
#: What a message that is sent back no longer has.
_GONE: Final = ("dead", "dedupe", "delay", "ttl")


async def redrive(queue: Any, limit: int | None, where: Where | None) -> int:
    """Send up to ``limit`` dead letters back, oldest first; returns how many were sent."""
    await queue.puts.check_there()
    letters, source = queue, None
    if queue.options.dead_letter is not None:
        letters, source = await _open_dead_letters(queue), queue.name
    messages = await letters.take_messages(_MOST, None, waits=False)
    messages.sort(key=lambda one: one.sequence)
    targets: dict[str, Puts | None] = {}
    sent, refusal = 0, None
    while messages and (limit is None or sent < limit) and refusal is None:
        if not await letters.settlements.current([message := messages.pop(0)]):
            continue  # its lease has ended: it is back in the queue
        dead = message.dead
        meant = where is None or where.matches(message)
        if dead is None or source not in (None, dead.queue) or not meant:
            await letters.return_all([message])
            continue
        if dead.queue not in targets:
            targets[dead.queue] = await _find_puts(letters, dead.queue)
        puts = targets[dead.queue]
        try:
            if puts is not None:
                await _send(puts, letters, message)
                sent += 1
                continue
        except (Full, QueueDeleted) as error:
            refusal = error
        await letters.return_all([message])
    await letters.return_all(messages)
    if refusal is not None and not sent and isinstance(refusal, Full):
        raise refusal
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


async def _send(puts: Puts, letters: Any, message: NatsMessage) -> None:
    properties: dict[str, Any] = {
        key: value for key, value in message.all_properties.items() if key not in _GONE
    }
    made = puts.item_of(properties, message.raw)
    identity = f"redrive:{letters.layout.stream}:{message.sequence}"
    await puts.put(made._replace(headers=made.headers | {"Nats-Msg-Id": identity}), False, None)
    assert message.lease is not None  # it was taken just now
    await letters.settlements.ack(message.lease)
