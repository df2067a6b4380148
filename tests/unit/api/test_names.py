"""Names for any text, and the text that people see."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import shmq
from shmq.api.names import (
    check_name,
    chosen_namespace,
    dead_letter_name,
    given_name,
    is_hashed,
    learn_texts,
    own_dead_letters,
    shown_name,
    staging_name,
    with_dead_letter,
)
from shmq.api.options import QueueOptions

#: Any text whose name is not too long: three characters stand for a byte.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
#: Texts that are too long to be escaped in full.
LONG_TEXTS = st.text("@ü订", min_size=33, max_size=40)
#: Texts that are names, or nearly.
NEARLY = st.text("a:40@", min_size=1, max_size=8)
NAMES = st.text("ABCabc019._:-", min_size=1, max_size=12).filter(lambda name: name.strip("."))


@pytest.mark.parametrize("what", ["queue", "stream", "exchange", "table", "group", "namespace"])
@pytest.mark.parametrize("name", [".", ".."])
def test_nothing_is_named_as_every_directory_names_entries(name: str, what: str) -> None:
    with pytest.raises(shmq.InvalidName, match=rf"^invalid {what} name '{name}'"):
        check_name(name, what)


@given(TEXTS)
def test_an_escaped_text_is_a_name_from_which_the_text_comes_back(text: str) -> None:
    name = shmq.escape_name(text)

    assert check_name(name) == name
    assert shmq.unescape_name(name) == text


@given(NAMES)
def test_a_name_that_is_no_escaped_text_is_left_as_it_is(name: str) -> None:
    text = shmq.unescape_name(name)

    assert text == name or shmq.escape_name(text) == name


@given(st.one_of(TEXTS, NEARLY), st.one_of(TEXTS, NEARLY))
def test_texts_that_differ_have_names_that_differ(one: str, other: str) -> None:
    assume(one != other)

    assert shmq.escape_name(one) != shmq.escape_name(other)


@given(st.one_of(NAMES, TEXTS.map(shmq.escape_name)))
def test_what_is_shown_of_a_name_means_that_name_and_is_harmless(name: str) -> None:
    shown = shown_name(name)

    assert given_name(shown) == name
    assert shown.isprintable()
    assert shown == " ".join(shown.split())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("orders", "orders"),
        ("celery@host.celery.pidbox", "celery:40host.celery.pidbox"),
        ("a/b c", "a:2Fb:20c"),
        ("orders:eu/a", "orders:3Aeu:2Fa"),
        ("a:40b", "a:3A40b"),  # it is the name of another text
        ("a:40b.dlq", "a:3A40b.dlq"),
        ("größe", "gr:C3:B6:C3:9Fe"),
        ("\x1b[31m", ":1B:5B31m"),
        (".", ":2E"),
        ("..", ":2E:2E"),
        (":2E", ":3A2E"),
    ],
)
def test_what_no_name_has_is_escaped_byte_by_byte(text: str, name: str) -> None:
    assert shmq.escape_name(text) == name
    assert shmq.unescape_name(name) == text


@pytest.mark.parametrize(
    "name", ["orders:eu", "a:zz", "a:", "a:4", "a:41", "a:2f", ":FF", ":C3", "a:40b:", "::3A"]
)
def test_a_name_that_was_not_made_by_an_escape_stays(name: str) -> None:
    assert shmq.unescape_name(name) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("celery:40host", "celery@host"),
        ("a:2Fb:20c", "a/b c"),
        ("orders:eu", "orders:eu"),
        ("orders:3Aeu", "orders:3Aeu"),  # the text is the name of another queue
        (":1B:5B31m", ":1B:5B31m"),  # it would colour a terminal
        (":E2:80:AEx", ":E2:80:AEx"),  # it would turn the line round
        (":20x", ":20x"),  # a table would not show the space
    ],
)
def test_a_text_is_shown_where_it_is_safe_and_means_the_name(name: str, shown: str) -> None:
    assert shown_name(name) == shown


@pytest.mark.parametrize("text", ["a" * 101, "订单处理" * 3, "@" * 33, "é" * 127, "💥" * 256])
def test_a_long_text_has_a_name_with_room_for_those_of_its_other_queues(text: str) -> None:
    name = shmq.escape_name(text)

    assert is_hashed(name)
    assert staging_name(name, "a publisher")
    assert dead_letter_name(name) == shmq.escape_name(f"{text}.dlq")
    assert shmq.unescape_name(name) == text
    assert shmq.unescape_name(f"{name}.dlq") == f"{text}.dlq"


@given(NAMES)
def test_a_name_that_no_other_text_has_stays(name: str) -> None:
    assert shmq.escape_name(name) == name or shmq.unescape_name(name) != name


@pytest.mark.parametrize("length", [1, 96, 97, 98, 99, 100, 101, 255, 256, 1024])
@pytest.mark.parametrize("character", ["a", ":"], ids=["plain", "colons"])
def test_a_valid_name_of_any_length_is_taken_as_it_is(character: str, length: int) -> None:
    text = character * length
    name = shmq.escape_name(text)

    assert name == given_name(text)
    assert (name == text) == (length <= 100)
    assert shmq.unescape_name(name) == text
    dead_letters = own_dead_letters(name)
    assert dead_letters == shmq.escape_name(f"{text}.dlq")
    assert (dead_letters == f"{text}.dlq") == (length <= 96)
    assert shmq.unescape_name(dead_letters) == f"{text}.dlq"
    assert given_name(shown_name(dead_letters)) == dead_letters


@pytest.mark.parametrize("length", [1, 96, 97, 100])
def test_a_queue_that_a_framework_names_keeps_its_dead_letters(length: int) -> None:
    name = "q" * length
    found = QueueOptions.for_queue(name, with_dead_letter(name, {"capacity": 8}))

    assert (found.capacity, found.dead_letter) == (8, shmq.escape_name(f"{name}.dlq"))
    if length > 96:
        with pytest.raises(shmq.InvalidOption, match="set dead_letter"):
            QueueOptions.for_queue(name, {"capacity": 8})


@pytest.mark.parametrize(
    "given",
    [{"dead_letter": None}, {"dead_letter": "bad"}, {"auto_delete": True}, {"exclusive": True}],
)
def test_the_dead_letters_that_the_options_of_a_queue_name_stay(given: dict[str, Any]) -> None:
    assert with_dead_letter("q" * 100, given) == given


@given(LONG_TEXTS, LONG_TEXTS)
def test_long_texts_that_differ_have_names_that_differ(one: str, other: str) -> None:
    assert (shmq.escape_name(one) == shmq.escape_name(other)) == (one == other)
    assert shmq.unescape_name(shmq.escape_name(one)) == one


@given(TEXTS, LONG_TEXTS)
def test_no_other_text_has_the_name_of_a_long_one(text: str, long: str) -> None:
    assert shmq.escape_name(shmq.escape_name(long)) != shmq.escape_name(long)
    assert not is_hashed(shmq.escape_name(text))


def test_the_name_of_a_long_text_does_not_depend_on_the_process() -> None:
    assert shmq.escape_name("a/" * 60) == f"{'a:2F' * 12}::80d540400b4cac618ebb6bd2f71ad4f0"
    assert shmq.escape_name("订" * 11) == (
        f"{':E8:AE:A2' * 5}:E8::2576b979105c8217987be8baa858510a"
    )


def test_a_process_learns_the_text_of_a_name_that_another_has_made() -> None:
    text = f"{os.getpid()} knows" * 9
    code = "import shmq, sys; print(shmq.escape_name(sys.argv[1]), end='')"
    name = subprocess.check_output([sys.executable, "-c", code, text], text=True)

    assert shmq.unescape_name(name) == shown_name(name) == name
    learn_texts([text, "\udcff"])
    assert shmq.unescape_name(name) == shown_name(name) == text
    assert given_name(text) == name


def test_a_text_over_a_kibibyte_is_refused_with_its_length() -> None:
    with pytest.raises(shmq.InvalidName, match="at most 1024 bytes, not 1025"):
        shmq.escape_name("a" * 1025)


@pytest.mark.parametrize("text", ["", "\udcff"])
def test_what_no_name_can_be_made_of_is_refused(text: str) -> None:
    with pytest.raises(shmq.InvalidName, match="invalid queue name"):
        shmq.escape_name(text)
    with pytest.raises(shmq.InvalidName, match="invalid queue name"):
        given_name(text)


def test_what_is_no_text_is_a_wrong_type() -> None:
    with pytest.raises(TypeError, match="must be a str, not bytes"):
        shmq.escape_name(b"x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a/b", "'/' at position 2 is not allowed; use 1 to 100 of A-Z"),
        ("a/b", "such as 'a:2Fb', its form by escape_name"),
        ("a\x07", r"'\\x07' \(U\+0007\) at position 2"),
        ("\udcff", r"'\\udcff' \(U\+DCFF\) at position 1"),
        ("\u0430bc", r"\(U\+0430 CYRILLIC SMALL LETTER A\) at position 1"),
        ("a\u200b", r"'\\u200b' \(U\+200B ZERO WIDTH SPACE\) at position 2"),
        ("a" * 300 + "/", "'/' at position 301"),
        ("a" * 300, "it has 300 characters; use 1 to 100 of"),
    ],
)
def test_an_invalid_name_is_refused_with_its_first_wrong_character(name: str, why: str) -> None:
    with pytest.raises(shmq.InvalidName, match=why) as raised:
        check_name(name)
    assert str(raised.value).isprintable() or not name.isascii()
    str(raised.value).encode()


@pytest.mark.parametrize(
    ("name", "group", "variables", "chosen"),
    [
        ("orders", None, {}, "orders"),
        ("orders", "app", {}, "app/orders"),
        ("orders", None, {"SHMQ_GROUP": "app"}, "app/orders"),
        ("orders", None, {"SHMQ_GROUP": ""}, "orders"),
        ("orders", "web", {"SHMQ_GROUP": "app"}, "web/orders"),
        ("app/orders", "app", {"SHMQ_GROUP": "web"}, "app/orders"),
        ("app/orders", None, {"SHMQ_GROUP": "web"}, "app/orders"),
        (None, "app", {}, "app/default"),
        (None, None, {"SHMQ_GROUP": "app"}, "app/default"),
        (None, None, {"SHMQ_GROUP": "app", "SHMQ_NAMESPACE": "jobs"}, "app/jobs"),
        (None, None, {"SHMQ_GROUP": "app", "SHMQ_NAMESPACE": "web/jobs"}, "web/jobs"),
    ],
)
def test_a_namespace_is_of_the_group_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    group: str | None,
    variables: dict[str, str],
    chosen: str,
) -> None:
    for variable in ("SHMQ_GROUP", "SHMQ_NAMESPACE"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert chosen_namespace(name, group) == chosen


@pytest.mark.parametrize("name", ["a/b/c", "/orders", "app/", "1000/orders", "a:b/orders", "a/.."])
def test_what_is_no_namespace_of_a_group_is_refused(name: str) -> None:
    with pytest.raises(shmq.InvalidName):
        chosen_namespace(name)


def test_a_namespace_has_one_group() -> None:
    with pytest.raises(shmq.InvalidOption, match="leave one of them out"):
        chosen_namespace("app/orders", "web")
    with pytest.raises(shmq.InvalidOption, match="is a server"):
        shmq.connect("shmq://localhost:4222", group="web")
