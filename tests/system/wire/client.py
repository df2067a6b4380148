"""A connection that speaks the wire protocol: a socket, and the bytes of frames.py."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import PATIENCE
from tests.system.wire import frames
from tests.system.wire.frames import HEADER_BYTES, Delivery, Frame, S, T

Address = tuple[str, int]


class Wire:
    """One connection; ids count up from 1 unless a test chooses them."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ids = itertools.count(1)
        self._data = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close with an RST instead of a FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def finish(self) -> None:
        """Half-close: the server sees a FIN, and may still answer."""
        self.socket.shutdown(socket.SHUT_WR)

    # --- frames ------------------------------------------------------------------------

    def send(self, *data: bytes) -> None:
        self.socket.sendall(b"".join(data))

    def post(self, kind: int, payload: bytes = b"", id: int | None = None) -> int:
        """Send a request; its message id."""
        number = next(self._ids) if id is None else id
        self.send(frames.frame(kind, payload, number))
        return number

    def receive(self) -> Frame:
        """The next frame. Raises EOFError at the server's FIN, if that stands between frames."""
        length, header = frames.read_header(self._take(HEADER_BYTES))
        payload = self._take(length) if length else b""
        return header._replace(payload=payload)

    def _take(self, count: int) -> bytes:
        while len(self._data) < count:
            data = self.socket.recv(max(65536, count - len(self._data)))
            if not data:
                assert not self._data, f"the server ended within a frame: {self._data.hex()}"
                raise EOFError
            self._data += data
        taken = bytes(self._data[:count])
        del self._data[:count]
        return taken

    def rest(self) -> list[Frame]:
        """All frames up to the server's FIN."""
        found = []
        with contextlib.suppress(EOFError):
            while True:
                found.append(self.receive())
        return found

    def ask(self, kind: int, payload: bytes = b"", id: int | None = None) -> Frame:
        """The answer to a request, which is the next frame that comes."""
        number = self.post(kind, payload, id)
        answer = self.receive()
        assert answer.id == number, f"{answer} answers {number}"
        return answer

    def status(self, kind: int, payload: bytes = b"", id: int | None = None) -> S:
        """The status of a request that is answered by a REPLY."""
        answer = self.ask(kind, payload, id)
        assert answer.kind == T.REPLY
        return S(answer.status)

    def ok(self, kind: int, payload: bytes = b"", id: int | None = None) -> bytes:
        """The payload of a REPLY that must be OK."""
        answer = self.ask(kind, payload, id)
        assert (answer.kind, answer.status) == (T.REPLY, S.OK), answer
        return answer.payload

    def still_answers(self) -> None:
        """Fail if an answer came without a request, or the connection does not work."""
        assert self.ok(T.PING, b"there?") == b"there?"

    # --- requests ----------------------------------------------------------------------

    def create(self, queue: str, **options: object) -> None:
        assert self.ok(T.CREATE, frames.create(queue, **options)) == b""

    def put(self, queue: str, body: bytes = b"", properties: dict[Any, Any] | None = None) -> int:
        """The sequence number of a message that must be taken."""
        (number,) = frames.read_u64s(self.ok(T.PRODUCE, frames.produce(queue, body, properties)))
        return number

    def take(self, queue: str, most: int = 1, wait: int = 0, flags: int = 0) -> list[Delivery]:
        """What one CONSUME gives; empty if that is QUEUE_EMPTY."""
        return self.taken(self.post(T.CONSUME, frames.consume(queue, most, wait, flags)))

    def taken(self, id: int) -> list[Delivery]:
        """What the CONSUME of that id gives, its frames being the next that come."""
        found: list[Delivery] = []
        while True:
            answer = self.receive()
            assert answer.id == id, answer
            if answer.kind == T.REPLY:
                assert (answer.status, found) == (S.QUEUE_EMPTY, []), answer
                return []
            assert answer.kind == T.DELIVER
            assert answer.status in {S.OK, frames.MORE}
            found.append(frames.read_delivery(answer.payload))
            if answer.status == S.OK:
                return found

    def take_one(self, queue: str, wait: int = 10_000) -> Delivery:
        """A message that must be there, or come."""
        (delivery,) = self.take(queue, 1, wait)
        return delivery

    def take_all(self, queue: str) -> list[Delivery]:
        """All messages that can be leased now."""
        found: list[Delivery] = []
        while some := self.take(queue, 1000):
            found += some
        return found

    def delivered(self, id: int) -> Delivery:
        """The next DELIVER of the subscription of that id, being the next frame that comes."""
        answer = self.receive()
        assert (answer.kind, answer.status, answer.id) == (T.DELIVER, S.OK, id), answer
        return frames.read_delivery(answer.payload)

    def subscribe(self, queue: str, credit: int = 1, flags: int = 0) -> int:
        """The id of a subscription, its REPLY received."""
        number = self.post(T.SUBSCRIBE, frames.subscribe(queue, credit, flags))
        assert self.receive() == Frame(T.REPLY, S.OK, number, b"")
        return number

    def settle(self, queue: str, *receipts: int) -> list[int]:
        """The receipts that an ACK refuses."""
        answer = self.ask(T.ACK, frames.receipts(queue, *receipts))
        assert answer.kind == T.REPLY
        assert answer.status == (S.LEASE_EXPIRED if answer.payload else S.OK), answer
        return frames.read_u64s(answer.payload)

    def stats(self, queue: str) -> dict[str, Any]:
        found = frames.unpack(self.ok(T.STATS, frames.name(queue)))
        assert isinstance(found, dict)
        return found

    def counts(self, queue: str) -> tuple[int, int, int]:
        """How many messages are visible, delayed and leased."""
        found = self.stats(queue)
        return found["depth"], found["delayed"], found["in_flight"]

    def names(self) -> list[str]:
        return [each["name"] for each in frames.unpack(self.ok(T.LIST))]
