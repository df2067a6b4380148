"""The client of NATS sends and reads as the client that it is made of does."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any

import nats.aio.client
import pytest
from nats.aio.transport import TcpTransport
from nats.protocol import command

import shmq
from shmq.extras.nats.client import client
from shmq.extras.nats.client.client import Client
from shmq.extras.nats.client.queue_port import NatsQueuePort
from shmq.extras.nats.client.turns import Turns

BASE = nats.aio.client.Client


class Recorded(BASE):
    """The client that it is made of, with what it would send."""

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:
        del priority
        self.sent = cmd


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def sent_by_base(headers: dict[str, str] | None) -> bytes:
    base = Recorded()
    asyncio.run(base._send_publish("a.b", "reply", b"body", 4, headers))
    sent: bytes = base.sent
    return sent


@pytest.mark.parametrize(
    "headers",
    [None, {"Nats-Msg-Id": "1"}, {"A": "1", "B-c": "two words", "Empty": "", "Umlaut": "\u00e4"}],
)
def test_a_message_is_sent_as_the_client_of_nats_sends_it(headers: dict[str, str] | None) -> None:
    assert client._command("a.b", b"body", "reply", headers) == sent_by_base(headers)
    assert command.pub_cmd("a.b", "reply", b"body") == client._command("a.b", b"body", "reply", {})


@pytest.mark.parametrize(
    ("subject", "headers"),
    [
        ("", None),
        ("a b", None),
        ("a\r\nPUB b", None),
        ("a", {"A": "1\r\nB: 2"}),
        ("a", {"A": "1\n"}),
        ("a", {"A": " 1"}),
        ("a", {"A: 1\r\nB": "2"}),
        ("a", {"A b": "2"}),
        ("a", {"": "2"}),
    ],
)
def test_what_could_be_another_command_is_left_to_the_client_of_nats(
    subject: str, headers: dict[str, str] | None
) -> None:
    assert client._command(subject, b"body", "reply", headers) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"A: 1\r\nB:2\r\nC:\t3 \r\n\r\n",
        b"A: b: c\r\nno colon\r\n: empty\r\nbad name: x\r\n",
        b"Text: \xc3\xa4\r\nBroken: \xff\r\n",
        b"",
    ],
)
def test_headers_are_read_as_the_client_of_nats_reads_them(raw: bytes) -> None:
    assert Client._parse_header_lines(raw) == BASE._parse_header_lines(raw)


@pytest.mark.parametrize("name", ["request", "publish", "flush", "close"])
def test_what_is_replaced_is_still_called_so(name: str) -> None:
    assert parameters(getattr(Client, name)) == parameters(getattr(BASE, name))


def test_what_a_taker_raises_does_not_end_the_reading() -> None:
    problems: list[Exception] = []

    async def run() -> None:
        async def note(problem: Exception) -> None:
            problems.append(problem)

        def take(_: Any) -> None:
            raise ValueError("of the taker")

        one = Client()
        one._error_cb = note
        one._takers[1] = take
        await one._process_msg(1, b"a", b"", b"", b"")

    asyncio.run(run())
    assert [str(problem) for problem in problems] == ["of the taker"]


def test_a_drain_ends_when_the_server_has_its_end() -> None:
    came: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload": 1048576, "headers": true}\r\n')
        async for line in reader:
            came.append(line.split()[0].decode())
            if came[-1] == "PING":
                writer.write(b"PONG\r\n")
        writer.close()
        await writer.wait_closed()
        served.set()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            one = Client()
            await one.connect(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            await (await one.take("subject", print)).drain()
            assert came[-3:] == ["SUB", "UNSUB", "PING"]
            await one.close()
            await served.wait()

    served = asyncio.Event()
    asyncio.run(run())


def test_an_answer_that_does_not_come_is_told_of_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.01)
    told: list[str] = []

    async def run() -> None:
        one = Client()
        one._answers = "inbox."
        one._flush_queue = asyncio.Queue()
        one._transport = TcpTransport()  # type: ignore[no-untyped-call]
        one.ask("a", b"", None, lambda answer: told.append(f"early {answer}"), False)
        one._status = one.CONNECTED
        lost = asyncio.get_running_loop().create_future()
        one.ask("a", b"", None, lost.set_result, False)
        (subject,) = one._asking
        assert await lost is None
        assert one._asking == {}
        await one._process_msg(1, subject.encode(), b"", b"late", b"")
        heard = asyncio.get_running_loop().create_future()
        one._takers[1] = one._on_answer
        one.ask("a", b"", None, heard.set_result, False)
        (subject,) = one._asking
        await one._process_msg(1, subject.encode(), b"", b"data", b"")
        assert (await heard).data == b"data"

    asyncio.run(run())
    assert told == ["early None"]


def test_an_error_after_a_pull_gives_back_what_was_pulled() -> None:
    given_back: list[Any] = []

    async def take(*_: Any, **__: Any) -> list[str]:
        return ["first", "second"]

    async def sift(_: Any) -> None:
        raise shmq.ConnectionLost("the cluster gave no answer")

    async def give_back(arrivals: list[Any]) -> None:
        given_back.extend(arrivals)

    port: Any = NatsQueuePort.__new__(NatsQueuePort)
    port.pulls = SimpleNamespace(take=take)
    port.settlements = SimpleNamespace(sift=sift, give_back=give_back)
    with pytest.raises(shmq.ConnectionLost):
        asyncio.run(port.take_messages(2, None, waits=False))
    assert given_back == ["first", "second"]


def test_turns_come_in_the_order_in_which_tasks_entered() -> None:
    taken: list[int] = []

    async def step(turns: Turns, number: int, seconds: float) -> None:
        with turns.enter() as turn:
            await asyncio.sleep(seconds)
            if number == 1:  # which takes no step
                raise ValueError
            await turn.wait()
            taken.append(number)
            turn.end()
            turn.end()

    async def run() -> None:
        turns = Turns()
        tasks = [step(turns, number, 0.03 - number / 100) for number in range(4)]
        await asyncio.gather(*tasks, return_exceptions=True)
        await step(turns, 4, 0)

    asyncio.run(run())
    assert taken == [0, 2, 3, 4]


def test_a_cancelled_task_holds_up_no_turn() -> None:
    async def run() -> None:
        turns = Turns()
        with turns.enter() as first:
            waiting = asyncio.create_task(_wait(turns))
            after = asyncio.create_task(_wait(turns))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert not after.done()
            first.end()
            await after

    async def _wait(turns: Turns) -> None:
        with turns.enter() as turn:
            await turn.wait()

    asyncio.run(run())
