"""Expressions over dead letters: what each field, operator and value means, and refusals."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import shmq
from shmq.model.expression.parse import LONGEST, Where, quoted

Letter = Callable[..., shmq.Message]


@pytest.fixture
def letter(namespace: str) -> Iterator[Letter]:
    """Puts a message into ``jobs`` and rejects it; returns a copy of the dead letter."""
    with shmq.connect(namespace) as broker:
        queue, dead_letter_queue = broker.create_queue("jobs"), broker.queue("jobs.dlq")

        def make_dead_letter(body: object = b"x", **properties: Any) -> shmq.Message:
            queue.put(body, **properties)
            queue.get().reject()
            return dead_letter_queue.peek(100)[-1]

        yield make_dead_letter


def is_true(expression: str, message: shmq.Message, now: float | None = None) -> bool:
    return Where(expression).matches(message, now)


@pytest.mark.parametrize(
    ("expression", "true"),
    [
        ("reason = 'rejected'", True),
        ("reason != 'rejected'", False),
        ("queue = 'jobs'", True),
        ("queue = 'Jobs'", False),
        ("codec = 'json'", True),
        ("group = 'g 1'", True),
        ("correlation = 'it''s'", True),
        ("correlation = 'it'", False),
        ("deliveries = 1", True),
        ("deliveries > 1", False),
        ("priority >= 2 and priority <= 2.0", True),
        ("sequence < 1", False),
        ("size = 24", True),
        ("size > 0.023KiB and size < 1MiB", True),
        ("shape = '{id: int, item: {a: str}}'", True),
        ("shape like '{id: int,%'", True),
        ("header.kind = 'frame'", True),
        ("header.'a b' = 1", True),
        ("header.kind = 1", False),
        ("header.absent = null", True),
        ("header.absent != 'x'", True),
        ("header.absent < 5", False),
        ("header.flag = true", True),
        ("header.flag = 1", False),
        ("header.'a b' = true", False),
        ("header.flag < 2", False),
        ("header.Not = 'kept'", True),
        ("body.id = 17", True),
        ("body.id > 16.5", True),
        ("body.id < 'a'", False),
        ("body.item.a like 't%'", True),
        ("body.item.a.b = null", True),
        ("body.item = null", False),
        ("queue in ('mails', 'jobs')", True),
        ("queue not in ('mails', 'jobs')", False),
        ("group in (null, 'x')", False),
        ("queue like 'j%b%'", True),
        ("queue like 'jobs'", True),
        ("queue like 'job'", False),
        ("queue like '%'", True),
        ("queue like 'jo%obs'", False),
        ("queue like '%j%s'", True),
        ("queue not like 'x%'", True),
        ("not queue = 'jobs' or reason = 'rejected'", True),
        ("not (queue = 'jobs' or reason = 'rejected')", False),
        ("reason = 'expired' and queue = 'x' or codec = 'json'", True),
        ("reason = 'expired' and (queue = 'x' or codec = 'json')", False),
        ("REASON = 'rejected'", None),
        ("codec = 'json' AND NOT group = NULL", True),
        ("\tcodec='json'\n  and(deliveries=1)\n", True),
    ],
)
def test_an_expression_says_of_a_letter_whether_it_is_meant(
    letter: Letter, expression: str, true: bool | None
) -> None:
    dead = letter(
        {"id": 17, "item": {"a": "tea"}},
        codec="json",
        group="g 1",
        priority=2,
        correlation="it's",
        headers={"kind": "frame", "a b": 1, "flag": True, "Not": "kept"},
    )
    dead_size = len(bytes(dead.view))
    expression = expression.replace("24", str(dead_size))
    if true is None:  # the names of fields are in small letters
        with pytest.raises(shmq.InvalidOption, match=r"did you mean|known are"):
            Where(expression)
        return

    assert is_true(expression, dead) is true


def test_the_age_counts_from_the_death_in_seconds(letter: Letter) -> None:
    dead = letter()
    assert dead.dead
    for unit, seconds in {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}.items():
        later = dead.dead.at + 3 * seconds
        assert is_true(f"age < 4{unit}", dead, later)
        assert not is_true(f"age < 2{unit}", dead, later)
    assert is_true("age < 1h", dead)
    assert not is_true("age > 1h", dead)


def test_a_moment_is_in_utc_unless_it_has_a_zone(letter: Letter) -> None:
    dead = letter()
    assert dead.dead
    hour = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(dead.dead.at - 1800))

    assert is_true(f"at > '{hour}'", dead)
    assert is_true(f"at > '{hour}Z'", dead)
    assert not is_true(f"at > '{hour}-01:00'", dead)
    assert is_true(f"at > '{hour}+01:00'", dead)


def test_a_body_that_is_not_what_its_codec_says_has_a_shape_and_no_keys(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("jobs", dead_letter=None)
        with queue.loan(5, codec="json") as view:
            view[:] = b"{nope"
        (message,) = queue.peek()

        assert is_true("body.a = null", message)
        assert is_true("shape like 'not json, 4-15 B %'", message)


def test_a_message_that_is_no_dead_letter_has_no_reason(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("jobs", dead_letter=None)
        queue.put(b"x")
        (message,) = queue.peek()

        for field in ("reason", "queue", "deliveries", "age", "at"):
            assert is_true(f"{field} = null", message)
        assert not is_true("age > 0", message)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "character 1: a field is expected, not the end"),
        ("reson = 'x'", "did you mean 'reason'"),
        ("zzz = 'x'", "known are reason, queue"),
        ("reason", "'in' or 'like' is expected, not the end"),
        ("reason = x", "a text such as"),
        ("reason = 5", "a text such as"),
        ("reason < 'x'", "no order"),
        ("reason = 'x", "character 10: a quote that is not closed"),
        ("reason = 'x' or", "character 16: a field"),
        ("reason = 'x' queue = 'y'", "'and' or 'or' is expected, not 'queue'"),
        ("(reason = 'x'", "'\\)' is expected"),
        ("reason = 'x')", "'and' or 'or' is expected, not '\\)'"),
        ("reason in 'x'", "'\\(' is expected"),
        ("reason in ()", "a text such as"),
        ("reason not = 'x'", "'in' or 'like' is expected"),
        ("age > 3 parsecs", "'and' or 'or' is expected"),
        ("age > 3x", "a time such as"),
        ("age > null", "a time such as"),
        ("size > 3s", "a size such as"),
        ("at > 'soon'", "a moment such as"),
        ("deliveries = 1s", "a number such as"),
        ("deliveries like 'x'", "'like' is for texts"),
        ("header = 'x'", "'.' is expected"),
        ("header.a.b = 'x'", "more than 1 names"),
        ("body.5 = 'x'", "in quotes"),
        ("reason = 'x' ; drop", "';' cannot stand there"),
        ("__import__('os') = 'x'", "field '__import__' does not exist"),
        ("(" * 60 + "reason = 'x'", "more than 50"),
        ("not " * 60 + "reason = 'x'", "more than 50"),
        ("body" + ".a" * 21 + " = 1", "more than 20 names"),
        ("age > 1 " + " " * LONGEST, f"{LONGEST} at most"),
    ],
)
def test_an_expression_that_cannot_be_read_is_refused_with_the_place(
    expression: str, why: str
) -> None:
    with pytest.raises(shmq.InvalidOption, match=why):
        Where(expression)


@given(st.text(alphabet="reasongdti.'()<>=!,%1s \t\n\"\\é", max_size=60))
@example("reason = ''''")
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert Where(text).text == text
    except shmq.InvalidOption as error:
        found = re.search(r"character (\d+)", str(error))
        assert found
        assert 1 <= int(found[1]) <= len(text) + 1


@given(st.text())
def test_a_quoted_text_means_itself(text: str) -> None:
    class OfGroup:
        dead = None
        group = text

    assert Where(f"group = {quoted(text)}").matches(OfGroup())  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(["a", "b", "%"])), st.lists(st.sampled_from(["a", "b"])))
def test_like_means_what_the_pattern_means_as_a_regular_expression(
    pattern: list[str], text: list[str]
) -> None:
    class OfGroup:
        dead = None
        group = "".join(text)

    regular = "".join(".*" if part == "%" else part for part in pattern)
    meant = Where(f"group like {quoted(''.join(pattern))}")

    assert meant.matches(OfGroup()) is bool(re.fullmatch(regular, OfGroup.group))  # type: ignore[arg-type]


def test_a_pattern_of_many_wildcards_does_not_explode(letter: Letter) -> None:
    dead = letter(headers={"k": "a" * 50_000})

    assert not is_true(f"header.k like '{'%a' * 5000}%b%'", dead)


def test_a_long_list_of_alternatives_is_no_deep_one(letter: Letter) -> None:
    dead = letter()
    random_names = [f"queue = 'q{random.random()}'" for _ in range(1000)]

    assert is_true(" or ".join([*random_names, "queue = 'jobs'"]), dead)
