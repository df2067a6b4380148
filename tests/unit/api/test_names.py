"""Names for any text, and the text that people see."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import shmq
from shmq.api.names import MAX_NAME, check_name, given_name, shown_name

#: Texts that are paths, and not names.
PATHS = (".", "..")
#: Any text whose name is not too long: three characters stand for a byte.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
NAMES = st.text("ABCabc019._:-", min_size=1, max_size=12).filter(lambda name: name not in PATHS)


@given(TEXTS)
def test_an_escaped_text_is_a_name_from_which_the_text_comes_back(text: str) -> None:
    name = shmq.escape_name(text)

    assert check_name(name) == name
    assert shmq.unescape_name(name) == text


@given(NAMES)
def test_a_name_that_is_no_escaped_text_is_left_as_it_is(name: str) -> None:
    text = shmq.unescape_name(name)

    assert text == name or shmq.escape_name(text) == name


@given(TEXTS, TEXTS)
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
        ("orders:eu", "orders:3Aeu"),
        ("größe", "gr:C3:B6:C3:9Fe"),
        ("\x1b[31m", ":1B:5B31m"),
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


def test_a_text_that_is_too_long_is_refused_with_both_lengths() -> None:
    assert len(shmq.escape_name("@" * 33)) == MAX_NAME - 1

    with pytest.raises(shmq.InvalidName, match="has 34 characters, and as a name, escaped, 102"):
        shmq.escape_name("@" * 34)


@pytest.mark.parametrize("text", ["", "\udcff"])
def test_what_no_name_can_be_made_of_is_refused(text: str) -> None:
    with pytest.raises(shmq.InvalidName, match="cannot name a queue"):
        shmq.escape_name(text)
    with pytest.raises(shmq.InvalidName, match="cannot name a queue"):
        given_name(text)


def test_what_is_no_text_is_a_wrong_type() -> None:
    with pytest.raises(TypeError, match="must be a str, not bytes"):
        shmq.escape_name(b"x")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", PATHS)
def test_a_text_that_is_a_directory_everywhere_is_escaped(text: str) -> None:
    name = shmq.escape_name(text)
    assert name not in (".", "..")
    assert shmq.unescape_name(name) == text
    assert shmq.escape_name(name) != name
