"""TLS and mutual TLS: which clients are accepted, and that a session is the same over it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.errors import InvalidOption
from shmq.native._core import ENDING
from shmq.protocol.opcodes import FOREVER, Status, Type
from shmq.server.config.tls import Tls
from shmq.server.connection.tls_connection import TlsConnection
from tests.support.certificates import Certificates
from tests.support.peer import Peer, frame, name_of
from tests.support.waiting import PATIENCE, eventually
from tests.system.server.conftest import Serve

Pair = tuple[Path, Path]


@pytest.fixture
def trusting(certificates: Certificates) -> ssl.SSLContext:
    """What a client has that knows the authority."""
    return ssl.create_default_context(cafile=certificates.ca)


def files(pair: Pair) -> dict[str, Path]:
    return dict(zip(("certificate", "key"), pair, strict=True))


def test_a_session_over_tls_is_as_any_other(
    served: Serve, broker: shmq.Broker, server_pair: Pair, trusting: ssl.SSLContext
) -> None:
    server = served(tls=files(server_pair))
    body = bytes(range(256)) * 12_000
    with Peer(server, trusting) as peer, Peer(server, trusting) as waiter:
        assert server.url.startswith("shmqs://")
        assert peer.create("q").status == Status.OK
        asked = waiter.begin_to_take("q", FOREVER)
        assert peer.put("q", body).status == Status.OK
        delivered = waiter.receive()
        assert (delivered.id, delivered.payload[20:]) == (asked, body)
        assert waiter.ok(Type.ACK, name_of("q") + delivered.payload[8:16]) == b""
        for number in range(1000):
            peer.socket.sendall(frame(Type.PING, b"%d" % number, number + 1000))
        assert [peer.receive().payload for _ in range(1000)] == [b"%d" % n for n in range(1000)]
    assert broker.queue("q").stats().acked == 1


@pytest.mark.prove
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(
    served: Serve, server_pair: Pair, trusting: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    trusting.minimum_version = trusting.maximum_version = version
    with Peer(served(tls=files(server_pair)), trusting) as peer:
        peer.ok(Type.PING)


def test_nothing_older_is_spoken(server_pair: Pair) -> None:
    context = Tls(certificate=server_pair[0], key=server_pair[1]).context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.prove
def test_a_client_that_speaks_no_tls_is_not_answered(served: Serve, server_pair: Pair) -> None:
    server = served(tls=files(server_pair))
    with Peer(server) as peer:
        peer.post(Type.PING)
        assert peer.ended()
    server.hears("TLS handshake failed")


@pytest.mark.prove
def test_a_client_that_does_not_know_the_authority_goes(served: Serve, server_pair: Pair) -> None:
    server = served(tls=files(server_pair))
    with pytest.raises(ssl.SSLCertVerificationError):
        Peer(server, ssl.create_default_context())


@pytest.mark.prove
def test_with_mutual_tls_a_client_shows_a_certificate_of_the_authority(
    served: Serve,
    certificates: Certificates,
    server_pair: Pair,
    trusting: ssl.SSLContext,
    tmp_path: Path,
) -> None:
    server = served(tls={**files(server_pair), "client_ca": certificates.ca})
    stranger = ssl.create_default_context(cafile=certificates.ca)
    stranger.load_cert_chain(*Certificates(tmp_path).sign("stranger"))
    for context in (trusting, stranger):
        # In TLS 1.3 a client is through before the server has looked at its certificate.
        with (
            pytest.raises((ssl.SSLError, EOFError, ConnectionError)),
            socket.create_connection(server.address) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as way,
        ):
            way.sendall(frame(Type.PING))
            if not way.recv(1):
                raise EOFError
    known = ssl.create_default_context(cafile=certificates.ca)
    known.load_cert_chain(*certificates.sign("client"))

    with Peer(server, known) as peer:
        peer.ok(Type.PING)


@pytest.mark.prove
def test_a_token_is_asked_for_within_tls(
    served: Serve, server_pair: Pair, trusting: ssl.SSLContext
) -> None:
    server = served(tls=files(server_pair), tokens={"t" * 40: {"produce": ["*"]}})
    with Peer(server, trusting) as peer:
        peer.let_in("t" * 40).ok(Type.LIST)
    with Peer(server, trusting) as peer:
        assert peer.status(Type.LIST) == Status.UNAUTHORIZED
        assert peer.socket.recv(1) == b""  # the goodbye of TLS, and not a torn connection


@pytest.mark.prove
def test_a_handshake_that_does_not_end_is_cut_off(
    served: Serve, server_pair: Pair, trusting: ssl.SSLContext
) -> None:
    server = served(tls=files(server_pair), limits={"handshake": 2.0})
    with socket.create_connection(server.address) as silent:
        silent.settimeout(60)
        silent.sendall(b"\x16\x03\x01")
        assert silent.recv(1) == b""
    server.hears("no TLS within handshake")
    with Peer(server, trusting) as peer:
        peer.ok(Type.PING)


@pytest.mark.prove
def test_what_is_no_tls_behind_a_request_is_no_fault_of_the_server(
    served: Serve, server_pair: Pair, trusting: ssl.SSLContext
) -> None:
    server = served(tls=files(server_pair))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(server.address, 60) as way:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                way.sendall(outgoing.read())
                incoming.write(way.recv(1 << 16))
        tls.write(frame(Type.PING))
        way.sendall(outgoing.read() + b"\x17\x03\x03\x00\x20" + bytes(32))
        with contextlib.suppress(ConnectionError):
            while way.recv(1 << 16):
                continue
    with Peer(server, trusting) as peer:
        peer.ok(Type.PING)
    assert "internal error" not in server.log


def test_what_a_torn_connection_held_is_back_at_once(
    served: Serve, broker: shmq.Broker, server_pair: Pair, trusting: ssl.SSLContext
) -> None:
    server = served(tls=files(server_pair))
    queue = broker.create_queue("q", visibility_timeout=3600)
    queue.put(b"x")
    peer = Peer(server, trusting)
    assert peer.take("q").kind == Type.DELIVER

    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()

    eventually(lambda: queue.qsize() == 1, "it is back")


@pytest.mark.parametrize(
    "secure",
    [pytest.param(False, id="plain", marks=pytest.mark.prove), pytest.param(True, id="tls")],
)
def test_a_reset_right_behind_a_request_is_noticed(
    served: Serve, broker: shmq.Broker, server_pair: Pair, trusting: ssl.SSLContext, secure: bool
) -> None:
    server = served(tls=files(server_pair) if secure else None)
    queue = broker.create_queue("q", visibility_timeout=3600)
    queue.put(b"x")
    peer = Peer(server, trusting if secure else None)
    assert peer.take("q").kind == Type.DELIVER
    (worker,) = server.workers()
    os.kill(worker, signal.SIGSTOP)
    peer.begin_to_take("q", FOREVER)  # which is not answered
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()
    os.kill(worker, signal.SIGCONT)

    eventually(lambda: queue.qsize() == 1, "what it held is back")


@pytest.mark.prove
def test_a_slow_reader_over_tls_gets_all_and_is_not_buffered_without_bound(
    served: Serve, broker: shmq.Broker, server_pair: Pair, trusting: ssl.SSLContext
) -> None:
    server = served(tls=files(server_pair))
    queue = broker.create_queue("q", arena_bytes=128 << 20, max_message_bytes=1 << 20)
    for _ in range(60):
        queue.put(bytes(1 << 20))
    with Peer(server, trusting) as peer:
        peer.post(Type.SUBSCRIBE, name_of("q") + struct.pack("!IB", 1000, 0))
        eventually(lambda: queue.stats().in_flight > 0, "it begins")

        sizes = [len(peer.receive().payload) for _ in range(61)]

    assert sorted({*sizes}) == [0, 20 + (1 << 20)]


class _PendingDelivery:
    """A session that has output when its peer has ended."""

    context = "a session"

    def __init__(self) -> None:
        self.flags = 0
        self.output = b""
        self.closed = False

    def finish(self) -> int:
        self.output, self.flags = b"a delivery", ENDING
        return self.flags

    def take(self, _: int) -> bytes:
        output, self.output = self.output, b""
        return output

    def close(self) -> None:
        self.closed = True


def test_a_client_that_vanishes_before_a_delivery_is_sent_is_no_fault_of_the_server(
    server_pair: Pair, trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*server_pair)
    session: Any = _PendingDelivery()

    def vanish(way: socket.socket) -> None:
        with trusting.wrap_socket(way, server_hostname="127.0.0.1") as client:
            socket.socket.shutdown(client, socket.SHUT_WR)  # without the end of TLS
            with contextlib.suppress(OSError):
                while client.recv(1 << 16):
                    continue

    async def serve_it() -> None:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        there.settimeout(PATIENCE)
        here.setblocking(False)
        closed = asyncio.Event()
        TlsConnection(loop, here, session, lambda _: closed.set(), context, PATIENCE)
        await asyncio.to_thread(vanish, there)
        await asyncio.wait_for(closed.wait(), PATIENCE)

    asyncio.run(serve_it())

    assert session.closed
    assert not session.output  # it was about to be sent
    assert "internal error" not in caplog.text


@pytest.mark.prove
def test_sighup_brings_a_new_certificate(
    served: Serve, certificates: Certificates, server_pair: Pair, trusting: ssl.SSLContext
) -> None:
    server = served(workers=2, tls=files(server_pair))
    with Peer(server, trusting) as old:
        old.ok(Type.PING)
        server.reload(workers=2, tls=files(certificates.sign("renewed")))
        for _ in range(4):
            with Peer(server, trusting) as new:
                assert isinstance(new.socket, ssl.SSLSocket)
                shown = new.socket.getpeercert()
                assert shown is not None
                assert shown["subject"] == ((("commonName", "renewed"),),)
        old.ok(Type.PING)


@pytest.mark.parametrize(
    ("opened", "mode", "told"),
    [
        ("key", 0o640, "the key has mode 0640, so others may read it"),
        ("key", 0o602, "the key has mode 0602, so others may write it"),
        ("certificate", 0o664, "the certificate has mode 0664, so others may write it"),
        ("client_ca", 0o666, "the file of authorities has mode 0666, so others may write it"),
        ("both", 0o644, "the certificate with its key has mode 0644, so others may read the key"),
    ],
)
def test_a_file_that_others_may_use_is_refused(
    certificates: Certificates, server_pair: Pair, tmp_path: Path, opened: str, mode: int, told: str
) -> None:
    made = {
        name: tmp_path / name for name in ("certificate", "key", "client_ca") if opened != "both"
    }
    sources = zip(made.values(), (*server_pair, certificates.ca), strict=False)
    for path, source in sources:
        shutil.copy(source, path)
    if opened == "both":
        made["certificate"] = tmp_path / "both"
        made["certificate"].write_bytes(b"".join(path.read_bytes() for path in server_pair))
    path = tmp_path / opened
    path.chmod(mode)

    with pytest.raises(shmq.InvalidOption) as refusal:
        Tls(**made).context()

    assert f"{told}: chmod 600 {path}" in str(refusal.value)
    path.chmod(0o600)
    Tls(**made).context()


def test_a_certificate_may_be_read_by_others(server_pair: Pair, tmp_path: Path) -> None:
    certificate = tmp_path / "certificate"
    shutil.copy(server_pair[0], certificate)
    certificate.chmod(0o644)

    Tls(certificate=certificate, key=server_pair[1]).context()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"certificate": "none.crt"}, "none.crt .*: No such file"),
        ({"key": "none.key"}, "No such file"),
        ({"key": "other"}, "KEY_VALUES_MISMATCH"),
        ({"certificate": "text"}, "text .* cannot be used"),
        ({"client_ca": "text"}, "authorities in .*text cannot be used"),
    ],
)
def test_files_that_cannot_be_used_are_told(
    tmp_path: Path,
    certificates: Certificates,
    server_pair: Pair,
    changed: dict[str, str],
    told: str,
) -> None:
    (tmp_path / "text").write_text("no PEM\n")
    (tmp_path / "other").write_bytes(certificates.sign("other")[1].read_bytes())
    (tmp_path / "other").chmod(0o600)
    paths = {**files(server_pair), **{key: tmp_path / name for key, name in changed.items()}}

    with pytest.raises(InvalidOption, match=told):
        Tls(**paths).context()


@pytest.mark.prove
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_client_that_sends_much_before_reading_gets_every_answer_in_order(
    served: Serve, server_pair: Pair, trusting: ssl.SSLContext, secure: bool
) -> None:
    """The server stops reading, and goes on where it stopped."""
    server = served(tls=files(server_pair) if secure else None)
    count = 300_000  # more than the buffers of the kernel grow to, in both directions
    pings = b"".join(frame(Type.PING, b"%064d" % n, n + 1) for n in range(count))
    answers, sent = bytearray(), 0
    with Peer(server, trusting if secure else None) as peer:
        for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            peer.socket.setsockopt(socket.SOL_SOCKET, buffer, 1 << 16)
        peer.socket.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            while sent < len(pings):
                sent += peer.socket.send(pings[sent : sent + 16_384])
        held_back = sent < len(pings)
        peer.socket.settimeout(60)
        while len(answers) < len(pings):
            answers += peer.socket.recv(1 << 16)
            if len(answers) > sent - (1 << 20) and sent < len(pings):
                sent += peer.socket.send(pings[sent : sent + 16_384])

    assert held_back
    size = len(pings) // count
    assert [answers[at + 12 : at + size] for at in range(0, len(answers), size)] == [
        pings[at + 12 : at + size] for at in range(0, len(pings), size)
    ]
