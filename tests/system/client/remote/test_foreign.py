"""Servers of other kinds: what they may leave out, and what they must not send."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import msgpack
import pytest

import shmq
from shmq.protocol.opcodes import MAGIC, PROTOCOL_VERSION, Status, Type
from tests.support.waiting import PATIENCE

_HEADER = struct.Struct("!IIBBHI")

#: Of a request's type, id and payload: the bytes to answer with; None closes.
Script = Callable[[int, int, bytes], bytes | None]


def frame(kind: int, id_: int, payload: bytes = b"", status: int = 0) -> bytes:
    return _HEADER.pack(MAGIC, len(payload), kind, PROTOCOL_VERSION, status, id_) + payload


def reply(id_: int, payload: bytes = b"", status: int = 0) -> bytes:
    return frame(Type.REPLY, id_, payload, status)


def plain(kind: int, id_: int, _: bytes) -> bytes | None:
    """The least that a server answers: a HELLO without features, and a queue's statistics."""
    if kind == Type.HELLO:
        return reply(id_, msgpack.packb({"server": "least", "max_frame": 1000, "features": []}))
    if kind == Type.STATS:
        return reply(id_, msgpack.packb({"name": "q", "depth": 3, "options": {}}))
    return reply(id_, b"", Status.UNSUPPORTED)


def delivery(number: int) -> bytes:
    return struct.pack("!QQHBB", number, number, 1, 1, 0)


def instead(which: int, answer: Callable[[int], bytes | None]) -> Script:
    """As `plain`, but for one type of request."""

    def script(kind: int, id_: int, payload: bytes) -> bytes | None:
        return answer(id_) if kind == which else plain(kind, id_, payload)

    return script


@contextlib.contextmanager
def server(script: Script) -> Iterator[str]:
    """Answers each request by the script: its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    threads = []

    def serve(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError), sock.makefile("rb") as reader:
            while len(head := reader.read(_HEADER.size)) == _HEADER.size:
                _, length, kind, _, _, id_ = _HEADER.unpack(head)
                answer = script(kind, id_, reader.read(length))
                if answer is None:
                    return
                sock.sendall(answer)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listening.accept()
                thread = threading.Thread(target=serve, args=(sock,), daemon=True)
                thread.start()
                threads.append(thread)

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"shmq://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        acceptor.join()
        listening.close()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def queue_of(script: Script, request_timeout: float = PATIENCE) -> Iterator[shmq.Queue]:
    with (
        server(script) as url,
        shmq.connect(url, request_timeout=request_timeout) as broker,
        broker.queue("q") as queue,
    ):
        yield queue


def test_a_server_without_more_than_the_contract_is_enough() -> None:
    with queue_of(plain) as queue:
        assert queue.qsize() == queue.stats().depth == 3
        assert queue.stats().arena_bytes == 0
        assert queue.attachments() == []
        with pytest.raises(shmq.Unsupported, match="q"):
            queue.peek()
        with pytest.raises(shmq.Unsupported):
            queue.redrive()
        with pytest.raises(shmq.Unsupported, match=r"'q'.*without leasing"):
            queue.fileno()
        with pytest.raises(shmq.Unsupported, match="without leasing"):
            shmq.ReadyEvent([queue])
        with pytest.raises(shmq.Unsupported, match="without leasing"):
            shmq.wait([queue], 0)
        with pytest.raises(shmq.Unsupported, match=r"'q'.*does not know this request"):
            queue.redrive(where="reason = 'expired'")
        with pytest.raises(shmq.Unsupported, match=r"'q'.*does not know this request"):
            queue.nack(1, counted=False)


def test_a_consumer_needs_no_more_than_the_contract() -> None:
    asked = []

    def script(kind: int, id_: int, payload: bytes) -> bytes | None:
        asked.append((Type(kind).name, payload[3:]))
        if kind == Type.SUBSCRIBE:
            sent = (frame(Type.DELIVER, id_, delivery(number)) for number in (1, 2))
            return reply(id_) + b"".join(sent)
        if kind in {Type.ACK, Type.NACK, Type.UNSUBSCRIBE}:
            return reply(id_)
        return plain(kind, id_, payload)

    with queue_of(script) as queue, queue.consume(prefetch=2) as messages:
        next(messages).ack()

    assert ("SUBSCRIBE", struct.pack("!IB", 2, 0)) in asked
    assert ("NACK", struct.pack("!IQ", 0, 2)) in asked  # which was not handed out
    assert not {"HANDED", "RETURN"} & {name for name, _ in asked}


def test_the_names_of_queues_need_no_more_than_the_contract() -> None:
    def script(kind: int, id_: int, payload: bytes) -> bytes | None:
        if kind == Type.LIST and not payload:
            found = {"name": "q", "kind": "queue", "depth": 0, "in_flight": 0}
            return reply(id_, msgpack.packb([found]))
        return plain(kind, id_, payload)

    with server(script) as url, shmq.connect(url) as broker:
        assert broker.queue_names() == ["q"]


def test_a_request_needs_a_server_with_reply_queues() -> None:
    with (
        server(plain) as url,
        shmq.connect(url) as broker,
        pytest.raises(shmq.Unsupported, match="has no reply queues"),
    ):
        broker.request("q", b"body", timeout=PATIENCE)


def test_a_server_that_names_no_namespace_is_its_own() -> None:
    with server(plain) as url, shmq.connect(url) as broker:
        assert broker.namespace == url.removeprefix("shmq://")


def test_what_does_not_fit_into_a_frame_of_the_server_is_not_sent() -> None:
    with queue_of(plain) as queue:
        with pytest.raises(shmq.MessageTooLarge, match="max_frame"):
            queue.put(bytes(1000))
        with pytest.raises(shmq.MessageTooLarge, match="1000"):
            queue.put_many([bytes(1000)])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda id_: b"X" * 16, "DEADBEEF"),
        (lambda id_: frame(Type.PRODUCE, id_), "0x20"),
        (lambda id_: frame(Type.DELIVER, id_, bytes(20)), "nobody asked"),
        (lambda id_: None, "closed the connection"),
    ],
)
def test_what_a_server_must_not_send_ends_the_connection(
    answer: Callable[[int], bytes | None], why: str
) -> None:
    with (
        queue_of(instead(Type.PRODUCE, answer)) as queue,
        pytest.raises(shmq.ConnectionLost, match=why),
    ):
        queue.put(b"x")


@pytest.mark.parametrize("cut", [*range(20), 21, 24])
def test_a_malformed_delivery_ends_the_connection(cut: int) -> None:
    whole = struct.pack("!QQHBBI", 1, 2, 1, 1, 1, 5)
    with (
        queue_of(instead(Type.CONSUME, lambda id_: frame(Type.DELIVER, id_, whole[:cut]))) as queue,
        pytest.raises(shmq.ConnectionLost, match="malformed"),
    ):
        queue.get(block=False)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (Status.QUEUE_FULL, shmq.Full),
        (Status.NO_QUEUE, shmq.QueueDeleted),
        (Status.BAD_REQUEST, shmq.InvalidOption),
        (Status.TOO_LARGE, shmq.MessageTooLarge),
        (Status.UNSUPPORTED, shmq.Unsupported),
        (Status.NO_SPACE, shmq.NoSpace),
        (Status.INTERNAL, shmq.ServerError),
        (Status.FORBIDDEN, shmq.Forbidden),
        (Status.FRAME_TOO_LARGE, shmq.MessageTooLarge),
        (Status.UNAUTHORIZED, shmq.Unauthorized),
        (Status.BAD_MAGIC, shmq.ServerError),
        (77, shmq.ServerError),
    ],
)
def test_each_status_is_an_error_that_names_the_queue(
    status: int, error: type[shmq.ShmqError]
) -> None:
    refuse = instead(Type.PRODUCE, lambda id_: reply(id_, b"", status))
    with queue_of(refuse) as queue, pytest.raises(error, match="q") as caught:
        queue.put(b"x")

    assert type(caught.value) is error


def test_what_the_server_says_is_shown() -> None:
    text = "no room: 5 of 5 pages, é".encode()
    refuse = instead(Type.PRODUCE, lambda id_: reply(id_, text, Status.NO_SPACE))
    with queue_of(refuse) as queue, pytest.raises(shmq.NoSpace, match="5 of 5 pages, é"):
        queue.put(b"x")


@pytest.mark.parametrize("payload", [b"\xff\xfe", b"two\nlines", b"\x00"])
def test_what_is_no_line_of_text_is_not_shown(payload: bytes) -> None:
    refuse = instead(Type.PRODUCE, lambda id_: reply(id_, payload, Status.INTERNAL))
    with queue_of(refuse) as queue, pytest.raises(shmq.ServerError, match="log"):
        queue.put(b"x")


def test_a_server_that_shuts_down_is_asked_again_and_given_up() -> None:
    asked = []

    def refuse(id_: int) -> bytes:
        asked.append(id_)
        return reply(id_, b"", Status.SHUTTING_DOWN)

    with (
        queue_of(instead(Type.PURGE, refuse), 2.0) as queue,
        pytest.raises((shmq.ShuttingDown, shmq.ConnectionLost)),
    ):
        queue.purge()

    assert len(asked) > 1


@pytest.mark.parametrize("step", [1, 2, 3, 7, 16, 17, 100])
def test_answers_may_come_in_any_pieces(step: int, url: str) -> None:
    with pieces(url, step) as slow, shmq.connect(slow) as broker:
        queue = broker.create_queue("q")
        queue.put_many([b"x" * size for size in range(20)])
        with queue.consume() as messages:
            assert [len(next(messages).body) for _ in range(20)] == list(range(20))


@contextlib.contextmanager
def pieces(url: str, step: int) -> Iterator[str]:
    """A relay that forwards ``step`` bytes at a time."""
    host, port = url.removeprefix("shmq://").split(":")
    listening = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def relay(source: socket.socket, sink: socket.socket, most: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(most):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                upstream = socket.create_connection((host, int(port)))
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                both = [
                    threading.Thread(target=relay, args=(client, upstream, 4096)),
                    threading.Thread(target=relay, args=(upstream, client, step)),
                ]
                threads.extend(both)
                for thread in both:
                    thread.start()
                sockets.extend([client, upstream])

    sockets: list[socket.socket] = []
    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield f"shmq://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        acceptor.join()
        for thread in threads:
            thread.join()
        for sock in [listening, *sockets]:
            sock.close()
