"""Puts to a queue of a cluster: one message, many in one step, delayed; repeated if lost."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from nats.aio.msg import Msg

from shmq import api
from shmq.client.handles.put import encode, is_durable, is_full, never_fits, waiting_put
from shmq.errors import Full, MessageTooLarge, QueueDeleted
from shmq.extras.nats.client import names
from shmq.extras.nats.client.client import PATIENCE
from shmq.extras.nats.client.connection import ApiError, ClusterConnection
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.jetstream import FULL, MOST_TOGETHER, publish_together
from shmq.extras.nats.client.loop_thread import Begun
from shmq.extras.nats.client.message import packed, ttl_of
from shmq.extras.nats.client.queue_layout import QueueLayout, check_synced
from shmq.model.codec.codecs import Default, pack_properties, unpack_properties
from shmq.native import _clock as time
from shmq.native import _core

_LEAST_PAUSE, _MOST_PAUSE = 0.001, 0.1
#: What an id of a message may have as is: headers are trimmed, and are ASCII.
_SAFE: Final = "/:.@,;=+!$&'()*"
#: Room for the subject, the headers and the frame of a message, in bytes.
_FRAME: Final = 512


class Item(NamedTuple):
    """A message that is to be put."""

    body: bytes
    headers: dict[str, str]
    subject: str
    #: Whether it is due at once.
    is_due: bool
    #: Whether the application gave it a dedupe id that counts.
    is_known: bool
    is_grouped: bool


class Puts:
    """The puts to one queue. Its methods run in the process's loop."""

    def __init__(self, layout: QueueLayout, definitions: Definitions) -> None:
        self.layout = layout
        self.name = layout.name
        self.options = layout.options
        self.connection: ClusterConnection = layout.connection
        self._definitions = definitions
        #: Whether the consumers of groups are known to be there.
        self.has_groups = False
        #: Whether a put that is started, and repeated if nothing answers, stays known for so long.
        self._is_known_long = layout.window >= self.connection.target.request_timeout + PATIENCE
        #: By which the waiting puts of this process are counted.
        self.key = (self.connection.url, layout.namespace, layout.name)

    # ---- arguments ----

    def check_confirm(self, confirm: str | None) -> None:
        """Raise for a ``confirm`` that the queue or the cluster cannot give."""
        is_durable(self, confirm)
        if confirm == "disk":
            check_synced(self.connection, f"queue {self.name!r}")

    def item(
        self, body: Any, properties: Mapping[str, Any], default: Default | None = None
    ) -> Item:
        """The message of a body and the properties of a put. Raises what ``put`` raises."""
        return self.pack(*encode(body, self.options.priorities, properties, default=default))

    def pack(self, meta: bytes | None, buffer: Any) -> Item:
        """The message of packed properties and a buffer. Raises MessageTooLarge."""
        return self._make_item(unpack_properties(meta), meta, bytes(buffer))

    def item_of(self, properties: Mapping[str, Any], body: bytes) -> Item:
        """The message of bytes and of properties by their names of the wire protocol."""
        return self._make_item(
            properties, pack_properties(properties) if properties else None, body
        )

    def _make_item(self, wanted: Mapping[str, Any], meta: bytes | None, raw: bytes) -> Item:
        self.check_bytes(len(raw), meta)
        group = wanted.get("group")
        subject = self.layout.subject(wanted.get("pri", self.options.priorities // 2), group)
        known = wanted.get("dedupe") if self.options.dedupe_window > 0 else None
        headers = packed(wanted, meta)
        headers["Nats-Msg-Id"] = secrets.token_hex(12) if known is None else quote(known, _SAFE)
        headers["Nats-Expected-Stream"] = self.layout.stream
        ttl = self._format_server_ttl(wanted)
        delay = wanted.get("delay") or 0
        if delay:
            at = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=delay)
            headers["Nats-Schedule"] = f"@at {at.isoformat(timespec='milliseconds')[:-6]}Z"
            headers["Nats-Schedule-Target"] = subject
            subject = names.delayed_subject(self.layout.namespace, self.name, secrets.token_hex(12))
            if ttl:
                headers["Nats-Schedule-TTL"] = ttl
        elif ttl:
            headers["Nats-TTL"] = ttl
        return Item(raw, headers, subject, not delay, known is not None, group is not None)

    def _format_server_ttl(self, wanted: Mapping[str, Any]) -> str:
        """After what time the server drops the message, in whole seconds; empty: never.

        A dead letter is made by the client that meets the expired message, so the server waits
        twice as long.
        """
        seconds = ttl_of(wanted, self.options)
        if "dead" in wanted or seconds is None:
            return ""
        if self.options.on_expired == "dead-letter" and self.options.dead_letter is not None:
            seconds *= 2
        return f"{max(1, math.ceil(seconds))}s"

    def check_bytes(self, size: int, meta: bytes | None) -> None:
        """Raise MessageTooLarge for a body of that size that can never be put."""
        o, more = self.options, len(meta or b"")
        if size > o.max_message_bytes or size + more > o.arena_bytes:
            raise never_fits(self.name, o, size, more)
        if size + more * 2 + _FRAME > self.connection.max_payload:
            raise MessageTooLarge(
                f"a body of {size} bytes with {more} bytes of properties does not fit into a "
                f"message of the cluster, which takes {self.connection.max_payload} bytes "
                f"(max_payload)"
            )

    # ---- one message ----

    def begin(self, item: Item, waits: bool, until: float | None, put: Begun[api.Put]) -> None:
        """Begin `put`: without a task, unless the first answer is not that it was taken."""
        client = self.connection.connected
        if client is None or not self._is_known_long or (item.is_grouped and not self.has_groups):
            put.go_on(self.put(item, waits, until))
            return

        def on_answer(answer: Msg | None) -> None:
            taken = None if answer is None else _parse_stored(answer)
            if taken is None:
                put.go_on(self.put(item, waits, until))
            else:
                put.end(self._put(item, taken))

        client.ask(
            item.subject, item.body, item.headers, partial(put.then, on_answer), put.is_alone
        )

    def _put(self, item: Item, answer: Mapping[str, Any]) -> api.Put:
        """What a put returns."""
        sequence, is_known = int(answer["seq"]), bool(answer.get("duplicate"))
        if item.is_due and not is_known:
            self.layout.last_puts.note(item.subject, sequence)
        return _core.new_put(sequence, is_known and item.is_known)

    async def put(self, item: Item, waits: bool, until: float | None) -> api.Put:
        """Put one message; wait for room until then (monotonic; None: no limit)."""
        await self._prepare([item])
        pause = _LEAST_PAUSE
        while True:
            try:
                answer = await self._publish(item)
            except Full:
                left = math.inf if until is None else until - time.monotonic()
                if not waits or left <= 0:
                    raise
                await self._pause(min(pause, left))
                pause = min(pause * 2, _MOST_PAUSE)
                continue
            return self._put(item, answer)

    async def _pause(self, seconds: float) -> None:
        with waiting_put(self.key):
            await asyncio.sleep(seconds)

    async def _prepare(self, items: Sequence[Item]) -> None:
        """Make the consumers of groups with the first message of a group."""
        if not self.has_groups and any(item.is_grouped for item in items):
            await self.check_there()
            await self.layout.make_groups()
            self.has_groups = True

    async def _publish(self, item: Item) -> dict[str, Any]:
        """One message, taken or refused. Raises Full, QueueDeleted, ConnectionLost."""
        try:
            return await self.connection.publish(
                item.subject,
                item.body,
                item.headers,
                within=min(self.connection.target.request_timeout, self.layout.window),
                what=f"queue {self.name!r}",
                check_there=self.check_there,
            )
        except ApiError as error:
            raise self._make_refusal(error) from error

    def _make_refusal(self, error: ApiError) -> Exception:
        return self.full() if error.number == FULL else error

    async def check_there(self) -> None:
        """Raise QueueDeleted if the queue is no longer defined."""
        if await self._definitions.get(self.layout.definition_key()) is None:
            raise QueueDeleted(f"queue {self.name!r} was deleted")

    def full(self) -> Full:
        """The error for a queue without room."""
        return is_full(self.name, self.options)

    # ---- many messages ----

    async def put_many(self, items: list[Item], waits: bool, until: float | None) -> int:
        """Put the items in order; returns how many the queue took."""
        await self._prepare(items)
        done = 0
        while done < len(items):
            some = items[done : done + MOST_TOGETHER]
            together = len(some) > 1 and all(item.is_due for item in some)
            if together and await self._put_batch(some):
                done += len(some)
                continue
            for item in some:
                try:
                    await self.put(item, waits, until)
                except Full:
                    return done
                except Exception:
                    if done:
                        return done
                    raise
                done += 1
        return done

    async def _put_batch(self, items: list[Item]) -> bool:
        """Put all of them in one step; False: they do not fit, or some are known."""
        try:
            done = await publish_together(
                self.connection,
                [(item.subject, item.body, item.headers) for item in items],
                time.monotonic() + min(self.connection.target.request_timeout, self.layout.window),
                what=f"queue {self.name!r}",
                pause=_MOST_PAUSE,
                check_there=self.check_there,
                lost=f"queue {self.name!r}: the batch of {len(items)} messages was not confirmed "
                f"by {self.connection.url} in time: it is there as a whole, or not at all",
            )
        except ApiError as error:
            if error.number == FULL:
                return False
            raise
        if done.answer is None:
            return done.attempts > 1  # our own first attempt, whose answer was lost
        first = int(done.answer.get("seq") or 0) - len(items) + 1
        for sequence, item in enumerate(items, first):
            self.layout.last_puts.note(item.subject, sequence)
        return True


def _parse_stored(answer: Msg) -> dict[str, Any] | None:
    """What a stream answers that has stored a message; None: it has not."""
    try:
        found = json.loads(answer.data)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("seq") else None
