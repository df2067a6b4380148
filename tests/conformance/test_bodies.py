"""Bodies, codecs and headers."""

from __future__ import annotations

import array
import math
from typing import Any

import pytest

import shmq
from shmq import Message, Queue


def there_and_back(queue: Queue, body: Any, **properties: Any) -> Message:
    queue.put(body, **properties)
    return queue.get()


@pytest.mark.parametrize(
    "buffer",
    [
        b"",
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"memoryview"),
        memoryview(b"abcdef")[::2],
        array.array("d", [1.0, 2.5]),
        bytes(range(256)),
        bytes(100_000),
    ],
    ids=lambda buffer: f"{type(buffer).__name__}-{len(bytes(buffer))}",
)
def test_any_buffer_travels_as_its_bytes(queue: Queue, buffer: Any) -> None:
    message = there_and_back(queue, buffer)

    assert message.codec == "bytes"
    assert message.body == bytes(buffer)
    assert isinstance(message.body, bytes)
    assert bytes(message.view) == bytes(buffer)


@pytest.mark.parametrize("text", ["", "hello", "naïve ☃ 𝄞", "\x00\n", "x" * 50_000])
def test_a_str_travels_as_text(queue: Queue, text: str) -> None:
    message = there_and_back(queue, text)

    assert (message.codec, message.body) == ("text", text)
    assert bytes(message.view) == text.encode()


@pytest.mark.parametrize(
    "thing",
    [
        None,
        True,
        0,
        -1,
        2**64 - 1,
        -(2**63),
        1.5,
        math.inf,
        [],
        {},
        [1, "two", b"three", None, [4.0]],
        {"a": {"b": [1, 2]}, "c": "ü"},
        {1: "int keys", b"bytes": 2},
    ],
    ids=repr,
)
def test_what_msgpack_holds_travels_as_msgpack(queue: Queue, thing: Any) -> None:
    message = there_and_back(queue, thing)

    assert (message.codec, message.body) == ("msgpack", thing)


def test_a_tuple_arrives_as_a_list(queue: Queue) -> None:
    assert there_and_back(queue, (1, (2, 3))).body == [1, [2, 3]]


@pytest.mark.parametrize(
    ("thing", "named"),
    [
        (object(), "object"),
        ({1, 2}, "set"),
        (1j, "complex"),
        ([1, {"deep": object()}], "object"),
        ({"f": print}, "builtin_function_or_method"),
        (2**64, str(2**64)),
        (-(2**63) - 1, str(-(2**63) - 1)),
    ],
    ids=["object", "set", "complex", "nested", "function", "too-big-int", "too-small-int"],
)
def test_what_msgpack_cannot_hold_is_a_type_error_that_names_it(
    queue: Queue, thing: Any, named: str
) -> None:
    with pytest.raises(TypeError, match=named):
        queue.put(thing)

    assert queue.qsize() == 0


def test_a_body_that_holds_itself_is_a_type_error(queue: Queue) -> None:
    knot: list[Any] = []
    knot.append(knot)

    with pytest.raises(TypeError, match="list"):
        queue.put(knot)


@pytest.mark.parametrize(
    ("body", "properties", "named"),
    [
        ("\ud800", {}, r"body='\\ud800'"),
        ({"k": ["\ud800"]}, {}, r"body\['k'\]\[0\]='\\ud800'"),
        ({"\ud800": 1}, {}, r"body \(a key\)='\\ud800'"),
        ([1, {"k": "\ud800"}], {"codec": "json"}, r"body\[1\]\['k'\]='\\ud800'"),
        (1, {"headers": {"k": "\ud800"}}, r"headers\['k'\]='\\ud800'"),
        (1, {"headers": {"\ud800": 1}}, r"headers \(a key\)='\\ud800'"),
        (1, {"group": "\ud800"}, r"group='\\ud800'"),
    ],
)
def test_a_text_with_a_lone_surrogate_is_refused_with_its_place(
    queue: Queue, body: Any, properties: dict[str, Any], named: str
) -> None:
    how = "cannot be encoded as UTF-8, as it has a lone surrogate: replace that character"
    for put in (queue.put, lambda *a, **k: queue.put_many([a[0]], **k)):
        with pytest.raises(shmq.InvalidOption, match=f"^{named} {how}"):
            put(body, **properties)

    assert queue.qsize() == 0


@pytest.mark.refused_by_clusters
def test_a_where_with_a_lone_surrogate_is_refused(queue: Queue) -> None:
    for where in ("\ud800", "group = '\ud800'"):
        with pytest.raises(shmq.InvalidOption, match=r"^where=.* cannot be encoded as UTF-8"):
            queue.get(block=False, where=where)


@pytest.mark.parametrize("codec", ["json", "command", "event", "msgpack"])
def test_a_codec_may_be_chosen_and_is_on_the_message(queue: Queue, codec: str) -> None:
    body = {"name": "start", "args": [1, 2.5, None, "é"]}

    message = there_and_back(queue, body, codec=codec)

    assert (message.codec, message.body) == (codec, body)


def test_a_json_body_is_json_in_the_queue(queue: Queue) -> None:
    import json

    message = there_and_back(queue, {"a": [1, 2]}, codec="json")

    assert json.loads(bytes(message.view)) == {"a": [1, 2]}


def test_what_json_cannot_hold_is_a_type_error_that_names_it(queue: Queue) -> None:
    with pytest.raises(TypeError, match="set"):
        queue.put({"a": {1}}, codec="json")

    assert queue.qsize() == 0


def test_a_codec_of_ones_own_carries_bytes(queue: Queue) -> None:
    message = there_and_back(queue, b"\x01\x02", codec="protobuf")

    assert (message.codec, message.body) == ("protobuf", b"\x01\x02")


def test_the_body_may_be_asked_for_again(queue: Queue) -> None:
    message = there_and_back(queue, {"a": 1})

    assert message.body == {"a": 1}
    assert message.body == {"a": 1}


@pytest.mark.parametrize("body", [b"small", b"x" * 4096, "text", {"a": 1}])
def test_a_small_body_can_still_be_read_after_the_ack(queue: Queue, body: Any) -> None:
    message = there_and_back(queue, body)

    message.ack()
    queue.put(b"\xff" * 5000)

    assert message.body == body


def test_a_large_body_read_once_can_still_be_read_after_the_ack(queue: Queue) -> None:
    message = there_and_back(queue, b"a" * 100_000)
    assert len(message.body) == 100_000

    message.ack()
    queue.put(b"b" * 100_000)

    assert message.body == b"a" * 100_000


def test_the_queue_takes_a_copy_of_the_body(queue: Queue) -> None:
    body = bytearray(b"before")
    queue.put(body)

    body[:] = b"after!"

    assert queue.get().body == b"before"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"a": 1},
        {"text": "ü", "bytes": b"\x00", "none": None, "list": [1, 2], "map": {"x": 1.5}},
        {f"header-{number}": number for number in range(100)},
    ],
    ids=len,
)
def test_headers_travel_with_the_message(queue: Queue, headers: dict[str, Any]) -> None:
    assert dict(there_and_back(queue, b"x", headers=headers).headers) == headers


def test_headers_are_those_of_their_own_message(queue: Queue) -> None:
    queue.put(b"1", headers={"n": 1})
    queue.put(b"2")
    queue.put(b"3", headers={"n": 3})

    assert [dict(queue.get().headers) for _ in range(3)] == [{"n": 1}, {}, {"n": 3}]


def test_headers_can_still_be_read_after_the_ack(queue: Queue) -> None:
    message = there_and_back(queue, b"x", headers={"k": "v"})
    message.ack()

    assert dict(message.headers) == {"k": "v"}


def test_what_msgpack_cannot_hold_in_a_header_is_a_type_error_that_names_it(queue: Queue) -> None:
    with pytest.raises(TypeError, match="set"):
        queue.put(b"x", headers={"tags": {1, 2}})

    assert queue.qsize() == 0
