"""The client of NATS: requests and puts without a task for each."""

from __future__ import annotations

import asyncio
import collections
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import nats.errors
from nats.aio.msg import Msg

from shmq.extras.nats.client.nats_private import PrivateClient

#: How long an answer is waited for until `ask` tells that there is none, in seconds.
PATIENCE: Final = 2.0
_NOBODY: Final = "503"
_BLANK: Final = re.compile(r"\s")
#: Headers that are sent as they are.
_HEADERS: Final = re.compile(r"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: (?:\S(?:[^\r\n]*\S)?)?\r\n)+")


class Client(PrivateClient):
    """A client whose requests are answered while the bytes of the answer are parsed."""

    def __init__(self) -> None:
        super().__init__()
        #: The inboxes for pulls that nobody uses now: see inbox.py.
        self.spare_inboxes: list[Any] = []
        #: The callback of each request, by the subject of the answer.
        self._asking: dict[str, Callable[[Msg | None], None]] = {}
        #: When the requests of `ask` time out: the oldest first.
        self._ends: collections.deque[tuple[float, str]] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self._answers = ""
        self._number = 0

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,
        old_style: bool = False,  # noqa: ARG002 - that of the client that it replaces
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """The answer to a request. Raises ``nats.errors.TimeoutError``, ``NoRespondersError``."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Msg | None] = loop.create_future()
        on_answer = functools.partial(_set_answer, future)
        reply = self._expect_answer(on_answer)
        timer = loop.call_later(timeout, on_answer, None)
        try:
            await self.publish(subject, payload, reply, headers)
            answer = await future
        finally:
            timer.cancel()
            self._asking.pop(reply, None)
        if answer is None:
            raise nats.errors.TimeoutError
        if is_unheard(answer):
            raise nats.errors.NoRespondersError
        return answer

    async def listen(self) -> None:
        """Listen to the answers of requests; before the first one."""
        self._answers = f"{self.new_inbox()}."
        await self.take(f"{self._answers}*", self._on_answer)

    def _expect_answer(self, on_answer: Callable[[Msg | None], None]) -> str:
        """The subject of an answer, of which `on_answer` is notified."""
        self._number += 1
        reply = f"{self._answers}{self._number:x}"
        self._asking[reply] = on_answer
        return reply

    def _on_answer(self, answer: Msg) -> None:
        on_answer = self._asking.pop(answer.subject, None)
        if on_answer is not None:
            on_answer(answer)

    def ask(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None,
        on_answer: Callable[[Msg | None], None],
        is_alone: bool,
    ) -> None:
        """Send a request without a task; `on_answer` gets the answer, or None.

        None says that nothing came for a while, or that it could not be sent at once. ``is_alone``:
        no other one follows, with which it could share a write.
        """
        reply = self._expect_answer(on_answer)
        if not self._send(subject, payload, reply, headers, is_alone):
            del self._asking[reply]
            on_answer(None)
            return
        loop = asyncio.get_running_loop()
        ends = self._ends
        while ends and ends[0][1] not in self._asking:
            ends.popleft()
        ends.append((loop.time() + PATIENCE, reply))
        if self._timer is None:
            self._timer = loop.call_later(PATIENCE, self._end)

    def _end(self) -> None:
        """Time out pending requests."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._ends:
            ends, reply = self._ends[0]
            if reply in self._asking and ends > loop.time():
                self._timer = loop.call_at(ends, self._end)
                return
            self._ends.popleft()
            on_answer = self._asking.pop(reply, None)
            if on_answer is not None:
                on_answer(None)

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, Any] | None = None,
    ) -> None:
        """Send a message; it waits where much is not sent yet."""
        if not self._send(subject, payload, reply, headers):
            await super().publish(subject, payload, reply, headers)

    def pull(self, subject: str, payload: bytes, reply: str) -> bool:
        """Send a pull at once; False: it cannot be sent so."""
        return self._send(subject, payload, reply, None, True)

    def _send(
        self, subject: str, payload: bytes, reply: str, headers: Any, is_alone: bool = False
    ) -> bool:
        """Send now if possible; return whether it was sent."""
        command = _command(subject, payload, reply, headers)
        return command is not None and self.write(command, len(payload), is_alone)


def is_unheard(answer: Msg) -> bool:
    """Whether a server says that nobody listens to the subject of a request."""
    return answer.headers is not None and answer.headers.get("Status") == _NOBODY


def _set_answer(future: asyncio.Future[Msg | None], answer: Msg | None) -> None:
    if not future.done():
        future.set_result(answer)


def _command(
    subject: str, payload: bytes, reply: str, headers: Mapping[str, str] | None
) -> bytes | None:
    """What tells a server to publish the message; None: the client of NATS refuses or mends it."""
    if _BLANK.search(subject) is not None or not subject:
        return None
    if not headers:
        line = f"PUB {subject} {reply} {len(payload)}\r\n".encode()
        return b"".join((line, payload, b"\r\n"))
    lines = "".join([f"{key}: {value}\r\n" for key, value in headers.items()])
    if lines.count("\n") != len(headers) or _HEADERS.fullmatch(lines) is None:
        return None
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    sizes = f"HPUB {subject} {reply} {len(head)} {len(head) + len(payload)}\r\n".encode()
    return b"".join((sizes, head, payload, b"\r\n"))
