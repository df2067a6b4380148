"""A query's page: which addresses are taken, and how the console comes to know of it."""

from __future__ import annotations

from typing import Any

import pytest

import shmq
from shmq.api.query_pages import TABLE, is_web_page
from shmq.spark.queue.kind import QUEUE
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import STREAM
from shmq.spark.shared.query_page import QueryPage


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("http://driver:4040", True),
        ("https://spark.example.org/proxy/app", True),
        ("driver:4040", False),
        ("javascript:alert(1)", False),
        ("http://", False),
        ("http://[", False),
        ("http://driver/\n", False),
        ("http://driver/ x", False),
        ("http://driver/" + "x" * 2048, False),
        (7, False),
    ],
)
def test_a_browser_is_sent_to_pages_of_the_web_alone(given: Any, taken: bool) -> None:
    assert is_web_page(given) == taken


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(shmq.InvalidOption, match=r"as spark\.sparkContext\.uiWebUrl"):
        QUEUE.parse({"subscribe": "orders", "uiWebUrl": "driver:4040"}, STREAM)


def test_a_query_tells_its_page_and_without_the_address_nothing(broker: shmq.Broker) -> None:
    QueryPage(None, "queue").tell(Address(broker.namespace), ["orders"])
    assert broker.list_tables() == []

    QueryPage("http://driver:4040", "queue").tell(Address(broker.namespace), ["orders", "paid"])

    with broker.table(TABLE) as table:
        keys = table.keys("queue/")
        assert [key.rpartition("/")[0] for key in keys] == ["queue/orders", "queue/paid"]
        assert set(table.get_many(keys).values()) == {"http://driver:4040/StreamingQuery/"}
    broker.delete_table(TABLE)


def test_a_query_goes_on_where_its_page_cannot_be_told() -> None:
    place = Address("shmq://127.0.0.1:1", connect_timeout=0.1, request_timeout=0.1)
    QueryPage("http://driver:4040", "queue").tell(place, ["orders"])
