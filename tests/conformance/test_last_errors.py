"""The error of a failed delivery, which the message and its dead letter keep.

Level: conformance, on every transport.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.waiting import PATIENCE


@pytest.fixture
def failing(broker: Broker) -> Queue:
    return broker.create_queue("f", max_deliveries=3, retry_delay=0)


def raised(error: BaseException) -> BaseException:
    """The error with a traceback."""
    try:
        raise error
    except type(error) as seen:
        return seen


def take(queue: Queue) -> shmq.Message:
    return queue.get(timeout=PATIENCE)


def test_a_message_has_the_exception_of_its_last_failed_delivery(failing: Queue) -> None:
    failing.put("body", headers={"a": 1})
    first = take(failing)
    assert first.last_error is None
    first.nack(0, error=raised(ValueError("SMTP refused")))

    second = take(failing)
    error = second.last_error
    assert error is not None
    assert (error.type, error.text) == ("ValueError", "SMTP refused")
    assert str(error) == "ValueError: SMTP refused"
    assert "raise error" in error.trace
    assert error.at > 1e9
    assert (second.body, second.headers, second.delivery_count) == ("body", {"a": 1}, 2)
    second.nack(0, error="another text")

    third = take(failing)
    assert third.last_error is not None
    assert (third.last_error.type, third.last_error.text) == ("", "another text")
    assert third.last_error.trace == ""


def test_a_delivery_that_returns_without_an_error_keeps_the_last_one(failing: Queue) -> None:
    failing.put("body")
    take(failing).nack(0, error="why")
    take(failing).nack(0)

    third = take(failing)
    assert third.last_error is not None
    assert third.last_error.text == "why"


def test_a_dead_letter_has_it(broker: Broker, failing: Queue) -> None:
    failing.put("body")
    for delivery in range(3):
        take(failing).nack(0, error=KeyError(f"key {delivery}"))

    dead = take(broker.queue("f.dlq"))
    assert dead.dead is not None
    assert dead.dead.reason == "max_deliveries"
    assert dead.dead.error is not None
    assert str(dead.dead.error) == "KeyError: 'key 2'"
    assert dead.last_error is None


def test_a_rejected_one_has_the_reason(broker: Broker, failing: Queue) -> None:
    failing.put("text")
    failing.put("exception")
    take(failing).reject("no such user")
    take(failing).reject(RuntimeError("no"))

    letters = [take(broker.queue("f.dlq")) for _ in range(2)]
    assert [str(letter.dead.error) for letter in letters if letter.dead] == [
        "no such user",
        "RuntimeError: no",
    ]


@pytest.mark.parametrize("kind", ["message", "batch"])
def test_the_exception_of_a_block_is_kept(failing: Queue, kind: str) -> None:
    failing.put("body")
    block: Any = take(failing) if kind == "message" else failing.get_batch(1, timeout=PATIENCE)
    with pytest.raises(OSError, match="disk"), block:
        raise OSError("the disk is full")

    again = take(failing)
    assert again.last_error is not None
    assert str(again.last_error) == "OSError: the disk is full"


def test_by_receipt_it_is_kept_as_well(broker: Broker, failing: Queue) -> None:
    failing.put("one")
    failing.put("two")
    one, two = take(failing), take(failing)
    failing.nack(one.receipt, 0, error="of one")
    failing.reject(two.receipt, "of two")

    again, dead = take(failing), take(broker.queue("f.dlq"))
    assert again.last_error is not None
    assert again.last_error.text == "of one"
    assert dead.dead is not None
    assert dead.dead.error is not None
    assert dead.dead.error.text == "of two"


def test_one_that_is_settled_already_keeps_nothing(failing: Queue) -> None:
    failing.put("body")
    message = take(failing)
    receipt = message.receipt
    message.nack(0, error="first")
    with pytest.raises(shmq.LeaseExpired):
        failing.nack(receipt, 0, error="second")

    again = take(failing)
    assert again.last_error is not None
    assert again.last_error.text == "first"


@pytest.mark.parametrize(
    "text",
    ["", "x", "ü" * 10_000, "\U0001f600" * 5000, "\udcff lone", "<b>&\x1b[31m\0", "x" * 1_000_000],
    ids=["empty", "one", "two-byte", "four-byte", "surrogate", "markup", "large"],
)
def test_any_text_is_kept_in_part(failing: Queue, text: str) -> None:
    failing.put("body")
    take(failing).nack(0, error=raised(ValueError(text)))

    error = take(failing).last_error
    assert error is not None
    assert error.type == "ValueError"
    size = len((error.text + error.trace).encode())
    assert size <= 4096
    whole = text.encode(errors="backslashreplace").decode()
    if len(whole.encode()) < 2000:
        assert error.text == whole
    else:
        begin, _, end = error.text.partition(" … ")
        assert size > 3900
        assert whole.startswith(begin)
        assert whole.endswith(end)
        assert begin
        assert end


def test_an_exception_whose_text_cannot_be_made_is_kept_without_it(failing: Queue) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    failing.put("body")
    take(failing).nack(0, error=Odd())

    error = take(failing).last_error
    assert error is not None
    assert error.type.endswith("Odd")
    assert error.text == "its text raised RuntimeError"


@pytest.mark.parametrize("error", [1, b"bytes", ["list"], ValueError], ids=repr)
def test_what_is_neither_an_exception_nor_a_text_is_rejected(failing: Queue, error: Any) -> None:
    failing.put("body")
    message = take(failing)
    with pytest.raises(TypeError, match="an error is an exception or a str"):
        message.nack(0, error=error)
    with pytest.raises(TypeError, match="an error is an exception or a str"):
        message.reject(error)
    assert not message.settled
    message.ack()


def test_a_return_that_does_not_count_has_no_error(failing: Queue) -> None:
    failing.put("body")
    message = take(failing)
    with pytest.raises(shmq.InvalidOption, match=re.escape("counted=False")):
        message.nack(0, counted=False, error="why")
    message.ack()


def test_peek_shows_it(failing: Queue) -> None:
    failing.put("body")
    take(failing).nack(0, error="why")

    (shown,) = failing.peek(1)
    assert shown.last_error is not None
    assert shown.last_error.text == "why"


def test_messages_are_chosen_by_it(broker: Broker, failing: Queue) -> None:
    for body in ("a", "b", "c"):
        failing.put(body)
    for error in (ValueError("SMTP refused"), ValueError("other"), None):
        take(failing).nack(60, error=error)
    for body in ("d", "e"):
        failing.put(body)
        take(failing).reject(f"SMTP said {body}")
    letters = broker.queue("f.dlq")

    assert [one.body for one in letters.peek(9, where="error like 'SMTP%'")] == ["d", "e"]
    assert [one.body for one in letters.peek(9, where="error = 'SMTP said e'")] == ["e"]
    assert letters.redrive(where="error like '%said d'") == 1
    assert take(failing).body == "d"


@pytest.mark.refused_by_clusters
def test_a_get_chooses_by_it(failing: Queue) -> None:
    for body in ("a", "b", "c"):
        failing.put(body)
    messages = [take(failing) for _ in range(3)]
    for message, error in zip(messages, (ValueError("SMTP refused"), "other", None), strict=True):
        message.nack(0, error=error)

    assert failing.get(timeout=PATIENCE, where="error like 'ValueError:%'").body == "a"
    assert failing.get(timeout=PATIENCE, where="error = null").body == "c"


# ---- limits ----


def fail(queue: Queue, error: Any) -> shmq.Failure | None:
    """Fail a delivery with it; return what the next one has of it."""
    queue.put("body")
    take(queue).nack(0, error=error)
    with take(queue) as again:
        return again.last_error


@pytest.mark.parametrize("most", [0, 1, 127])
def test_nothing_of_an_error_is_stored_without_room_and_it_is_counted(
    broker: Broker, most: int
) -> None:
    queue = broker.create_queue("f", error_bytes=most)

    assert fail(queue, raised(ValueError("SMTP refused " * 99))) is None
    queue.put("body", headers={"a": 1})
    take(queue).reject(KeyError("no such user " * 99))
    dead = take(broker.queue("f.dlq"))

    assert dead.dead is not None
    assert (dead.dead.reason, dead.dead.error, dead.headers) == ("rejected", None, {"a": 1})


@pytest.mark.parametrize("text", ["x", "ü", "€", "\U0001f600"])
@pytest.mark.parametrize("most", [128, 129, 130, 131, 300, 1000, 4095, 4096])
def test_an_error_is_truncated_in_the_middle_and_never_within_a_character(
    broker: Broker, most: int, text: str
) -> None:
    queue = broker.create_queue("f", error_bytes=most)

    error = fail(queue, shmq.Failure("ValueError", text * 5000, "begin" + text * 5000 + "end"))

    assert error is not None
    for part, whole in ((error.text, text * 5000), (error.trace, f"begin{text * 5000}end")):
        begin, cut, end = part.partition(" … ")
        assert whole.startswith(begin)
        assert whole.endswith(end)
        assert cut or not part
    assert most - 70 < len(f"{error}{error.trace}".encode()) < most
    assert error.at > 1e9
    assert error.type == "ValueError"
    assert len(error.text) > 10


def test_an_error_that_fits_is_whole(broker: Broker) -> None:
    queue = broker.create_queue("f", error_bytes=100)
    assert str(fail(queue, ValueError("SMTP refused"))) == "ValueError: SMTP refused"


@pytest.mark.refused_by_clusters
def test_an_altered_limit_is_that_of_the_next_error(broker: Broker, failing: Queue) -> None:
    """Handles that were opened before obey it, too; what is stored stays."""
    failing.put("stored")
    take(failing).nack(0, error="x" * 4000)
    stored = take(failing)

    broker.alter_queue("f", error_bytes=200)
    assert stored.last_error is not None
    assert len(stored.last_error.text) == 4000
    short = fail(failing, "x" * 4000)
    assert short is not None
    assert 100 < len(short.text) < 200

    broker.alter_queue("f", error_bytes=0)
    stored.nack(0, error="the last one is not stored, and an earlier one is not the last")
    with take(failing) as again:
        assert again.last_error is None
    assert fail(failing, "why") is None

    broker.alter_queue("f", error_bytes=4096)
    whole = fail(failing, "x" * 4000)
    assert whole is not None
    assert len(whole.text) == 4000
    assert failing.stats().errors == {"text": 5}


def test_failures_are_counted_without_their_errors(broker: Broker) -> None:
    queue = broker.create_queue("f", error_bytes=0)
    assert count(queue, KeyError("a"), "text", KeyError("b")) == {"KeyError": 2, "text": 1}


# ---- counts by type ----


def count(queue: Queue, *errors: Any) -> dict[str, int]:
    """Fail a delivery with each, then return the counts."""
    for error in errors:
        queue.put("body")
        take(queue).reject(error)
    return queue.stats().errors


def test_failures_are_counted_by_type(failing: Queue) -> None:
    assert failing.stats().errors == {}
    failing.put("body")
    take(failing).nack(0)
    take(failing).ack()
    assert failing.stats().errors == {}

    errors = [KeyError("a"), ValueError("b"), ValueError("c"), "text", shmq.Failure("app.Odd", "")]
    assert count(failing, *errors) == {"ValueError": 2, "KeyError": 1, "app.Odd": 1, "text": 1}
    assert next(iter(failing.stats().errors)) == "ValueError"


def test_one_that_is_settled_already_is_not_counted(failing: Queue) -> None:
    failing.put("body")
    message = take(failing)
    receipt = message.receipt
    message.nack(0, error="first")
    with pytest.raises(shmq.LeaseExpired):
        failing.nack(receipt, 0, error="second")

    assert failing.stats().errors == {"text": 1}


def test_the_most_frequent_types_are_counted_and_the_others_together(failing: Queue) -> None:
    types = [f"Error{number:03}" for number in range(70)]
    errors = [shmq.Failure(name, "") for name in types]
    errors += errors[30:50]

    counted = count(failing, *errors)
    assert counted == {**dict.fromkeys(types[30:50], 2), "other": 50}
    assert list(counted)[-1] == "other"


def test_a_class_may_have_the_name_of_what_has_no_type(failing: Queue) -> None:
    errors = ["a", "b", shmq.Failure("text", ""), shmq.Failure("other", "")]
    assert count(failing, *errors) == {"text": 3, "other": 1}


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("\udcff", "\\udcff"),
        ('a"b\\c\n', 'a"b\\c\n'),
        ("<b>&\x1b[31m\0", "<b>&\x1b[31m\0"),
        ("ü" * 80, "ü" * 59),
        ("x" * 1_000_000, "x" * 119),
    ],
    ids=["surrogate", "quotes", "markup", "long", "large"],
)
def test_any_type_is_counted_by_its_end(failing: Queue, name: str, counted: str) -> None:
    (found,) = count(failing, shmq.Failure(name, "text")).items()
    assert found[1] == 1
    assert found[0].endswith(counted[-59:])
    assert len(found[0].encode()) <= 119


_FAIL_AND_DIE = """
import os, signal, sys, shmq
queue = shmq.connect(sys.argv[1]).queue("f")
queue.put("body")
queue.get().nack(0, error=OSError("why"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.only_local
def test_counts_survive_the_death_of_every_process(broker: Broker) -> None:
    broker.create_queue("f").close()
    for _ in range(2):
        command = [sys.executable, "-c", _FAIL_AND_DIE, broker.namespace]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL

    assert broker.queue("f").stats().errors == {"OSError": 2}


def test_counts_begin_again_with_a_queue_that_is_made_again(broker: Broker, failing: Queue) -> None:
    assert count(failing, "why") == {"text": 1}
    broker.delete_queue("f")
    assert broker.create_queue("f").stats().errors == {}
