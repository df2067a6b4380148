"""WebSockets of a running console: consume with credit, settle, put, and how they end."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

import shmq
from tests.support.console import API, Console, console
from tests.support.waiting import PATIENCE, eventually

WORKER = "worker" + "w" * 40
PROTOCOL = Subprotocol("shmq.v1")


def opened(site: Console, **more: Any) -> ClientConnection:
    url = "ws" + site.url.removeprefix("http") + API + "/ws"
    given = {"subprotocols": [PROTOCOL], "open_timeout": PATIENCE, "proxy": None, **more}
    socket: ClientConnection = connect(url, **given)
    return socket


@pytest.fixture
def socket(site: Console) -> Iterator[ClientConnection]:
    with opened(site) as made:
        assert made.subprotocol == PROTOCOL
        yield made


def say(socket: ClientConnection, **frame: Any) -> None:
    socket.send(json.dumps(frame))


def heard(socket: ClientConnection) -> Any:
    return json.loads(socket.recv(PATIENCE))


def refused(socket: ClientConnection, **frame: Any) -> str:
    """The code of the problem that the frame is answered with."""
    say(socket, **frame)
    return str(heard(socket)["problem"]["code"])


def test_messages_come_as_credit_allows_and_settling_makes_room(
    socket: ClientConnection, shop: shmq.Broker
) -> None:
    queue = shop.create_queue("work")
    queue.put_many([f"m{n}" for n in range(5)])
    say(socket, consume="work", credit=2)
    first, second = heard(socket)["message"], heard(socket)["message"]
    assert [first["body"], second["body"]] == ["m0", "m1"]
    assert queue.stats().in_flight == 2
    say(socket, ack=first["receipt"], id=1)
    got = [heard(socket), heard(socket)]
    assert {"done": True, "id": 1} in got
    (third,) = [one["message"] for one in got if "message" in one]
    assert third["body"] == "m2"
    say(socket, credit=4)
    bodies = [heard(socket)["message"]["body"] for _ in range(2)]
    assert bodies == ["m3", "m4"]
    say(socket, nack=second["receipt"], delay=600)
    say(socket, reject=third["receipt"], id="last")
    assert heard(socket) == {"done": True, "id": "last"}
    stats = queue.stats()
    assert (stats.acked, stats.delayed, stats.dead_lettered) == (1, 1, 1)


def test_a_message_that_arrives_later_is_sent_at_once(
    socket: ClientConnection, shop: shmq.Broker
) -> None:
    queue = shop.create_queue("later")
    say(socket, consume="later", where="priority > 1", id=0)
    assert heard(socket) == {"done": True, "id": 0}
    queue.put("low", priority=0)
    queue.put({"deep": [1]}, priority=2, headers={"h": 1})
    found = heard(socket)
    assert found["queue"] == "later"
    assert (found["message"]["body"], found["message"]["headers"]) == ({"deep": [1]}, {"h": 1})
    assert queue.qsize() == 1


@pytest.mark.parametrize("others", [3, 1500])
def test_an_expression_chooses_among_few_messages_and_among_many(
    socket: ClientConnection, shop: shmq.Broker, others: int
) -> None:
    queue = shop.create_queue("work")
    queue.put_many(["no"] * others, headers={"kind": "other"})
    say(socket, consume="work", where="header.kind = 'mine'", id=1)
    assert heard(socket) == {"done": True, "id": 1}
    for body in ("one", "two"):
        queue.put(body, headers={"kind": "mine"})
        assert heard(socket)["message"]["body"] == body
    say(socket, cancel="work", id=2)
    assert heard(socket) == {"done": True, "id": 2}
    assert queue.stats().in_flight == 2
    assert queue.qsize() == others


def test_what_is_not_settled_returns_when_the_socket_closes(
    site: Console, shop: shmq.Broker
) -> None:
    queue = shop.create_queue("back")
    queue.put_many(["a", "b", "c"])
    with opened(site) as socket:
        say(socket, consume="back")
        for _ in range(3):
            heard(socket)
        assert queue.stats().in_flight == 3
    eventually(lambda: queue.qsize() == 3, "the messages return")


def test_a_put_answers_with_its_sequence(socket: ClientConnection, shop: shmq.Broker) -> None:
    queue = shop.create_queue("inbox", capacity=2, dedupe_window=60.0)
    say(socket, put={"queue": "inbox", "body": {"x": 1}, "dedupe_id": "k"}, id=7)
    assert heard(socket) == {
        "put": {"queue": "inbox", "sequence": 1, "duplicate": False}, "id": 7
    }  # fmt: skip
    say(socket, put={"queue": "inbox", "body": {"x": 1}, "dedupe_id": "k"})
    assert heard(socket)["put"]["duplicate"] is True
    say(socket, put={"queue": "inbox", "body": "x", "encoding": "text"})
    assert heard(socket)["put"]["sequence"] == 2
    assert refused(socket, put={"queue": "inbox", "body": "x"}) == "full"
    shop.create_queue("plain")
    plain = {"queue": "plain", "body": "x", "dedupe_id": "k"}
    assert refused(socket, put=plain) == "invalid"
    assert [one.body for one in queue.peek()] == [{"x": 1}, "x"]


def test_a_large_body_comes_whole_and_a_lease_can_be_extended(
    socket: ClientConnection, shop: shmq.Broker
) -> None:
    shop.create_queue("large").put("y" * 50_000)
    say(socket, consume="large")
    message = heard(socket)["message"]
    assert (len(message["body"]), message["cut"]) == (50_000, False)
    say(socket, extend=message["receipt"], seconds=100, id=1)
    assert heard(socket) == {"done": True, "id": 1}


def test_a_cancelled_queue_sends_no_more(socket: ClientConnection, shop: shmq.Broker) -> None:
    queue = shop.create_queue("quiet")
    queue.put("a")
    say(socket, consume="quiet")
    receipt = heard(socket)["message"]["receipt"]
    say(socket, cancel="quiet", id=1)
    assert heard(socket) == {"done": True, "id": 1}
    eventually(lambda: refused(socket, cancel="quiet") == "invalid", "it is consumed no more")
    queue.put("b")
    say(socket, ack=receipt, id=2)
    assert heard(socket) == {"done": True, "id": 2}
    assert queue.qsize() == 1


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({}, "invalid"),
        ({"nothing": 1}, "invalid"),
        ({"consume": 1}, "invalid"),
        ({"consume": "absent"}, "not-found"),
        ({"consume": "there", "credit": 1001}, "invalid"),
        ({"consume": "there", "where": "depth >"}, "invalid"),
        ({"consume": "there", "wherever": ""}, "invalid"),
        ({"credit": 1, "queue": "there"}, "invalid"),
        ({"ack": "x"}, "invalid"),
        ({"ack": "s.there.1"}, "lease-expired"),
        ({"extend": "s.there.1"}, "invalid"),
        ({"put": {"queue": "there"}}, "invalid"),
        ({"put": {"queue": "absent", "body": 1}}, "not-found"),
        ({"put": {"queue": "there", "body": "*", "encoding": "base64"}}, "invalid"),
    ],
    ids=str,
)
def test_a_wrong_frame_is_answered_with_a_problem_and_the_socket_stays(
    socket: ClientConnection, shop: shmq.Broker, frame: dict[str, Any], code: str
) -> None:
    shop.create_queue("there")
    assert refused(socket, **frame) == code
    say(socket, put={"queue": "there", "body": 1})
    assert "put" in heard(socket)


def test_hostile_frames_do_no_harm(socket: ClientConnection, shop: shmq.Broker) -> None:
    shop.create_queue("there")
    for text in ("", "{", "[]", "1", '"x"', "[" * 100_000, '{"put":' * 5000, "null"):
        socket.send(text)
        assert heard(socket)["problem"]["code"] == "invalid"


def test_a_binary_frame_and_one_that_is_too_large_close_the_socket(site: Console) -> None:
    for content, code in ((b"{}", 1003), ("x" * ((1 << 20) + 1), 1009)):
        with opened(site) as socket:
            socket.send(content)
            with pytest.raises(ConnectionClosed) as closed:
                heard(socket)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == code


def test_a_deleted_queue_is_told(socket: ClientConnection, shop: shmq.Broker) -> None:
    shop.create_queue("doomed", dead_letter=None)
    say(socket, consume="doomed", id=1)
    assert heard(socket) == {"done": True, "id": 1}
    eventually(lambda: shop.queue("doomed").stats().waiting_get > 0, "it is consumed")
    shop.delete_queue("doomed")
    found = heard(socket)
    assert (found["problem"]["code"], found["queue"]) == ("deleted", "doomed")


def status_of(site: Console, **more: Any) -> int:
    with pytest.raises(InvalidStatus) as refusal, opened(site, **more):
        pass
    return refusal.value.response.status_code


def test_sockets_of_other_sites_and_without_the_protocol_are_refused(site: Console) -> None:
    assert status_of(site, origin="http://evil.example") == 403
    assert status_of(site, subprotocols=None) == 400
    assert status_of(site, subprotocols=["other"]) == 400
    with opened(site, origin=site.url.rstrip("/")):
        pass


@pytest.mark.prove
def test_a_console_that_only_shows_has_no_sockets(place: str) -> None:
    with console(place, changes=False) as site:
        assert status_of(site) == 403


def test_rights_are_those_of_the_token(place: str, shop: shmq.Broker) -> None:
    shop.create_queue("orders").put("x")
    shop.create_queue("results")
    tokens = {WORKER: {"consume": ["orders"], "produce": ["results"]}}
    with console(place, tokens=tokens) as site:
        assert status_of(site) == 401
        given = {"Authorization": f"Bearer {WORKER}"}
        with opened(site, additional_headers=given) as socket:
            assert refused(socket, consume="results") == "denied"
            assert refused(socket, put={"queue": "orders", "body": 1}) == "denied"
            assert refused(socket, put={"queue": "absent", "body": 1}) == "not-found"
            say(socket, consume="orders")
            assert heard(socket)["message"]["body"] == "x"
            say(socket, put={"queue": "results", "body": 1})
            assert heard(socket)["put"]["sequence"] == 1


@pytest.mark.prove
def test_a_right_that_a_frame_is_refused_is_in_the_audit(place: str, shop: shmq.Broker) -> None:
    shop.create_queue("orders")
    shop.create_queue("results")
    tokens = {WORKER: {"consume": ["orders"], "produce": ["results"]}}
    with console(place, tokens=tokens) as site:
        given = {"Authorization": f"Bearer {WORKER}"}
        with opened(site, additional_headers=given) as socket:
            assert refused(socket, consume="results") == "denied"
            assert refused(socket, put={"queue": "orders", "body": 1}) == "denied"
            assert refused(socket, nack="s.results.1") == "denied"
        start = (
            'event=right.refused name={} outcome=denied who="token 0" peer=127.0.0.1:.* via=http'
        )
        for operation, name in (("consume", "results"), ("put", "orders"), ("nack", "results")):
            site.hears(f"{start.format(name)} .*operation={operation}\n")


@pytest.mark.prove
def test_a_flood_of_refused_frames_is_counted_in_the_audit(place: str, shop: shmq.Broker) -> None:
    shop.create_queue("orders")
    with console(place, tokens={WORKER: {"consume": ["orders"]}}) as site:
        given = {"Authorization": f"Bearer {WORKER}"}
        with opened(site, additional_headers=given) as socket:
            for _ in range(200):
                socket.send(json.dumps({"put": {"queue": "orders", "body": 1}}))
            for _ in range(200):
                assert heard(socket)["problem"]["code"] == "denied"

        def told() -> int:
            events = len(re.findall(r"event=right\.refused name=orders .*operation=put", site.log))
            left_out = [int(number) for number in re.findall(r"left_out=(\d+)", site.log)]
            assert events < 200
            return events + sum(left_out)

        eventually(lambda: told() == 200, "each refusal is recorded or counted")


@pytest.mark.prove
def test_sockets_are_closed_when_the_console_ends_and_messages_return(
    place: str, shop: shmq.Broker
) -> None:
    queue = shop.create_queue("held")
    queue.put("x")
    with console(place) as site, opened(site) as socket:
        say(socket, consume="held")
        heard(socket)
        assert site.stop() == 0
        with pytest.raises(ConnectionClosed) as closed:
            heard(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
    assert queue.qsize() == 1


@pytest.mark.prove
def test_two_hundred_sockets_are_served_and_no_more(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("many")
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(opened(site)) for _ in range(200)]
        assert status_of(site) == 503
        for socket in sockets:
            say(socket, consume="many", credit=1)
        queue.put_many(range(200))
        assert sorted(heard(socket)["message"]["body"] for socket in sockets) == list(range(200))
