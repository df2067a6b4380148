"""What a queue of a cluster has: its numbers, copies of its messages, and their removal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from shmq import api
from shmq.errors import QueueDeleted
from shmq.extras.nats.client import names
from shmq.extras.nats.client.connection import ApiError
from shmq.extras.nats.client.jetstream import NO_STREAM, nanoseconds
from shmq.extras.nats.client.message import NatsMessage, priority_of, unpacked
from shmq.model.expression.parse import Where
from shmq.native import _clock as time

if TYPE_CHECKING:
    from shmq.extras.nats.client.pull import Pulls
    from shmq.extras.nats.client.queue_layout import QueueLayout

_AT_ONCE: Final = 256


class QueueState:
    """Looks at one queue. Its methods run in the process's loop."""

    def __init__(self, queue: Any, layout: QueueLayout, pulls: Pulls) -> None:
        self._queue = queue
        self._layout = layout
        self._pulls = pulls
        self._connection = layout.connection

    async def _fetch_info(self) -> dict[str, Any]:
        """The state of its stream; ``subjects`` counts what is due by its subject."""
        due = names.queue_subjects(self._layout.namespace, self._layout.name)[:-1] + "*"
        try:
            return await self._connection.api(
                f"STREAM.INFO.{self._layout.stream}", {"subjects_filter": due}
            )
        except ApiError as error:
            if error.number == NO_STREAM:
                raise QueueDeleted(f"queue {self._layout.name!r} was deleted") from error
            raise

    async def counts(self) -> tuple[int, int, int, int]:
        """How many messages are visible, delayed and leased, and how many gets wait.

        The stream says what is there: a consumer learns a moment later of a message.
        """
        return (await self._count())[1:]

    async def _count(self) -> tuple[dict[str, Any], int, int, int, int]:
        """The state of its stream, and the `counts`."""
        consumers = await self._pulls.consumers()
        state: dict[str, Any] = (await self._fetch_info())["state"]
        due = sum(map(int, (state.get("subjects") or {}).values()))
        leased = sum(int(one["num_ack_pending"]) for one in consumers)
        waiting = max((int(one.get("num_waiting") or 0) for one in consumers), default=0)
        delayed = max(0, int(state["messages"]) - due)
        return state, max(0, due - leased), delayed, leased, waiting

    async def is_full(self) -> bool:
        """Whether it holds as many messages as its capacity allows."""
        return int((await self._fetch_info())["state"]["messages"]) >= self._layout.options.capacity

    async def count_claimed(self) -> int:
        """How many messages are claimed, of a queue whose messages are never acknowledged."""
        await self._queue.puts.check_there()
        claimed: int = await self._queue.claims.count()
        return claimed

    async def stats(self) -> api.QueueStats:
        """The queue's statistics."""
        state, depth, delayed, leased, waiting = await self._count()
        options = self._layout.options
        put, held, used = int(state["last_seq"]), int(state["messages"]), int(state["bytes"])
        free = max(0, options.arena_bytes - used)
        return api.QueueStats(
            name=self._layout.name,
            depth=depth,
            delayed=delayed,
            in_flight=leased,
            dying=0,
            capacity=options.capacity,
            oldest_age=_compute_age(str(state.get("first_ts", ""))) if depth else 0.0,
            rate_in=0.0,
            rate_out=0.0,
            put=put,
            acked=put - held,
            nacked=0,
            expired=0,
            redelivered=0,
            dead_lettered=0,
            dropped=0,
            deduped=0,
            arena_bytes=options.arena_bytes,
            arena_used=used,
            arena_largest_free=min(free, options.max_message_bytes),
            shm_bytes=0,
            recoveries=0,
            waiting_get=waiting,
            waiting_put=0,
            durability=options.durability,
        )

    # ---- copies ----

    async def peek(self, limit: int, where: Where | None) -> list[api.Message]:
        """Copies of up to ``limit`` messages that were not delivered yet, or are not any more."""
        found: list[api.Message] = []
        consumers = {one["name"]: one for one in await self._pulls.consumers()}
        order = [*self._layout.priority_consumers, *self._layout.group_consumers]
        for name in order:
            info = consumers.get(name)
            if info is None:
                continue
            known = "delivered" if info["num_ack_pending"] else "ack_floor"
            sequence = int(info[known]["stream_seq"]) + 1
            while len(found) < limit:
                copy = await self._fetch_next(info["config"]["filter_subject"], sequence)
                if copy is None:
                    break
                if where is None or where.matches(copy):
                    found.append(copy)
                sequence = copy.sequence + 1
        return found

    async def _fetch_next(self, subject: str, sequence: int) -> NatsMessage | None:
        """A copy of the first message of the subject from that sequence on."""
        answer = await self._connection.request(
            f"$JS.API.DIRECT.GET.{self._layout.stream}",
            f'{{"seq":{sequence},"next_by_subj":"{subject}"}}'.encode(),
        )
        headers = answer.headers or {}
        if "Nats-Sequence" not in headers:
            return None
        properties = unpacked(headers)
        priority = priority_of(properties, self._layout.options)
        return NatsMessage(
            self._queue, answer.data, properties, int(headers["Nats-Sequence"]), priority
        )

    # ---- removal ----

    async def purge(self) -> int:
        """Remove the visible and the delayed messages; leased ones stay."""
        _, delayed, leased, _ = await self.counts()
        stream = self._layout.stream
        if not leased:
            return int((await self._connection.api(f"STREAM.PURGE.{stream}", {}))["purged"])
        later = names.delayed_subject(self._layout.namespace, self._layout.name, ">")
        removed = 0
        if delayed:
            answer = await self._connection.api(f"STREAM.PURGE.{stream}", {"filter": later})
            removed = int(answer["purged"])
        while came := await self._pulls.take(_AT_ONCE, None, waits=False):
            settlements = self._queue.settlements
            leases = [lease for one in came if (lease := settlements.lease_of(one)) is not None]
            await asyncio.gather(*map(settlements.acquire, leases))
            current = [lease for lease in leases if lease.is_good]
            await asyncio.gather(*map(settlements.acked, current))
            removed += len(current)
        return removed


async def summary_of(queue: Any) -> api.QueueSummary:
    """The queue's entry of the list."""
    depth, delayed, leased, _ = await queue.state.counts()
    return api.QueueSummary(
        name=queue.name,
        depth=depth,
        delayed=delayed,
        in_flight=leased,
        capacity=queue.options.capacity,
    )


def _compute_age(stamp: str) -> float:
    """How old a time of the server is, in seconds; 0 if it is none."""
    then = nanoseconds(stamp)
    return max(0.0, time.time() - then / 1e9) if then else 0.0
