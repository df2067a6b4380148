"""What an option's text means, and what each refusal says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

import shmq
from shmq.spark.queue.kind import QUEUE
from shmq.spark.shared import options
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import BATCH, STREAM, WRITE, Option, Use
from shmq.spark.shared.subscription import Subscription

TABLE = (
    Option("url", options.text, "here", BATCH | STREAM | WRITE),
    Option("maxRows", options.whole(1, 10), 5, STREAM),
)

REFUSED = {"maxrows": "a write has no end", "old.*": "it is called otherwise"}


def parse(given: Mapping[str, str], use: Use = STREAM) -> dict[str, Any]:
    return options.parse(TABLE, given, use, form="shmq", refused=REFUSED if use != BATCH else {})


def of_queues(use: Use = BATCH, /, **given: str) -> dict[str, Any]:
    return QUEUE.parse(given, use)


def test_an_option_has_its_default_until_it_is_given_in_whatever_case() -> None:
    assert parse({}) == {"url": "here", "maxRows": 5}
    assert parse({"MAXROWS": "7", "Url": "there"}) == {"url": "there", "maxRows": 7}
    assert parse({}, BATCH) == {"url": "here"}


def test_what_spark_adds_for_itself_is_passed_over() -> None:
    assert parse({"checkpointLocation": "/tmp/x", "queryName": "q", "__partition": "1"}) == parse(
        {}
    )


@pytest.mark.parametrize(
    ("given", "use", "said"),
    [
        ({"maxRow": "1"}, STREAM, r"no option 'maxRow': did you mean 'maxRows'\?"),
        ({"zzz": "1"}, STREAM, "no option 'zzz': known are url, maxRows"),
        ({"maxRows": "1"}, BATCH, "maxRows='1' is for spark.readStream: leave it out"),
        ({"maxRows": "1"}, WRITE, "maxRows='1' is for spark.readStream: a write has no end"),
        ({"old.name": "1"}, STREAM, "no option 'old.name': it is called otherwise"),
        ({"maxRows": "11"}, STREAM, "maxRows='11' must be a whole number from 1 to 10"),
    ],
)
def test_what_is_refused_is_told_with_what_to_do(
    given: dict[str, str], use: Use, said: str
) -> None:
    with pytest.raises(shmq.InvalidOption, match=said):
        parse(given, use)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (options.text, " a b ", "a b"),
        (options.truth, "True", True),
        (options.truth, " false", False),
        (options.names, "a, b", ("a", "b")),
        (options.whole(0, 9), " 7 ", 7),
        (options.size(1, 1 << 40), "64k", 65536),
        (options.size(1, 1 << 40), "1 MiB", 1 << 20),
        (options.size(1, 1 << 40), "3GB", 3 * 10**9),
        (options.size(1, 1 << 40), "12", 12),
        (options.seconds(0, 1e6), "0.5", 0.5),
        (options.seconds(0, 1e6), "500ms", 0.5),
        (options.seconds(0, 1e6), "2 min", 120.0),
        (options.seconds(0, 1e6), "1h", 3600.0),
        (options.one_of("a", "b"), "b", "b"),
        (options.several_of("a", "b", "c"), "c,a", ("c", "a")),
    ],
)
def test_the_text_of_an_option_is_read(read: options.Reading, text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (options.text, "  "),
        (options.truth, "yes"),
        (options.names, "a,,b"),
        (options.names, "a,a"),
        (options.pattern, "("),
        (options.whole(1, 9), "0"),
        (options.whole(1, 9), "-1"),
        (options.whole(1, 9), "1.5"),
        (options.whole(1, 9), "9" * 30),
        (options.size(10, 100), "9"),
        (options.size(10, 100), "1k"),
        (options.size(10, 100), "64 stones"),
        (options.seconds(1, 10), "0.5"),
        (options.seconds(1, 10), "nan"),
        (options.seconds(1, 10), "1 day"),
        (options.one_of("a", "b"), "c"),
        (options.several_of("a", "b"), "a,c"),
        (options.several_of("a", "b"), ""),
    ],
)
def test_a_text_that_an_option_does_not_allow_is_refused(read: options.Reading, text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        read(text)


@pytest.mark.parametrize("name", sorted(QUEUE.refused))
def test_what_other_formats_have_and_queues_have_not_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(shmq.InvalidOption) as refused:
        of_queues(STREAM, **{name.replace("*", "x"): "earliest"})
    assert QUEUE.refused[name] in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "none of them is given"),
        ({"subscribe": "a", "subscribePattern": "b"}, "several of them is given"),
    ],
)
def test_it_takes_one_way_to_say_which_queues(given: dict[str, str], said: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=said):
        Subscription.of(of_queues(**given), "queue")


def test_what_can_name_no_queue_is_refused() -> None:
    with pytest.raises(shmq.InvalidName, match="a/b"):
        Subscription.of(of_queues(subscribe="a/b"), "queue")


def test_queues_are_found_by_name_in_the_order_given_and_by_pattern_in_theirs(
    broker: shmq.Broker,
) -> None:
    for name in ("jobs.b", "jobs.a", "other"):
        broker.create_queue(name, dead_letter=None)

    named = Subscription.of(of_queues(subscribe="other,jobs.a"), "queue")
    fitting = Subscription.of(of_queues(subscribePattern=r"jobs\..*"), "queue")

    assert named.find(broker) == ("other", "jobs.a")
    assert fitting.find(broker) == ("jobs.a", "jobs.b")
    assert Subscription.of(of_queues(subscribePattern="jobs"), "queue").find(broker) == ()


def test_a_queue_that_is_named_and_not_there_is_an_error_or_left_out(broker: shmq.Broker) -> None:
    broker.create_queue("there", dead_letter=None)
    both = Subscription.of(of_queues(subscribe="there,not-there"), "queue")

    with pytest.raises(
        shmq.NoSuchQueue, match=f"'not-there' does not exist in the namespace '{broker.namespace}'"
    ):
        both.find(broker)
    assert both.find(broker, strict=False) == ("there",)


def test_the_url_is_that_of_the_option_else_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHMQ_URL", raising=False)
    monkeypatch.delenv("SHMQ_TOKEN", raising=False)
    monkeypatch.delenv("SHMQ_NAMESPACE", raising=False)
    assert Address.of(of_queues()).url == f"default-{os.geteuid()}"
    monkeypatch.setenv("SHMQ_NAMESPACE", "spaces")
    assert Address.of(of_queues()).url == "spaces"
    monkeypatch.setenv("SHMQ_URL", "shmq://broker:1")
    monkeypatch.setenv("SHMQ_TOKEN", "secret")
    assert Address.of(of_queues()) == Address("shmq://broker:1", "secret")
    assert Address.of(of_queues(url="mine")) == Address("mine")
    assert Address.of(of_queues(token="other")).token == "other"


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Address("shmq://broker:1", "secret"))


def test_tls_is_said_by_a_switch_or_by_its_files() -> None:
    url = "shmq://broker:1"
    files = of_queues(url=url, tlsCa="/ca", tlsCertificate="/crt", tlsKey="/key")

    assert Address.of(of_queues(url=url, tls="true")).tls is True
    assert Address.of(of_queues(url=url)).tls is None
    assert Address.of(files).tls == {"ca": "/ca", "certificate": "/crt", "key": "/key"}
    with pytest.raises(shmq.InvalidOption, match="tls=false refuses TLS"):
        Address.of(of_queues(url=url, tls="false", tlsCa="/ca"))


def test_how_long_a_connection_and_a_request_may_take_is_said_in_seconds() -> None:
    address = Address.of(of_queues(connectTimeout="100ms", requestTimeout="2min"))
    assert (address.connect_timeout, address.request_timeout) == (0.1, 120.0)


def test_a_namespace_knows_no_token() -> None:
    with pytest.raises(shmq.InvalidOption, match="knows no token"):
        Address.of(of_queues(url="here", token="secret")).connect()
