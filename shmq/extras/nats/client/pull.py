"""Pulling messages from the consumers of a queue: at once, or waiting, the highest priority first.

What arrives for a pull that was given up is returned uncounted, so that a wait that ends by a
timeout or a cancellation has taken nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from nats.aio.msg import Msg

from shmq.errors import ConnectionLost, QueueDeleted
from shmq.extras.nats.client.connection import ApiError
from shmq.extras.nats.client.inbox import Arrival, Inbox
from shmq.extras.nats.client.jetstream import NO_STREAM
from shmq.extras.nats.client.lease import parse_reply
from shmq.extras.nats.client.queue_layout import QueueLayout
from shmq.extras.nats.client.turns import Turns
from shmq.native import _clock as time

#: How long one pull waits at the server, in seconds, and as a part of the lease, which is counted
#: from the pull; then it is sent again. The third is the shortest, in seconds.
_SLICE: Final = 10.0
_SLICE_OF_LEASE: Final = 0.5
_LEAST_SLICE: Final = 0.02
#: The part of a lease for which more messages are pulled once there is one.
_COLLECTING: Final = 0.5
#: How long a pull of a partition of groups waits that may be blocked, in seconds.
_PROBE: Final = 0.02
#: How long a pull waits for what this process has just put, in seconds.
_MOMENT: Final = 0.02
#: How long to wait for the answer of a pull that must not wait, in seconds.
_ANSWER: Final = 2.0
_MOST_PULLED: Final = 256
#: How long a consumer is waited for that has not seen a put of this process, in seconds.
_UNSEEN: Final = 0.5
#: How long a queue without groups is taken to have none, in seconds, by a get that does not wait;
#: one that waits is notified of the first group, and the puts of this process are known.
_WITHOUT_GROUPS: Final = 1.0

_T = TypeVar("_T")


class Pulls:
    """The pulls of one handle."""

    def __init__(
        self,
        layout: QueueLayout,
        give_back: Callable[[Iterable[Arrival], Turns | None], Awaitable[None]],
    ) -> None:
        self._layout = layout
        self._lease = layout.options.visibility_timeout
        self._connection = layout.connection
        self._give_back = give_back
        #: Whether the queue is known to have consumers of groups.
        self.has_groups = False
        #: Until when it is taken to have none, without asking again (monotonic).
        self._without_groups_until = 0.0

    def begin(self, most: int, callback: Callable[[Inbox | list[Arrival] | None], None]) -> None:
        """Begin `take` with the first pull, without a task.

        If that brings all that is wanted, the callback gets it; otherwise what `take` goes on with.
        """
        inbox = Inbox.spare(self._connection, self._orphan)
        consumer, wanted = self._layout.priority_consumers[0], min(most, _MOST_PULLED)
        if inbox is None or not inbox.ask_at_once(
            self._layout.stream, consumer, **self._make_pull(consumer, wanted)
        ):
            callback(inbox)
            return

        def answered(is_complete: bool) -> None:
            if not is_complete or wanted < most:
                callback(inbox)
                return
            came = inbox.take_all()
            self._note_seen(consumer, came[-1].message)
            if not inbox.keep():
                inbox.close_soon()
            callback(came)

        inbox.watch(wanted, _ANSWER, answered)

    async def take(
        self,
        most: int,
        until: float | None,
        *,
        waits: bool,
        started: Inbox | list[Arrival] | None = None,
    ) -> list[Arrival]:
        """Up to ``most`` messages; without any it waits until then (monotonic; None: no limit)."""
        if isinstance(started, list):
            return started
        taken: list[Arrival] = []
        try:
            await self._take_visible(most, taken, started)
            while not taken and waits and (until is None or time.monotonic() < until):
                await self._wait(most, until, taken)
                if len(taken) < most:
                    await self._take_visible(most, taken)
        except BaseException:
            await self._give_back(taken, None)
            raise
        return taken

    async def give_up(self, started: Inbox | list[Arrival] | None) -> None:
        """Return what was started for a caller who is gone."""
        if isinstance(started, Inbox):
            await started.close()
        if isinstance(started, list):
            await self._give_back(started, None)

    async def _orphan(self, arrival: Arrival, turns: Turns) -> None:
        if _read_status(arrival.message) == "":
            await self._give_back([arrival], turns)

    def _get_time_left(self, taken: list[Arrival]) -> float:
        """How long more messages may be pulled, in seconds: the lease of the first one runs."""
        if not taken:
            return math.inf
        return taken[0].asked_at + self._lease * _COLLECTING - time.monotonic()

    async def _run_within(self, taken: list[Arrival], work: Coroutine[Any, Any, _T]) -> _T | None:
        """The result of ``work``; None if more messages may not be pulled before there is one."""
        left = self._get_time_left(taken)
        try:
            async with asyncio.timeout(None if left == math.inf else max(0.0, left)):
                return await work
        except TimeoutError:
            return None

    # ---- what is there ----

    async def _take_visible(
        self, most: int, taken: list[Arrival], started: Inbox | None = None
    ) -> None:
        """Take what is visible now; ``started`` has the first pull."""
        for consumer in self._layout.priority_consumers:
            if len(taken) >= most or self._get_time_left(taken) <= 0:
                return
            await self._take_now(consumer, most, taken, started)
            started = None
        if len(taken) < most:
            await self._take_groups(most, taken)

    async def _take_now(
        self, consumer: str, most: int, taken: list[Arrival], started: Inbox | None
    ) -> None:
        """Take what a consumer has; the answer to a pull ends with a status, or is complete."""
        give_up = time.monotonic() + self._connection.target.request_timeout
        patience = 0.0
        while len(taken) < most and self._get_time_left(taken) > 0:
            wanted = min(most - len(taken), _MOST_PULLED)
            pull = self._make_pull(consumer, wanted, patience)
            came, end = await self._pull(consumer, pull, taken, patience + _ANSWER, started)
            started = None
            if came < wanted and end in {"503", "409", ""}:
                # A leader that changes may leave a pull unanswered; what has arrived counts.
                if taken:
                    return
                if end != "503" and time.monotonic() > give_up:
                    raise ConnectionLost(
                        f"queue {self._layout.name!r}: its consumer {consumer!r} gives no answer"
                    )
                await self._check_there(give_up)
            elif came < wanted:
                if (patience and not came) or not await self._is_behind(consumer, taken):
                    self._layout.last_puts.forget(consumer)
                    return
                patience = _UNSEEN

    async def _pull(
        self,
        consumer: str,
        pull: dict[str, Any],
        taken: list[Arrival],
        patience: float,
        started: Inbox | None = None,
    ) -> tuple[int, str]:
        """Pull once: how many messages arrived, and the status at the end.

        Each pull has an inbox of its own, so that what arrives is counted from this pull.
        ``started`` is the inbox of one that may be sent already.
        """
        inbox = started or await Inbox.of(self._connection, self._orphan)
        try:
            if not inbox.is_asked:
                await inbox.ask(self._layout.stream, consumer, **pull)
            inbox.is_asked = False
            before = len(taken)
            answer = await self._answer(inbox, pull["batch"], taken, patience)
        finally:
            await inbox.close()
        if len(taken) > before:
            self._note_seen(consumer, taken[-1].message)
        return answer

    def _make_pull(self, consumer: str, wanted: int, patience: float = 0.0) -> dict[str, Any]:
        """What a pull asks for: it waits a moment for what this process has just put."""
        if not patience and self._layout.last_puts.is_just_put(consumer):
            patience = _MOMENT
        wait = {"expires": int(patience * 1e9)} if patience else {}
        return {"batch": wanted, "no_wait": True, **wait}

    def _note_seen(self, consumer: str, message: Msg) -> None:
        """The consumer has come so far as to this message."""
        if self._layout.last_puts.is_unseen(consumer):
            delivery = parse_reply(message.reply)
            if delivery is not None:
                self._layout.last_puts.seen(consumer, delivery.sequence)

    async def _is_behind(self, consumer: str, taken: list[Arrival]) -> bool:
        """Whether the consumer has not come to what this process put last."""
        if not self._layout.last_puts.is_unseen(consumer):
            return False
        asked = self._connection.api(f"CONSUMER.INFO.{self._layout.stream}.{consumer}")
        try:
            info = await self._run_within(taken, asked)
        except ApiError:
            return False
        return info is not None and self._is_late(info)

    async def _answer(
        self, inbox: Inbox, wanted: int, taken: list[Arrival], patience: float
    ) -> tuple[int, str]:
        """Collect the answer of one pull: how many came, and the status at its end."""
        came = 0
        while came < wanted:
            arrival = await inbox.next(min(patience, self._get_time_left(taken)))
            if arrival is None:
                return came, ""
            status = _read_status(arrival.message)
            if status == "":
                came += 1
                taken.append(arrival)
            elif status != "100":
                self._check_deleted(arrival.message)
                inbox.answered()
                return came, status
        inbox.answered()
        return came, "full"

    async def _check_there(self, give_up: float) -> None:
        """Return after a pause if the queue is there: no server answers for its consumer now."""
        info = await self._connection.api("STREAM.NAMES", {"subject": self._get_subject()})
        if not info.get("streams"):
            raise self._make_deleted()
        if time.monotonic() > give_up:
            raise ConnectionLost(
                f"queue {self._layout.name!r}: no server of {self._connection.url} leads it"
            )
        await self._layout.make()
        await asyncio.sleep(0.1)

    def _get_subject(self) -> str:
        return str(self._layout.stream_config()["subjects"][0])

    def _check_deleted(self, message: Msg) -> None:
        if "Consumer Deleted" in _read_description(message):
            raise self._make_deleted()

    def _make_deleted(self) -> QueueDeleted:
        return QueueDeleted(f"queue {self._layout.name!r} was deleted")

    # ---- groups ----

    async def groups(self) -> list[dict[str, Any]]:
        """The state of each consumer of a partition of groups; empty if the queue has none."""
        found = await self.consumers()
        groups = [info for info in found if str(info.get("name", "")).startswith("g")]
        self.has_groups = bool(groups)
        self._without_groups_until = 0.0 if groups else time.monotonic() + _WITHOUT_GROUPS
        return groups

    async def consumers(self) -> list[dict[str, Any]]:
        """The state of each consumer of the queue. Raises QueueDeleted."""
        try:
            found = await self._connection.api(
                f"CONSUMER.LIST.{self._layout.stream}", {"offset": 0}
            )
        except ApiError as error:
            if error.number == NO_STREAM:
                raise self._make_deleted() from error
            raise
        return list(found.get("consumers") or ())

    async def _take_groups(self, most: int, taken: list[Arrival]) -> None:
        if time.monotonic() < self._without_groups_until and not self._layout.last_puts.of_groups:
            return
        groups = await self._run_within(taken, self.groups()) or []
        idle = [g for g in groups if not g["num_ack_pending"]]
        free = [g for g in idle if g["num_pending"]]
        behind = [g for g in idle if not g["num_pending"] and self._is_late(g)]
        blocked = [g for g in groups if g["num_ack_pending"]]
        for probing, some in ((_ANSWER, free), (_UNSEEN, behind), (_PROBE, blocked)):
            for group in some:
                if len(taken) >= most or self._get_time_left(taken) <= 0:
                    return
                pull = {"batch": 1, "expires": int(probing * 1e9)}
                await self._pull(group["name"], pull, taken, probing + _ANSWER)
                self._layout.last_puts.forget(group["name"])

    def _is_late(self, info: dict[str, Any]) -> bool:
        """Whether a consumer has not come to what this process put last, by its state."""
        self._layout.last_puts.seen(info["name"], int(info["delivered"]["stream_seq"]))
        return self._layout.last_puts.is_unseen(info["name"])

    # ---- waiting ----

    async def _wait(self, most: int, until: float | None, taken: list[Arrival]) -> None:
        """Wait for a message for a while."""
        left = min(_SLICE, max(_LEAST_SLICE, self._lease * _SLICE_OF_LEASE))
        if until is not None:
            left = min(left, until - time.monotonic())
        if left <= 0:
            return
        consumers = list(self._layout.priority_consumers)
        waiting = await Inbox.of(self._connection, self._orphan)
        try:
            if self.has_groups:
                consumers += self._layout.group_consumers
            else:
                await waiting.listen(self._layout.control_subject)
                if await self.groups():  # they were made before it listened
                    return
            for consumer in consumers:
                await waiting.ask(
                    self._layout.stream, consumer, batch=1, expires=max(1, int(left * 1e9))
                )
            await self._take_first(waiting, len(consumers), left, taken)
            while taken and len(taken) < most and (more := await waiting.next(0)):
                waiting.answered()
                if _read_status(more.message) == "":
                    taken.append(more)
        finally:
            await waiting.close()

    async def _take_first(
        self, waiting: Inbox, asked: int, left: float, taken: list[Arrival]
    ) -> None:
        ends = time.monotonic() + left + 0.1
        open_ = asked
        while open_ and not taken:
            arrival = await waiting.next(ends - time.monotonic())
            if arrival is None:
                return
            status = _read_status(arrival.message)
            if status == "":
                waiting.answered()
                taken.append(arrival)
            elif status == "changed":
                self._without_groups_until = 0.0
                return
            elif status != "100":
                waiting.answered()
                self._check_deleted(arrival.message)
                open_ -= 1
                if status in {"409", "503"}:  # a server goes, or a leader is chosen
                    patience = self._connection.target.request_timeout
                    await self._check_there(time.monotonic() + patience)
                    return


def _read_status(message: Msg) -> str:
    """The status that ends a pull; empty: it is a message of the queue."""
    if message.reply:
        return ""
    return "changed" if message.headers is None else message.headers.get("Status", "changed")


def _read_description(message: Msg) -> str:
    return "" if message.headers is None else message.headers.get("Description", "")
