"""Consumer groups by HTTP."""

from __future__ import annotations

import pytest

import shmq
from tests.support.console import Console

GROUPS = "/streams/clicks/groups"
BILLING = f"{GROUPS}/billing"


@pytest.fixture
def clicks(shop: shmq.Broker) -> shmq.Stream:
    """A stream of two partitions with three records in each, and a group that read two."""
    stream = shop.create_stream("clicks", 2)
    for partition in range(2):
        for n in range(3):
            stream.append("x", partition=partition, timestamp=1000.0 * (n + 1))
    stream.group("billing").reset({0: 2})
    return stream


def test_the_groups_of_a_stream_come_in_pages(site: Console, clicks: shmq.Stream) -> None:
    clicks.group("audit")
    page = site.api("GET", GROUPS, limit=1, columns="lag").json
    assert page == {"items": [{"name": "audit", "lag": 6}], "next": "audit"}
    rest = site.api("GET", GROUPS, after="audit", where="lag > 1").json
    assert [one["name"] for one in rest["items"]] == ["billing"]


def test_a_group_shows_its_members_and_what_it_has_not_done(
    site: Console, clicks: shmq.Stream
) -> None:
    with clicks.group("billing").join("worker") as member:
        member.poll()
        shown = site.api("GET", BILLING).json
        assert [(one["name"], one["partitions"]) for one in shown["members"]] == [
            ("worker", [0, 1])
        ]
    progress = [(one["committed"], one["lag"]) for one in shown["partitions"]]
    assert progress == [(2, 1), (None, 3)]
    assert shown["summary"]["lag"] == 4


def test_a_group_that_shares_records_is_shown(site: Console, clicks: shmq.Stream) -> None:
    with clicks.share("crew"):
        shown = site.api("GET", f"{GROUPS}/crew").json
    assert (shown["summary"]["assignment"], shown["partitions"]) == ("shared", [])
    assert site.api("POST", f"{GROUPS}/crew/reset", {"to": "latest"}).code == "invalid"


def test_looking_for_a_group_does_not_make_it(site: Console, clicks: shmq.Stream) -> None:
    assert site.api("GET", f"{GROUPS}/audit").code == "not-found"
    assert site.api("POST", f"{GROUPS}/audit/reset", {"to": "latest"}).code == "not-found"
    assert [one.name for one in clicks.groups()] == ["billing"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"to": "earliest"}, {0: 0, 1: 0}),
        ({"to": "latest"}, {0: 3, 1: 3}),
        ({"to": "latest", "partitions": [1]}, {0: 2, 1: 3}),
        ({"to": "timestamp", "timestamp": 1500}, {0: 1, 1: 1}),
        ({"to": "offsets", "offsets": {"1": 1}}, {0: 2, 1: 1}),
    ],
    ids=str,
)
def test_a_group_continues_where_it_is_told_to(
    site: Console, clicks: shmq.Stream, asked: dict[str, object], expected: dict[int, int]
) -> None:
    done = site.api("POST", f"{BILLING}/reset", asked)
    assert done.status == 200
    assert clicks.group("billing").committed() == expected
    told = {one["partition"]: one["offset"] for one in done.json["items"]}
    assert told.items() <= expected.items()


def test_partitions_that_a_member_owns_are_not_reset(site: Console, clicks: shmq.Stream) -> None:
    with clicks.group("billing").join() as member:
        member.poll()
        told = site.api("POST", f"{BILLING}/reset", {"to": "earliest"})
    assert (told.status, told.code) == (409, "fenced")


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"to": "yesterday"},
        {"to": "timestamp"},
        {"to": "latest", "timestamp": 5},
        {"to": "offsets", "offsets": {"x": 1}},
        {"to": "offsets", "offsets": {"0": 99}},
        {"to": "offsets", "offsets": {"7": 0}},
        {"to": "offsets", "offsets": {"0": -1}},
        {"to": "latest", "partitions": [9]},
        {"to": "latest", "more": 1},
    ],
    ids=str,
)
def test_a_reset_that_is_wrong_changes_nothing(
    site: Console, clicks: shmq.Stream, asked: dict[str, object]
) -> None:
    told = site.api("POST", f"{BILLING}/reset", asked)
    assert (told.status, told.code) == (400, "invalid"), told
    assert clicks.group("billing").committed() == {0: 2, 1: None}


def test_a_group_is_deleted_once(site: Console, clicks: shmq.Stream) -> None:
    assert site.api("DELETE", BILLING).status == 204
    assert site.api("DELETE", BILLING).code == "not-found"
    assert clicks.groups() == []
