"""Arguments of streams: a wrong one is refused with its value, and does no harm later."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq import Broker, Stream
from shmq.model.codec.compression import compressor
from shmq.native import _stream
from tests.support.waiting import PATIENCE

from .tools import next_message

HUGE = 1 << 70
#: {[1]: 1}, in msgpack.
LISTED = b"\x81\x91\x01\x01"


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A stream of one small partition."""
    return broker.create_stream("events", 1, ring_bytes=64 << 10)


def test_a_read_has_nothing_of_its_end_or_behind_it(stream: Stream) -> None:
    stream.append_many([b"a", b"b", b"c"])

    for end in (0, 1):
        for how in ({}, {"view": True}, {"where": "size > 0"}, {"block": True}):
            found = stream.read(0, 1, end=end, **how)
            assert (len(found), found.next_offset) == (0, 1)
    assert stream.read(0, 1, end=2).values() == [b"b"]


def test_headers_that_are_no_map_are_refused(stream: Stream) -> None:
    for headers in (b"\x81\xa1a\x01", "a", 5, [], [("a", 1)]):
        with pytest.raises(TypeError, match="must be a map"):
            stream.append(b"", headers=headers)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="must be a map"):
            stream.append_many([b""], headers=[headers])  # type: ignore[list-item]
    assert stream.latest(0) == 0


def test_a_text_with_a_lone_surrogate_is_refused(stream: Stream) -> None:
    for value, how in (("\ud800", {}), (1, {"key": "\ud800"}), (1, {"headers": {"k": "\ud800"}})):
        with pytest.raises(shmq.InvalidOption, match="as it has a lone surrogate"):
            stream.append(value, **how)
    with pytest.raises(shmq.InvalidOption, match="as it has a lone surrogate"):
        stream.read(0, 0, where="key = '\ud800'")
    assert stream.latest(0) == 0


def test_a_record_that_could_not_be_confirmed_on_disk_is_not_appended(stream: Stream) -> None:
    for confirm in ("disk", "paper"):
        with pytest.raises(shmq.InvalidOption, match="confirm="):
            stream.append(b"", confirm=confirm)  # type: ignore[arg-type]
        with pytest.raises(shmq.InvalidOption, match="confirm="):
            stream.append_many([b""], confirm=confirm)  # type: ignore[arg-type]
        with pytest.raises(shmq.InvalidOption, match="confirm="):
            stream.append_block(_stream.pack_records([b""]), partition=0, confirm=confirm)  # type: ignore[arg-type]
    assert stream.latest(0) == 0


@pytest.mark.parametrize("timeout", [-1, float("nan"), 10**400])
def test_a_wrong_timeout_is_refused_also_without_a_wait(stream: Stream, timeout: Any) -> None:
    for call in (
        lambda: stream.append(b"", timeout=timeout),
        lambda: stream.append(b"", block=False, timeout=timeout),
        lambda: stream.append_many([b""], timeout=timeout),
        lambda: stream.read(0, 0, timeout=timeout),
        lambda: stream.read(0, 0, block=True, timeout=timeout),
    ):
        with pytest.raises(shmq.InvalidOption, match="timeout="):
            call()
    assert stream.latest(0) == 0


@pytest.mark.parametrize("number", [0, -1])
def test_a_read_is_of_one_record_and_one_byte_at_least(stream: Stream, number: int) -> None:
    with pytest.raises(shmq.InvalidOption, match=rf"limit={number} must be 1 or more"):
        stream.read(0, 0, number)
    with pytest.raises(shmq.InvalidOption, match=rf"max_bytes={number} must be 1 or more"):
        stream.read(0, 0, max_bytes=number)


@pytest.mark.parametrize("confirm", [True, 0, b"disk"])
def test_what_confirms_is_a_text(stream: Stream, confirm: Any) -> None:
    for append in (stream.append, lambda value, **how: stream.append_many([value], **how)):
        with pytest.raises(TypeError, match=r"confirm=.* must be one of 'memory', 'disk'"):
            append(b"", confirm=confirm)
    assert stream.latest(0) == 0


def append_damaged(stream: Stream) -> None:
    """A record whose headers are a map with a key that no map in Python can have."""
    block = _stream.pack_records([b"x"], headers=[{"a": 1}]).replace(b"\x81\xa1a\x01", LISTED)
    with pytest.raises(shmq.InvalidOption):
        stream.append_block(block, partition=0)
    stream.append_block(
        compressor("lz4")(block), partition=0, count=1, compression="lz4", raw_bytes=len(block)
    )


EXPANDED = "what is compressed is expanded by a server before it is appended"


@pytest.mark.only_local(EXPANDED)
def test_damaged_headers_are_one_clear_error_and_no_expression_meets_them(stream: Stream) -> None:
    append_damaged(stream)
    stream.append(b"y", headers={"a": 1})

    with pytest.raises(shmq.ShmqError, match="offset 0 of partition 0 are damaged"):
        _ = stream.read(0, 0)[0].headers
    assert stream.read(0, 0, where="header.a = 1").values() == [b"y"]


@pytest.mark.only_local(EXPANDED)
def test_a_record_with_damaged_headers_becomes_a_dead_letter(
    broker: Broker, stream: Stream
) -> None:
    dead_letter_queue = broker.create_queue("dead_letter_queues")
    append_damaged(stream)
    with stream.share("g", max_deliveries=1, dead_letter="dead_letter_queues") as share:
        message = share.get(timeout=PATIENCE)
        message.reject()
        with pytest.raises(shmq.Empty):
            share.get(timeout=0)

    letter = next_message(dead_letter_queue)
    assert (letter.body, letter.headers["shmq-headers"]) == (b"x", LISTED)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_block_that_is_not_compressed_with_what_it_says_is_refused(
    stream: Stream, compression: Any
) -> None:
    for block in (b"", b"junk", b"\x04\x22\x4d", b"\x28\xb5\x2f"):
        with pytest.raises(shmq.InvalidOption):
            stream.append_block(block, partition=0, count=1, compression=compression, raw_bytes=99)
    assert stream.latest(0) == 0


def test_without_the_library_a_read_says_which_records_and_what_to_install(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.append(b"plain")
    with stream.producer(compression="lz4") as producer:
        producer.send(b"a" * 900)

    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(shmq.Unsupported, match=r"offset 1 on: .*shmq\[compression\]"):
        stream.read(0, 0)


def test_one_record_that_is_compressed_alone_is_read_among_others(stream: Stream) -> None:
    for value in (b"a" * 900, b"b" * 900):
        with stream.producer(compression="lz4") as producer:
            producer.send(value)
        stream.append(b"plain")

    for how in ({}, {"view": True}):
        found = stream.read(0, 0, **how)  # type: ignore[arg-type]
        assert [bytes(it.value) for it in found] == [b"a" * 900, b"plain", b"b" * 900, b"plain"]


# ---- arguments ----

ASKED: dict[str, tuple[Any, type[Exception], str]] = {
    "a read beyond all": (lambda s: s.read(0, HUGE), shmq.InvalidOption, "offset"),
    "a read to beyond all": (lambda s: s.read(0, 0, end=HUGE), shmq.InvalidOption, "end"),
    "a read by a number": (lambda s: s.read(0, 0, where=5), TypeError, "where=5"),
    "a reader by a number": (lambda s: s.reader(where=5), TypeError, "where=5"),
    "a reader of another partition": (lambda s: s.reader({7: 1}), shmq.InvalidOption, "=7"),
    "a reader of no number": (lambda s: s.reader({"x": 1}), TypeError, "='x'"),
    "a reader of a negative one": (lambda s: s.reader({-1: 0}), shmq.InvalidOption, "=-1"),
    "a reader from beyond all": (lambda s: s.reader({0: HUGE}), shmq.InvalidOption, str(HUGE)),
    "seek None": (lambda s: s.reader().seek(None), TypeError, "position=None"),
    "seek 5": (lambda s: s.reader().seek(5), TypeError, "position=5"),
    "seek a text": (lambda s: s.reader().seek("x"), TypeError, "position='x'"),
    "seek elsewhere": (lambda s: s.reader().seek({7: 1}), shmq.InvalidOption, "=7"),
    "a producer beyond all": (
        lambda s: s.append(b"", producer=HUGE, sequence=0, partition=0),
        shmq.InvalidOption,
        "producer=",
    ),
    "a sequence beyond all": (
        lambda s: s.append(b"", producer=1, sequence=HUGE, partition=0),
        shmq.InvalidOption,
        "sequence=",
    ),
    "many of bytes": (lambda s: s.append_many(b"abc"), TypeError, "one value, not many"),
    "many of a text": (lambda s: s.append_many("abc"), TypeError, "one value, not many"),
    "a key that is a number": (lambda s: s.append(b"", key=5), TypeError, "key=5"),
    "a producer's key": (lambda s: s.producer().send(b"", key=5), TypeError, "key=5"),
    "a producer's headers": (lambda s: s.producer().send(b"", headers=5), TypeError, "headers=5"),
    "no partitioner": (lambda s: s.producer(partitioner=0), TypeError, "partitioner=0"),
    "on_lost is not a callable": (lambda s: s.subscribe(on_lost=5), TypeError, "on_lost=5"),
}


@pytest.mark.parametrize("what", ASKED)
def test_what_a_stream_cannot_do_is_refused_with_its_value(stream: Stream, what: str) -> None:
    ask, kind, told = ASKED[what]
    with pytest.raises(kind, match=told):
        ask(stream)
    assert stream.latest(0) == 0


ORDERED: dict[str, tuple[Any, type[Exception], str]] = {
    "retention": (
        lambda b: b.create_stream("s", retention_bytes=HUGE),
        shmq.InvalidOption,
        "retention_bytes=",
    ),
    "a request to None": (lambda b: b.request(None, b"", 1), TypeError, "queue=None"),
    "a request to 5": (lambda b: b.request(5, b"", 1), TypeError, "queue=5"),
    "a request to bytes": (lambda b: b.request(b"x", b"", 1), TypeError, "queue=b'x'"),
    "serve None": (lambda b: b.serve(None, print), TypeError, "queue=None"),
    "serve until a text": (lambda b: b.serve("q", print, stop="x"), TypeError, "stop='x'"),
    "serve with nothing": (lambda b: b.serve("q", None), TypeError, "handler=None"),
    "a schema's version": (lambda b: b.schema("q", True), TypeError, "version=True"),
    "headers that are a number": (
        lambda b: b.create_exchange("e", "headers").publish(b"", headers=5),
        TypeError,
        "headers=5",
    ),
    "headers that are a text": (
        lambda b: b.create_exchange("e", "headers").publish(b"", headers="x"),
        TypeError,
        "headers='x'",
    ),
    "a binding beyond 64 bits": (
        lambda b: b.create_exchange("e", "headers").bind("q", headers={"a": HUGE}),
        shmq.InvalidOption,
        str(HUGE),
    ),
}


@pytest.mark.parametrize("what", ORDERED)
def test_what_a_broker_cannot_do_is_refused_with_its_value(broker: Broker, what: str) -> None:
    broker.create_queue("q")
    ask, kind, told = ORDERED[what]
    with pytest.raises(kind, match=told):
        ask(broker)


@pytest.mark.only_local("a server has the table of exchanges mapped, and not its clients")
def test_a_broker_that_is_closed_has_let_go_of_the_exchanges(
    broker: Broker, namespace: str
) -> None:
    with shmq.connect(namespace) as other:
        other.create_exchange("e")
        assert any("exchanges.shmq@" + namespace in line for line in maps())
    broker.close()
    assert not any("exchanges.shmq@" + namespace in line for line in maps())


def maps() -> list[str]:
    """What this process has mapped."""
    return Path("/proc/self/maps").read_text().splitlines()


def test_a_mirror_without_a_site_to_keep_it_is_refused(broker: Broker) -> None:
    """A host has none; neither has a single server of NATS, which has no name of a site."""
    refusal = r"mirror='site-b' is possible on a cluster alone|has no name of a site"
    for make in (broker.create_stream, broker.ensure_stream):
        with pytest.raises((shmq.Unsupported, shmq.InvalidOption), match=refusal):
            make("copied", mirror="site-b")
    assert broker.list_streams() == []
