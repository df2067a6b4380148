"""Streams and their records by HTTP."""

from __future__ import annotations

import base64
import json
import threading

import psutil
import pytest

import shmq
from tests.support.console import Console, Reply
from tests.support.waiting import eventually
from tests.support.writer_process import running_writer

RECORDS = "/streams/clicks/records"
FIRST = "/streams/clicks/partitions/0/records"


@pytest.fixture
def clicks(shop: shmq.Broker) -> shmq.Stream:
    """A stream of one partition."""
    return shop.create_stream("clicks", 1)


def test_a_record_is_confirmed_on_disk_without_a_timeout(site: Console, place: str) -> None:
    with running_writer(place):
        assert site.api("PUT", "/streams/kept", {"durability": "journal"}).status == 201
        told = site.api("POST", "/streams/kept/records", {"body": 1, "confirm": "disk"})
        assert (told.status, len(told.json["items"])) == (201, 1)
        assert site.api("DELETE", "/streams/kept").status == 204


def test_options_of_a_stream_are_altered_and_others_stay(
    site: Console, shop: shmq.Broker, clicks: shmq.Stream
) -> None:
    before, offset = clicks.options, clicks.append("kept").offset
    reply = site.api("PATCH", "/streams/clicks", {"ring_bytes": 4 * before.ring_bytes})
    assert (reply.status, reply.json["options"]["ring_bytes"]) == (200, 4 * before.ring_bytes)
    now = shop.stream("clicks").options
    assert now.as_dict() == {**before.as_dict(), "ring_bytes": 4 * before.ring_bytes}
    assert [record.body for record in clicks.read(0, offset)] == ["kept"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"retention_seconds": 9, "overflow": "block"}, "overflow='block' (it has 'drop-oldest')"),
        ({"retention_seconds": 9, "ring_bytes": 1 << 60}, "ring_bytes"),
        ({"retention_seconds": 9, "ring_bytes": "x"}, "ring_bytes='x' must be an int"),
        ({"retention_seconds": 9, "<b>": 1}, "unknown option '<b>'"),
        ({"retention_seconds": 9, "name": "other"}, "unknown option 'name'"),
    ],
)
def test_what_is_wrong_with_one_option_of_a_stream_alters_none(
    site: Console, shop: shmq.Broker, clicks: shmq.Stream, given: dict[str, object], why: str
) -> None:
    before = clicks.options
    reply = site.api("PATCH", "/streams/clicks", given)
    assert (reply.status, reply.code) == (400, "invalid")
    assert why in reply.json["detail"]
    assert shop.stream("clicks").options == before
    assert site.api("PATCH", "/streams/none", {"retention_seconds": 9}).code == "not-found"


def test_a_stream_is_made_once_and_found_again(site: Console, shop: shmq.Broker) -> None:
    made = site.api("PUT", "/streams/clicks", {"partitions": 2})
    assert (made.status, len(made.json["partitions"])) == (201, 2)
    again = site.api("PUT", "/streams/clicks", {"partitions": 2})
    assert (again.status, again.json["identity"]) == (200, made.json["identity"])
    assert isinstance(made.json["identity"], str)


def test_other_options_are_refused_with_the_differences(site: Console, clicks: shmq.Stream) -> None:
    told = site.api("PUT", "/streams/clicks", {"partitions": 3, "retention_seconds": 9})
    assert (told.status, told.code) == (409, "exists")
    assert told.json["differences"] == {
        "partitions": {"wanted": 3, "there": 1},
        "retention_seconds": {"wanted": 9, "there": None},
    }


def test_options_that_are_left_out_are_not_compared(site: Console, shop: shmq.Broker) -> None:
    shop.create_stream("clicks", 7, retention_seconds=9)
    assert site.api("PUT", "/streams/clicks", {}).status == 200


def test_a_repartitioned_stream_is_found_by_its_first_and_its_present_number(
    site: Console, clicks: shmq.Stream
) -> None:
    done = site.api("POST", "/streams/clicks/repartition", {"partitions": 3})
    assert (done.status, done.json) == (200, {"open": [1, 2, 3]})
    answers = [site.api("PUT", "/streams/clicks", {"partitions": n}).status for n in (1, 2, 3, 4)]
    assert answers == [200, 409, 200, 200]
    sealed = [one["sealed"] for one in site.api("GET", "/streams/clicks").json["partitions"]]
    assert sealed == [True, False, False, False]


def test_the_list_shows_what_an_expression_selects(site: Console, shop: shmq.Broker) -> None:
    shop.create_stream("empty", 1)
    shop.create_stream("busy", 1).append("x")

    def listed() -> bool:
        page = site.api("GET", "/streams", where="records > 0", columns="records,hot").json
        return bool(page["items"] == [{"name": "busy", "records": 1, "hot": 0}])

    eventually(listed, "busy alone is listed")
    largest = site.api("GET", "/streams", sort="records", limit=1).json["items"]
    assert [one["name"] for one in largest] == ["busy"]


def test_a_stream_shows_offsets_rates_and_groups(site: Console, clicks: shmq.Stream) -> None:
    clicks.append_many(["a", "b", "c"])
    clicks.group("billing")
    shown = site.api("GET", "/streams/clicks").json
    (partition,) = shown["partitions"]
    assert (partition["earliest"], partition["latest"]) == (0, 3)
    assert partition["rate"] > 0
    assert [(one["name"], one["lag"]) for one in shown["groups"]] == [("billing", 3)]
    assert set(site.api("GET", "/streams/clicks/history").json) >= {"at", "rate_in", "depth"}


@pytest.mark.parametrize(
    ("given", "key", "body"),
    [
        ({"body": {"n": [1, None]}, "key": "k"}, b"k", {"n": [1, None]}),
        ({"body": "é", "encoding": "text"}, None, "é"),
        ({"body": "AP8=", "encoding": "base64"}, None, b"\x00\xff"),
        ({"body": 1, "key": "/w==", "key_encoding": "base64"}, b"\xff", 1),
        ({"body": {"n": 1}, "codec": "msgpack"}, None, {"n": 1}),
    ],
)
def test_a_record_is_appended_and_read_again_as_it_was(
    site: Console, clicks: shmq.Stream, given: dict[str, object], key: object, body: object
) -> None:
    done = site.api("POST", RECORDS, {**given, "headers": {"source": "web"}})
    assert done.status == 201
    assert [(one["partition"], one["offset"]) for one in done.json["items"]] == [(0, 0)]
    (record,) = clicks.read(0, 0)
    assert (record.key, record.body, record.headers) == (key, body, {"source": "web"})
    (shown,) = site.api("GET", FIRST).json["items"]
    if shown["encoding"] == "base64":
        assert base64.b64decode(shown["body"]) == body
    else:
        assert shown["body"] == body
    assert shown["key_encoding"] == given.get("key_encoding", "text")


def ndjson(site: Console, *lines: object) -> Reply:
    content = b"\n".join(json.dumps(line).encode() for line in lines)
    return site.ask("POST", f"/api/v1{RECORDS}", content, {"Content-Type": "application/x-ndjson"})


def test_lines_of_ndjson_are_records_in_order(site: Console, clicks: shmq.Stream) -> None:
    done = ndjson(site, *({"body": n} for n in range(5)))
    assert [one["offset"] for one in done.json["items"]] == [0, 1, 2, 3, 4]
    assert [one.body for one in clicks.read(0, 0)] == [0, 1, 2, 3, 4]


def test_a_line_that_is_wrong_appends_none(site: Console, clicks: shmq.Stream) -> None:
    told = ndjson(site, {"body": 1}, {"boddy": 2})
    assert (told.status, told.code) == (400, "invalid")
    assert clicks.latest(0) == 0


def test_a_refusal_of_a_later_record_tells_how_many_were_taken(
    site: Console, clicks: shmq.Stream
) -> None:
    told = ndjson(site, {"body": 1}, {"body": 2, "partition": 5})
    assert (told.status, told.json["taken"], clicks.latest(0)) == (400, 1, 1)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"body": 1, "encoding": "text"},
        {"body": "!", "encoding": "base64"},
        {"body": 1, "key": "!", "key_encoding": "base64"},
        {"body": 1, "codec": "pickle"},
        {"body": 1, "partition": -1},
        {"body": 1, "timestamp": -1e300},
        {"body": 1, "confirm": "disk"},
        {"body": 1, "headers": [1]},
    ],
    ids=str,
)
def test_a_record_that_is_wrong_is_refused(
    site: Console, clicks: shmq.Stream, given: dict[str, object]
) -> None:
    told = site.api("POST", RECORDS, given)
    assert (told.status, told.code) == (400, "invalid")
    assert clicks.latest(0) == 0


def test_a_record_that_is_too_large_is_refused(site: Console, shop: shmq.Broker) -> None:
    shop.create_stream("clicks", 1, max_record_bytes=1000)
    told = site.api("POST", RECORDS, {"body": "x" * 2000})
    assert (told.status, told.code) == (413, "too-large")


def test_records_are_read_from_an_offset_by_an_expression(
    site: Console, clicks: shmq.Stream
) -> None:
    clicks.append_many(["a"] * 6, keys=["x", "y"] * 3)
    page = site.api("GET", FIRST, offset=2, limit=3, where="key = 'x'").json
    assert [one["offset"] for one in page["items"]] == [2, 4]
    assert page["next_offset"] >= 5


def test_a_long_value_is_cut_and_given_whole_on_its_own(site: Console, clicks: shmq.Stream) -> None:
    clicks.append("é" * 5000)
    (shown,) = site.api("GET", FIRST).json["items"]
    assert (shown["cut"], shown["size"], len(shown["body"])) == (True, 10_000, 2048)
    whole = site.api("GET", f"{FIRST}/0/value")
    assert whole.content.decode() == "é" * 5000
    assert whole.headers["content-type"] == "application/octet-stream"
    assert site.api("GET", f"{FIRST}/1/value").code == "not-found"


def test_an_offset_that_does_not_exist_is_refused_with_those_that_do(
    site: Console, clicks: shmq.Stream
) -> None:
    clicks.append("x")
    told = site.api("GET", FIRST, offset=9)
    assert (told.status, told.code) == (416, "out-of-range")
    assert (told.json["earliest"], told.json["latest"]) == (0, 1)


def test_a_reader_that_waits_gets_the_record_that_comes(site: Console, clicks: shmq.Stream) -> None:
    found: list[Reply] = []
    reader = threading.Thread(
        target=lambda: found.append(site.api("GET", FIRST, wait=20, where="key = 'wanted'"))
    )
    reader.start()
    clicks.append("x", key="other")
    clicks.append("y", key="wanted")
    reader.join()
    assert [one["offset"] for one in found[0].json["items"]] == [1]


def test_the_offset_at_a_time_is_found(site: Console, clicks: shmq.Stream) -> None:
    clicks.append("x", timestamp=1000)
    clicks.append("y", timestamp=2000)
    found = site.api("GET", "/streams/clicks/at", timestamp=1500).json
    assert found == {"items": [{"partition": 0, "offset": 1}]}
    assert site.api("GET", "/streams/clicks/at").code == "invalid"


def test_a_stream_is_deleted(site: Console, clicks: shmq.Stream) -> None:
    assert site.api("DELETE", "/streams/clicks").status == 204
    assert site.api("GET", "/streams/clicks").code == "not-found"
    assert site.api("DELETE", "/streams/clicks").code == "not-found"


@pytest.mark.parametrize(
    ("method", "path", "body", "query"),
    [
        ("PUT", "/streams/clicks", {"partitions": "two"}, {}),
        ("PUT", "/streams/clicks", {"partition": 2}, {}),
        ("PUT", "/streams/a%2Fb", {}, {}),
        ("POST", "/streams/clicks/repartition", {"partitions": 0}, {}),
        ("POST", "/streams/clicks/repartition", {"partitions": 1}, {}),
        ("GET", FIRST, None, {"where": "key ="}),
        ("GET", FIRST, None, {"limit": 0}),
        ("GET", FIRST, None, {"wait": 21}),
        ("GET", FIRST, None, {"offset": "x"}),
        ("GET", "/streams", None, {"columns": "nothing"}),
        ("GET", "/streams", None, {"where": "colour = 1"}),
        ("GET", "/streams/clicks/partitions/1/records", None, {}),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused_with_the_reason(
    site: Console,
    clicks: shmq.Stream,
    method: str,
    path: str,
    body: object,
    query: dict[str, object],
) -> None:
    told = site.api(method, path, body, **query)
    assert told.status in {400, 404}, told
    assert told.code in {"invalid", "not-found", "unknown-path"}
    assert told.json["detail"]


def test_a_refused_request_keeps_no_partition_open(site: Console, shop: shmq.Broker) -> None:
    partitions = 50
    shop.create_stream("clicks", partitions).close()
    process = psutil.Process(site.process.pid)
    eventually(lambda: process.num_fds() > partitions, "the observer has the stream open")
    before = process.num_fds()

    for _ in range(3):
        told = site.api("POST", "/streams/clicks/repartition", {"partitions": partitions})
        assert (told.status, told.code) == (400, "invalid")
        assert process.num_fds() < before + partitions


def test_want_of_descriptors_is_told_as_passing(site: Console, shop: shmq.Broker) -> None:
    shop.create_stream("clicks", 50).close()
    assert site.api("GET", "/overview").status == 200
    process = psutil.Process(site.process.pid)
    limits = process.rlimit(psutil.RLIMIT_NOFILE)
    assert limits[0] == limits[1], "the console has all descriptors that it may have"

    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + 20, limits[1]))
    told = site.api("GET", "/streams/clicks")

    assert (told.status, told.code) == (503, "exhausted")
    assert "no file descriptor left" in told.json["detail"]
    process.rlimit(psutil.RLIMIT_NOFILE, limits)
    assert site.api("GET", "/streams/clicks").status == 200
