"""Connecting to a server, and the error where there is none."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.client.remote.address import Address
from shmq.client.remote.connect import Seal
from tests.support.certificates import WHY_NOT, Certificates
from tests.support.server import Server, fixed_port, serve

TOKEN = "a token that nobody guesses, of a length that one asks for"
EVERYTHING = {"produce": ["*"], "consume": ["*"], "admin": ["*"]}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("shmq://there", Address("there", 9999, False)),
        ("shmq://there:1/", Address("there", 1, False)),
        ("shmqs://there:65535", Address("there", 65535, True)),
        ("shmq://127.0.0.1:80", Address("127.0.0.1", 80, False)),
        ("shmq://[::1]:80", Address("::1", 80, False)),
    ],
)
def test_a_url_is_a_host_a_port_and_whether_there_is_tls(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "http://there:1",
        "shmq://",
        "shmq://:1",
        "shmq://there:0",
        "shmq://there:65536",
        "shmq://there:x",
        "shmq://there/queue",
        "shmq://there?a=b",
        "shmq:// there",
        "shmq://there:1 ",
        "shmq://::1:80",
        "shmq://[::1",
        "shmqs://[there]",
    ],
)
def test_what_is_no_url_of_a_server_is_refused_with_it(text: str) -> None:
    with pytest.raises(shmq.InvalidOption) as error:
        shmq.connect(text)

    assert text in str(error.value)


def test_an_error_of_a_broken_url_does_not_show_its_password() -> None:
    with pytest.raises(shmq.InvalidOption, match="is not a URL") as caught:
        Address.parse("shmq://user:secret@[::1")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["shmq://::1:80", "shmq://there:x", "shmqs://there:65536"])
def test_what_is_no_port_is_told_with_what_would_be(text: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=r"a number from 1 to 65535.*\[::1\]:PORT"):
        Address.parse(text)


def test_a_url_with_a_secret_is_refused_without_showing_it() -> None:
    with pytest.raises(shmq.InvalidOption, match="token=") as error:
        shmq.connect("shmq://:hidden@there")

    assert "hidden" not in str(error.value)


def test_a_name_without_a_scheme_is_a_namespace(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        assert broker.namespace == namespace


def test_the_environment_names_a_server_before_a_namespace(
    monkeypatch: pytest.MonkeyPatch, url: str, namespace: str
) -> None:
    monkeypatch.setenv("SHMQ_NAMESPACE", "another")
    monkeypatch.setenv("SHMQ_URL", url)

    with shmq.connect() as broker:
        assert broker.namespace == namespace
    with shmq.connect("third") as broker:
        assert broker.namespace == "third"
    monkeypatch.setenv("SHMQ_URL", "")
    with shmq.connect() as broker:
        assert broker.namespace == "another"


def test_what_is_for_a_server_is_refused_for_a_namespace(namespace: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=namespace):
        shmq.connect(namespace, token=TOKEN)
    with pytest.raises(shmq.InvalidOption, match=namespace):
        shmq.connect(namespace, tls=True)


def test_a_port_without_a_listener_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with pytest.raises(shmq.ConnectionLost, match=f"127.0.0.1:{port}.*refused") as error:
        shmq.connect(f"shmq://127.0.0.1:{port}")

    assert isinstance(error.value, ConnectionError)


def test_a_host_that_is_not_there_is_named() -> None:
    with pytest.raises(shmq.ConnectionLost, match=r"nowhere\.invalid:9999"):
        shmq.connect("shmq://nowhere.invalid")


def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        with pytest.raises(shmq.ConnectionLost, match=f"127.0.0.1:{port}.*HELLO"):
            shmq.connect(f"shmq://127.0.0.1:{port}", connect_timeout=0.5)


def test_a_server_of_another_kind_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"shmq://127.0.0.1:{other.getsockname()[1]}"

        def answer() -> None:
            sock, _ = other.accept()
            with sock:
                sock.recv(100)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()

        with pytest.raises(shmq.ConnectionLost, match="DEADBEEF"):
            shmq.connect(url)


@pytest.mark.parametrize("name", ["connect_timeout", "request_timeout"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_timeout_that_is_none_is_refused(url: str, name: str, value: float) -> None:
    with pytest.raises(shmq.InvalidOption, match=name):
        shmq.connect(url, **{name: value})  # type: ignore[arg-type]


def test_a_broker_tells_where_it_is_and_pings(broker: Any, url: str) -> None:
    assert broker.url == url
    assert broker.server.startswith("shmq/")
    assert 0 < broker.ping(b"there?") < 60
    with pytest.raises(shmq.InvalidOption, match="65"):
        broker.ping(bytes(65))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture
def guarded(namespace: str) -> Iterator[Server]:
    """A server that asks for a token; another one may only look at and fill ``in.*``."""
    rights = {TOKEN: EVERYTHING, TOKEN + " 2": {"produce": ["in.*"]}}
    with serve(namespace, tokens=rights) as server:
        yield server


@pytest.mark.prove
def test_a_token_authenticates_and_its_rights_bind(guarded: Server) -> None:
    with shmq.connect(guarded.url, token=TOKEN) as broker:
        broker.create_queue("in.a")
        broker.create_queue("other")
    with shmq.connect(guarded.url, token=TOKEN + " 2") as broker:
        queue = broker.queue("in.a")
        queue.put(b"x")

        with pytest.raises(shmq.Forbidden, match=r"in\.a"):
            queue.get(block=False)
        with pytest.raises(shmq.Forbidden):
            queue.purge()
        with pytest.raises(PermissionError):
            broker.delete_queue("in.a")
        with pytest.raises(shmq.NoSuchQueue):
            broker.queue("other")
        for make in (broker.create_queue, broker.ensure_queue):
            with pytest.raises(shmq.NoSuchQueue, match="may make none of that name"):
                make("mine")
        assert [line.name for line in broker.list_queues()] == ["in.a", "in.a.dlq"]


def test_no_token_or_another_is_unauthorized(
    guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(shmq.Unauthorized, match="requires a token"):
        shmq.connect(guarded.url)
    with pytest.raises(shmq.Unauthorized, match="rejected the token"):
        shmq.connect(guarded.url, token="another")
    monkeypatch.setenv("SHMQ_TOKEN", TOKEN)
    with shmq.connect(guarded.url, token=TOKEN) as broker:
        assert broker.list_queues() == []


@pytest.mark.prove
def test_the_token_of_the_environment_is_used(
    guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(shmq.Unauthorized):
        shmq.connect(guarded.url)

    monkeypatch.setenv("SHMQ_TOKEN", TOKEN)

    with shmq.connect(guarded.url) as broker:
        assert broker.list_queues() == []


@pytest.mark.prove
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_tls_carries_everything_and_checks_certificates(namespace: str, folder: Path) -> None:
    made = Certificates(folder)
    certificate, key = made.sign("server")
    mine, my_key = made.sign("client")
    files = {"ca": made.ca, "certificate": mine, "key": my_key}
    settings = {"certificate": str(certificate), "key": str(key), "client_ca": str(made.ca)}
    with serve(namespace, tls=settings) as server:
        assert server.url.startswith("shmqs://")
        with shmq.connect(server.url, tls=files) as broker:
            queue = broker.create_queue("q")
            body = bytes(range(256)) * 4096
            queue.put(body)
            assert queue.get().body == body
            queue.put_many(range(1000))
            with queue.consume() as messages:
                assert [next(messages).body for _ in range(1000)] == list(range(1000))

        with pytest.raises(shmq.ConnectionLost, match=r"certificate is refused: .* --cafile"):
            shmq.connect(server.url)
        with pytest.raises(shmq.ConnectionLost, match="requires a client certificate"):
            shmq.connect(server.url, tls=made.ca).list_queues()
        with pytest.raises(shmq.ConnectionLost, match="begins with shmqs://"):
            shmq.connect(server.url.replace("shmqs", "shmq"))


def test_tls_where_the_server_speaks_none_is_told(url: str) -> None:
    with pytest.raises(shmq.ConnectionLost, match=r"speaks no TLS; .* shmq://"):
        shmq.connect(url.replace("shmq:", "shmqs:"))


@pytest.mark.prove
def test_every_call_without_a_server_has_its_time_and_the_next_finds_it_again(
    namespace: str,
) -> None:
    with contextlib.ExitStack() as ends:
        port = fixed_port()
        with serve(namespace, port=port) as server:
            broker = shmq.connect(server.url, request_timeout=1.0)
            ends.callback(broker.close)
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(shmq.ConnectionLost, match="refused"):
                broker.list_queues()
            assert time.monotonic() - began >= 0.9

        with serve(namespace, port=port):
            assert broker.list_queues() == []


def test_a_file_that_is_not_pem_is_told_as_such(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("nothing of the kind")

    for tls in ({"ca": wrong}, {"certificate": wrong}):
        with pytest.raises(shmq.InvalidOption, match=r"wrong'.*must be a file of PEM") as error:
            shmq.connect("shmqs://127.0.0.1:1", tls=tls)
        assert "_ssl.c" not in str(error.value)


def test_a_token_that_no_server_can_have_is_refused_without_showing_it() -> None:
    with pytest.raises(shmq.InvalidOption, match="token") as error:
        shmq.connect("shmq://127.0.0.1:1", token="hidden\udc80")

    assert "hidden" not in str(error.value)


def test_a_handshake_that_drips_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as slow:
        url = f"shmqs://127.0.0.1:{slow.getsockname()[1]}"
        given_up = threading.Event()

        def drip() -> None:
            sock, _ = slow.accept()
            with sock:
                for byte in b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc" + bytes(1000):
                    if given_up.wait(0.05):
                        return
                    sock.sendall(bytes([byte]))

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(shmq.ConnectionLost, match="no answer in time"):
                shmq.connect(url, connect_timeout=0.2)
        finally:
            given_up.set()
            thread.join()


def test_one_thread_seals_while_another_opens(folder: Path) -> None:
    made = Certificates(folder)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(*made.sign("server"))
    mine = ssl.create_default_context(cafile=made.ca)
    to_them, to_me = ssl.MemoryBIO(), ssl.MemoryBIO()
    them = theirs.wrap_bio(to_them, to_me, server_side=True)
    seal = Seal(mine, "127.0.0.1")
    done, out = seal.shake_hands(None)
    while not done:
        to_them.write(out)
        with contextlib.suppress(ssl.SSLWantReadError):
            them.do_handshake()
        done, out = seal.shake_hands(to_me.read())
    to_them.write(out)
    them.do_handshake()
    opened = []

    def read() -> None:
        for _ in range(300):
            them.write(bytes(10_000))
            opened.append(seal.open(to_me.read()))

    reader = threading.Thread(target=read)
    reader.start()
    while reader.is_alive():
        seal.seal(bytes(50_000))
    reader.join()
    assert sum(len(part or b"") for part in opened) == 3_000_000


@pytest.mark.parametrize(
    "tls", ["/nowhere/ca.pem", {"ca": "/nowhere"}, {"cert": "x"}, {"certificate": "/nowhere"}]
)
def test_tls_files_that_cannot_be_used_are_named(tls: Any) -> None:
    with pytest.raises(shmq.InvalidOption, match="tls"):
        shmq.connect("shmqs://127.0.0.1:1", tls=tls)


def test_tls_of_a_wrong_type_and_a_contradiction_are_refused() -> None:
    with pytest.raises(TypeError, match="int"):
        shmq.connect("shmqs://127.0.0.1:1", tls=5)  # type: ignore[arg-type]
    with pytest.raises(shmq.InvalidOption, match="tls=False"):
        shmq.connect("shmqs://127.0.0.1:1", tls=False)


def test_a_context_of_ones_own_is_used(namespace: str) -> None:
    with pytest.raises(shmq.ConnectionLost, match=r"127\.0\.0\.1:1"):
        shmq.connect("shmqs://127.0.0.1:1", tls=ssl.create_default_context())
