"""``shmq request``."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.system.cli.conftest import Quick


@pytest.fixture
def served(broker: shmq.Broker, queue: shmq.Queue) -> Iterator[None]:
    """The queue ``jobs``, whose server says what it was asked."""

    def handle(message: shmq.Message) -> object:
        if message.body == "bad":
            raise ValueError("not that")
        return {"asked": message.body, **message.headers}

    stop = threading.Event()
    server = threading.Thread(
        target=broker.serve, args=("jobs", handle), kwargs={"stop": stop}, daemon=True
    )
    server.start()
    yield
    stop.set()
    server.join()


def test_the_reply_is_printed(quick: Quick, served: None) -> None:
    ran = quick("request", "-q", "jobs", "-m", "this")

    assert ran.text == '{"asked":"this"}\n'


def test_the_request_has_a_codec_and_headers(quick: Quick, served: None) -> None:
    ran = quick(
        "request", "-q", "jobs", "-m", "[1]", "--codec", "json", "--header", "a=b", "--json"
    )

    found = json.loads(ran.text)
    assert found["body"] == {"asked": [1], "a": "b"}
    assert found["encoding"] == "json"


def test_an_error_of_the_handlers_is_one_line(quick: Quick, served: None) -> None:
    ran = quick("request", "-q", "jobs", "-m", "bad", code=Code.REFUSED)

    assert ran.err.decode() == "shmq: the handler of queue 'jobs' failed: ValueError: not that\n"


def test_no_reply_in_time_has_a_code_of_its_own(quick: Quick, queue: shmq.Queue) -> None:
    ran = quick("request", "-q", "jobs", "-m", "x", "--timeout", "10ms", code=Code.UNREACHED)

    assert "no reply" in ran.err.decode() and "0.01 s" in ran.err.decode()


def test_what_is_not_of_its_codec_is_refused(quick: Quick, queue: shmq.Queue) -> None:
    ran = quick("request", "-q", "jobs", "-m", "{", "--codec", "json", code=Code.REFUSED)

    assert "the request: it is not JSON" in ran.err.decode()
