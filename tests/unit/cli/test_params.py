"""How the text of a flag becomes a value."""

from __future__ import annotations

import click
import hypothesis
import pytest
from hypothesis import strategies

from shmq.cli.main import cli
from shmq.cli.shared import params


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("4096b", 4096),
        ("64KiB", 65536),
        ("64k", 65536),
        ("64 KiB", 65536),
        ("64KB", 64000),
        ("16MiB", 16 << 20),
        ("16mib", 16 << 20),
        ("16M", 16 << 20),
        ("1.5GiB", 3 << 29),
        ("2T", 2 << 40),
    ],
)
def test_a_size_has_a_binary_or_a_decimal_unit(text: str, size: int) -> None:
    assert params.size(text) == size


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1.5", "0.3KiB", "16XB", "16MiBs", "1e3", "٣", "9" * 5000, "nan"]
)
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"64KiB|whole number of bytes"):
        params.size(text)


@hypothesis.given(strategies.integers(0, 10**12), strategies.sampled_from("KMG"))
def test_a_size_of_whole_units_is_exact(number: int, unit: str) -> None:
    assert params.size(f"{number}{unit}iB") == number * 1024 ** ("KMG".index(unit) + 1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("0.5", 0.5),
        ("30s", 30.0),
        ("500ms", 0.5),
        ("5m", 300.0),
        ("1.5h", 5400.0),
        ("2D", 172800.0),
        ("0", 0.0),
    ],
)
def test_a_time_is_in_seconds_or_has_a_unit(text: str, seconds: float) -> None:
    assert params.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1", "inf", "nan", "5 minutes", "1e9", "m", "1:30"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="500ms"):
        params.seconds(text)


@pytest.mark.parametrize(
    ("text", "priority"),
    [("low", "low"), ("Normal", "normal"), ("HIGH", "high"), ("0", 0), ("15", 15)],
)
def test_a_priority_is_a_number_or_a_name(text: str, priority: int | str) -> None:
    assert params.priority(text) == priority


@pytest.mark.parametrize("text", ["", "urgent", "-1", "1.0", "²"])
def test_what_is_no_priority_is_refused_with_the_names(text: str) -> None:
    with pytest.raises(click.BadParameter, match="low, normal or high"):
        params.priority(text)


def test_a_header_is_split_at_its_first_equals_sign() -> None:
    assert params.header("key=a=b") == ("key", "a=b")
    assert params.header("key=") == ("key", "")


@pytest.mark.parametrize("text", ["key", "=value", ""])
def test_a_header_without_key_or_equals_sign_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="KEY=VALUE"):
        params.header(text)


@pytest.mark.parametrize("convert", [params.text, params.header])
def test_text_that_is_not_unicode_is_refused(convert: object) -> None:
    with pytest.raises(click.BadParameter, match="not UTF-8"):
        convert("k=\udcff")  # type: ignore[operator]


@pytest.mark.parametrize("text", ["-1", str(1 << 63), "9" * 100])
def test_a_number_out_of_range_is_refused_with_the_range(text: str) -> None:
    assert params.integer(text) == int(text)
    with pytest.raises(click.BadParameter, match=f"{text}' is out of range: 0 to {(1 << 63) - 1}"):
        params.whole(text)


@pytest.mark.parametrize("text", ["", "-", "1.5", "1e3", "+1", "9" * 10_000])
def test_what_is_no_number_is_refused_in_short(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"^.{2,120} is not a whole number$"):
        params.whole(text)


@pytest.mark.parametrize("text", ["\u0663", "1_000", " 5", "5 ", "+5", "", "5.0"])
def test_a_number_in_a_range_is_written_as_any_other(text: str) -> None:
    numbers = params.WholeRange(0, 5000)
    with pytest.raises(click.BadParameter, match=r"is not a whole number$"):
        numbers.convert(text, None, None)
    with pytest.raises(click.BadParameter, match="5001 is not in the range"):
        numbers.convert("5001", None, None)
    assert numbers.convert("5", None, None) == numbers.convert(5, None, None) == 5


def test_no_flag_takes_a_number_in_another_form() -> None:
    def list_kinds(command: click.Command, context: click.Context) -> set[type]:
        kinds = {type(param.type) for param in command.params}
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                under = command.get_command(context, name)
                assert under is not None
                kinds |= list_kinds(under, click.Context(under, parent=context))
        return kinds

    found = list_kinds(cli, click.Context(cli))
    assert params.WholeRange in found
    assert not found & {click.IntRange, type(click.INT), click.FloatRange, type(click.FLOAT)}


@pytest.mark.parametrize("text", ["none", "None", "NONE"])
def test_the_word_none_is_told_from_a_flag_not_given(text: str) -> None:
    assert params.or_none(params.whole)(text) is params.NONE
    assert params.or_none(params.whole)("3") == 3


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [("\\0", b"\0"), ("\\n", b"\n"), ("--", b"--"), ("", b""), ("é", "é".encode())],
)
def test_a_delimiter_understands_the_escapes_that_a_shell_cannot_pass(
    text: str, delimiter: bytes
) -> None:
    assert params.delimiter(text) == delimiter
