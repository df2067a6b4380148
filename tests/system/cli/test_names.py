"""Names of other systems, such as ``celery@host``: how they are shown, and taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.api.names import with_dead_letter
from shmq.cli.shared.exit_codes import Code
from tests.system.cli.conftest import Quick

QUEUE, STREAM, EXCHANGE = "celery@host/a", "clicks@host", "celery.pidbox@host"
#: A name whose text would move the cursor of a terminal.
HOSTILE = shmq.escape_name("\x1b[2Jgone")


@pytest.fixture
def names(broker: shmq.Broker) -> Iterator[dict[str, str]]:
    """The names of a queue, a stream and an exchange, by the text that they were made of."""
    made = {text: shmq.escape_name(text) for text in (QUEUE, STREAM, EXCHANGE)}
    broker.create_queue(made[QUEUE], dead_letter=None)
    broker.create_queue(HOSTILE, dead_letter=None)
    broker.create_stream(made[STREAM], partitions=1, ring_bytes=65536)
    broker.create_exchange(made[EXCHANGE]).bind(made[QUEUE])
    yield made
    broker.delete_stream(made[STREAM])
    broker.delete_exchange(made[EXCHANGE])


@pytest.mark.parametrize("command", ["list", "stats", "top"])
def test_a_table_has_the_text_and_json_has_both(
    quick: Quick, names: dict[str, str], command: str
) -> None:
    told = {one["name"]: one.get("shown") for one in quick(command, "--json").json}
    table = quick(command, *(["--once"] if command == "top" else [])).text

    assert told == {name: text for text, name in names.items()} | {HOSTILE: None}
    for text, name in names.items():
        assert text in table
        assert name not in table
    assert HOSTILE in table
    assert "\x1b[2J" not in table


def test_exchanges_and_what_is_bound_to_them_have_their_texts(
    quick: Quick, names: dict[str, str]
) -> None:
    assert EXCHANGE in quick("exchange", "list").text
    assert quick("exchange", "list", "--json").json[0]["shown"] == EXCHANGE
    assert QUEUE in quick("exchange", "list", EXCHANGE).text
    (binding,) = quick("exchange", "list", EXCHANGE, "--json").json
    assert (binding["target"], binding["shown"]) == (names[QUEUE], QUEUE)


@pytest.mark.parametrize("command", ["doctor", "fsck"])
def test_a_check_has_the_text(quick: Quick, names: dict[str, str], command: str) -> None:
    assert QUEUE in quick(command, code=None).text
    told = quick(command, "--json", code=None).json
    rows = told["segments"] if command == "doctor" else told
    assert QUEUE in {row.get("shown") for row in rows}


def test_a_command_takes_the_text_for_the_name(quick: Quick, names: dict[str, str]) -> None:
    quick("produce", QUEUE, "-m", "hello")

    assert quick("stats", QUEUE, "--json").json["name"] == names[QUEUE]
    assert quick("stats", "-q", QUEUE, "--json").json["depth"] == 1
    assert "1 message removed" in quick("purge", "-y", QUEUE).text
    assert f"({QUEUE!r})" in quick("who", QUEUE, code=None).error
    assert quick("stream", "offsets", STREAM, "--json").json
    quick("exchange", "unbind", EXCHANGE, "-q", QUEUE)
    told = quick("delete", "-y", QUEUE).text
    assert names[QUEUE] in told
    assert QUEUE in told
    quick("stats", "-q", QUEUE, code=Code.NO_QUEUE)


@pytest.mark.parametrize(
    "command",
    [
        ["create", "a/b"],
        ["create", "-q", "a/b"],
        ["create", "jobs", "--dead-letter", "a/b"],
        ["stream", "create", "a/b"],
        ["exchange", "create", "a/b"],
        ["exchange", "create", "x", "--alternate", "a/b"],
        ["table", "create", "a/b"],
    ],
    ids=" ".join,
)
def test_what_is_created_has_a_name_that_a_call_takes(
    quick: Quick, broker: shmq.Broker, command: list[str]
) -> None:
    error = quick(*command, code=Code.USAGE).error

    assert "'/' at position 2 is not allowed; use 1 to 100 of A-Z" in error
    assert "such as 'a:2Fb', its form by escape_name" in error
    assert (broker.queue_names(), broker.list_streams(), broker.list_exchanges()) == ([], [], [])


def test_a_queue_of_a_long_text_is_found_and_deleted_by_it(
    quick: Quick, broker: shmq.Broker
) -> None:
    text = "订单处理" * 21
    name = shmq.escape_name(text)
    broker.create_queue(name, **with_dead_letter(name, {}))

    quick("produce", f"{text}.dlq", "-m", "hello")
    assert "1 message removed" in quick("purge", "-y", f"{text}.dlq").text
    assert text in quick("delete", "-y", text).text


@pytest.mark.parametrize("length", [96, 97, 100, 101, 255, 256])
def test_a_name_of_any_length_is_that_of_the_escape(
    quick: Quick, broker: shmq.Broker, length: int
) -> None:
    text = "q" * length
    name = shmq.escape_name(text)
    broker.create_queue(name, **with_dead_letter(name, {})).put(b"x")
    broker.queue(name).get(timeout=0).reject()

    assert "1 dead letter sent back" in quick("redrive", text).text
    assert "1 message removed" in quick("purge", "-y", text).text
    assert "0 messages removed" in quick("purge", "-y", f"{text}.dlq").text
    shown = {one.get("shown", one["name"]) for one in quick("list", "--json").json}
    assert shown == {text, f"{text}.dlq"}


@pytest.mark.parametrize("length", [97, 100])
def test_a_name_after_which_the_suffix_does_not_fit_is_created_with_dead_letters_of_its_own(
    quick: Quick, length: int
) -> None:
    name = "q" * length
    assert "--dead-letter" in quick("create", name, code=Code.USAGE).error

    quick("create", name, "--dead-letter", "bad")
    assert {one["name"] for one in quick("list", "--json").json} == {name, "bad"}


def test_a_text_that_is_too_long_is_refused_with_its_length(quick: Quick) -> None:
    error = quick("purge", "-y", "@" * 1025, code=Code.USAGE).error

    assert "1024 bytes" in error
    assert "1025" in error


@pytest.mark.parametrize("namespace", [".", ".."])
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(
    "command",
    ["list", "persist", "serve", "doctor", "fsck", "top --once", "create q", "backup /b -q q"],
)
def test_no_command_works_on_the_directory_of_all_namespaces(
    namespace: str, flag: bool, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_DATA_DIR", str(tmp_path / "of" / "all"))
    run = Quick("default" if flag else namespace)
    ran = run(*(["-n", namespace] if flag else []), *command.split(), code=Code.USAGE)
    assert "invalid namespace" in ran.error
    assert list(tmp_path.iterdir()) == []
