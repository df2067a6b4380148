"""Tables: values by key, with a time to live, counters with bounds, and waiting for a key.

Other levels: system/cli/test_table.py, system/wire/test_tables.py, system/processes/test_tables.py.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import shmq
from shmq import Broker, Table
from tests.support.loops import occupied_pool
from tests.support.waiting import eventually

from .conftest import Connect
from .tools import LATER, SOON, in_thread, outcome


@pytest.fixture(params=["memory", "disk"])
def table(request: pytest.FixtureRequest, broker: Broker) -> Table:
    """A table, in shared memory and on disk."""
    return broker.ensure_table("t", request.param)


@pytest.fixture
def other(connect: Connect, table: Table) -> Table:
    """The same table, from another client."""
    return connect().table(table.name)


# --- values ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [b"bytes", b"", "text", "", 7, -1.5, True, None, {"a": [1, {"b": b"x"}]}, [], bytearray(b"x")],
    ids=repr,
)
def test_a_value_is_what_was_set_for_every_client(table: Table, other: Table, value: Any) -> None:
    table.set("k", value)

    assert other.get("k", "nothing") == value
    assert other.get_many(["k", "absent"]) == {"k": value}


def test_what_is_not_there_is_the_default(table: Table) -> None:
    assert table.get("k") is None
    assert table.get("k", 5) == 5
    assert table.get_many([]) == table.get_many(["k"]) == {}


def test_the_last_value_replaces_the_one_before_and_its_ttl(table: Table, other: Table) -> None:
    table.set("k", 1, ttl=SOON)
    other.set("k", "two")
    time.sleep(2 * SOON)

    assert table.get("k") == "two"


def test_many_are_set_at_once_or_none_of_them(table: Table, other: Table) -> None:
    table.set_many({"a": 1, "b": "two"})
    with pytest.raises(TypeError, match="msgpack cannot hold"):
        table.set_many({"a": 3, "c": object()})

    assert other.get_many(["a", "b", "c"]) == {"a": 1, "b": "two"}


def test_a_value_is_added_only_where_none_is(table: Table, other: Table) -> None:
    assert table.add("k", "first", ttl=LATER)
    assert not other.add("k", "second")
    assert table.get("k") == "first"


def test_deleted_keys_are_counted_and_gone(table: Table, other: Table) -> None:
    table.set_many({"a": 1, "b": 2, "c": 3})

    assert other.delete("a", "b", "b", "absent") == 2
    assert table.delete() == 0
    assert table.keys() == ["c"]


@pytest.mark.parametrize("key", ["a", "k" * 512, "größe/☃/\U0001f600", "with\0null", " ", "%_*?"])
def test_any_text_of_1_to_512_characters_is_a_key(table: Table, other: Table, key: str) -> None:
    table.set(key, 1)

    assert other.get(key) == 1
    assert other.keys() == [key] == other.keys(prefix=key)


@pytest.mark.parametrize(
    ("key", "error", "told"),
    [
        ("", shmq.InvalidOption, "1 to 512"),
        ("k" * 513, shmq.InvalidOption, "1 to 512"),
        ("\ud800", shmq.InvalidOption, "UTF-8"),
        (b"k", TypeError, "must be a str, not bytes"),
        (None, TypeError, "must be a str, not NoneType"),
    ],
)
def test_what_is_no_key_is_refused_by_every_call(
    table: Table, key: Any, error: type[Exception], told: str
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: table.get(key),
        lambda: table.get_many([key]),
        lambda: table.set(key, 1),
        lambda: table.set_many({key: 1}),
        lambda: table.add(key, 1),
        lambda: table.delete(key),
        lambda: table.expire(key, 1),
        lambda: table.increment(key),
        lambda: table.increment("k", sum_with=[key]),
        lambda: table.wait(key, 0.0),
    ]
    for call in calls:
        with pytest.raises(error, match=told):
            call()
    assert table.keys() == []


def test_a_value_over_16_mib_is_refused_and_the_old_one_stays(table: Table) -> None:
    table.set("k", "old")
    with pytest.raises(shmq.MessageTooLarge):
        table.set("k", bytes((16 << 20) + 1))

    assert table.get("k") == "old"


def test_many_large_values_are_found_all(table: Table, other: Table) -> None:
    values = {f"k{number}": bytes([number]) * (1 << 20) for number in range(6)}
    for key, value in values.items():
        table.set(key, value)

    assert other.get_many(values) == values


# --- time to live ----------------------------------------------------------------------


def test_a_value_whose_time_is_over_is_there_for_no_call(table: Table, other: Table) -> None:
    table.set("k", 41, ttl=SOON)
    table.set("kept", 1, ttl=LATER)
    eventually(lambda: other.get("k") is None, "the value expires")

    assert (table.get("k"), table.get_many(["k"]), table.keys()) == (None, {}, ["kept"])
    assert len(other) == 1
    assert not table.expire("k", LATER)
    assert table.delete("k") == 0
    assert table.increment("k") == 1
    assert table.wait("kept", 0.0) == 1


def test_an_expired_value_can_be_added_again(table: Table) -> None:
    assert table.add("k", 1, ttl=SOON)
    eventually(lambda: table.add("k", 2), "the value expires")

    assert table.get("k") == 2


def test_a_ttl_can_be_given_and_taken_away(table: Table) -> None:
    table.set("short", 1)

    def take_away() -> bool:
        table.set("long", 1, ttl=SOON)
        return table.expire("long", None)

    eventually(take_away, "the ttl is taken away before the value expires")
    assert table.expire("short", SOON)
    eventually(lambda: table.get("short") is None, "the shortened value expires")
    assert table.get("long") == 1
    assert not table.expire("absent", 1.0)


@pytest.mark.parametrize("mapping", [[("k", 1)], "k", None, 5])
def test_what_is_no_map_cannot_be_set(table: Table, mapping: Any) -> None:
    with pytest.raises(TypeError, match=r"^mapping=.* must be a map, not "):
        table.set_many(mapping)
    with pytest.raises(TypeError, match=r"^mapping=.* must be a map, not "):
        asyncio.run(table.aset_many(mapping))


@pytest.mark.parametrize("ttl", [0, -1, 4e8, 1e10, float("inf"), float("nan")])
def test_a_ttl_out_of_range_is_refused_with_the_range_of_tables(table: Table, ttl: float) -> None:
    with pytest.raises(shmq.InvalidOption) as error:
        table.set("k", 1, ttl=ttl)
    assert str(error.value) == (
        f"ttl={ttl} s is out of range: 0.001 to 316224000 s, or None: for ever"
    )


@pytest.mark.parametrize("key", ["", "k" * 513])
def test_a_key_of_a_wrong_length_is_refused_with_its_length(table: Table, key: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=f"has {len(key)} characters; use 1 to 512$"):
        table.get(key)


@pytest.mark.parametrize("ttl", [0, -1, 1e12, float("nan"), "1"])
def test_what_is_no_ttl_is_refused(table: Table, ttl: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: table.set("k", 1, ttl=ttl),
        lambda: table.set_many({"k": 1}, ttl=ttl),
        lambda: table.add("k", 1, ttl=ttl),
        lambda: table.increment("k", ttl=ttl),
        lambda: table.expire("k", ttl),
    ]
    for call in calls:
        with pytest.raises((shmq.InvalidOption, TypeError), match="ttl"):
            call()
    assert table.keys() == []


def test_many_expired_values_make_room_for_a_large_one(broker: Broker) -> None:
    table = broker.ensure_table("small", max_bytes=256 << 10)
    table.set_many({f"k{number}": bytes(1000) for number in range(150)}, ttl=SOON)
    eventually(lambda: not table.keys(), "the values expire")

    table.set("large", bytes(150_000))

    assert len(table.get("large") or b"") == 150_000


# --- counters --------------------------------------------------------------------------


def test_a_counter_begins_at_0_and_counts_up_and_down(table: Table, other: Table) -> None:
    assert (table.increment("n"), other.increment("n", 5)) == (1, 6)
    assert table.increment("n", by=-7) == -1
    assert other.get("n") == -1


def test_a_counter_is_a_value_like_others(table: Table) -> None:
    table.set("n", 40)

    assert table.increment("n", 2) == 42


def test_an_increment_that_leaves_the_bounds_changes_nothing(table: Table) -> None:
    assert [table.increment("n", most=2) for _ in range(3)] == [1, 2, None]
    assert table.increment("n", -3, least=0) is None
    assert table.get("n") == 2


def test_the_sum_with_other_counters_is_what_is_bounded(table: Table) -> None:
    table.set("before", 7)

    told = [table.increment("now", 2, most=10, sum_with=["before", "absent"]) for _ in range(2)]
    assert told == [2, None]
    assert table.get_many(["now", "before"]) == {"now": 2, "before": 7}


def test_an_increment_keeps_the_ttl_unless_it_gives_another(table: Table) -> None:
    def count_to_2(key: str, ttl: float | None) -> bool:
        table.delete(key)
        table.increment(key, ttl=SOON)
        return table.increment(key, ttl=ttl) == 2

    eventually(lambda: count_to_2("longer", LATER), "it counts before the counter expires")
    eventually(lambda: count_to_2("kept", None), "it counts before the counter expires")
    eventually(lambda: table.get("kept") is None, "the counter expires")

    assert table.get("longer") == 2


def test_an_increment_that_creates_nothing_leaves_an_absent_key_absent(
    table: Table, other: Table
) -> None:
    assert table.increment("n", create=False) is None
    assert table.increment("n", ttl=LATER, least=0, create=False, renew=False) is None
    assert table.keys() == []

    table.set("n", 5)
    assert other.increment("n", 2, create=False) == 7
    table.set("soon", 1, ttl=SOON)
    eventually(lambda: other.increment("soon", create=False) is None, "the counter expires")
    assert table.get_many(["n", "soon"]) == {"n": 7}


def test_a_counter_that_is_not_renewed_expires_while_it_is_used(table: Table) -> None:
    def count(key: str) -> int | None:
        return table.increment(key, ttl=SOON, renew=False)

    table.set("for ever", 1)
    assert (count("n"), count("for ever")) == (1, 2)
    eventually(lambda: count("n") == 2, "it counts within the first ttl")
    eventually(lambda: count("n") == 1, "the counter expires, and begins again")
    eventually(lambda: table.get("n") is None, "the new counter has a ttl, too")

    assert table.get("for ever") == 2


@pytest.mark.parametrize("flag", ["create", "renew"])
def test_what_is_no_flag_of_an_increment_is_refused(table: Table, flag: str) -> None:
    for wrong in (0, 1, None, "no"):
        with pytest.raises(TypeError, match=f"{flag}={wrong!r} must be True or False"):
            table.increment("n", **{flag: wrong})  # type: ignore[arg-type]
    assert table.get("n") is None


@pytest.mark.parametrize("value", ["7", b"7", 1.5, True, [1]], ids=repr)
def test_what_is_no_integer_is_not_incremented(table: Table, value: Any) -> None:
    table.set("k", value)
    with pytest.raises(shmq.InvalidOption, match="only an int is incremented"):
        table.increment("k")
    with pytest.raises(shmq.InvalidOption, match="only an int is incremented"):
        table.increment("n", sum_with=["k"])

    assert table.get("k") == value
    assert table.get("n") is None


def test_a_counter_has_64_bits(table: Table) -> None:
    most = (1 << 63) - 1
    assert table.increment("n", most) == most
    with pytest.raises(shmq.InvalidOption, match="64 bits"):
        table.increment("n")
    for wrong in (1 << 63, 1.0, True):
        with pytest.raises((shmq.InvalidOption, TypeError), match="by="):
            table.increment("n", wrong)  # type: ignore[arg-type]

    assert table.get("n") == most


def test_a_key_is_not_summed_with_itself(table: Table) -> None:
    with pytest.raises(shmq.InvalidOption, match="sum_with"):
        table.increment("n", sum_with=["n"])
    with pytest.raises(TypeError, match="sum_with"):
        table.increment("n", sum_with="abc")


def test_no_increment_of_many_threads_and_clients_is_lost(table: Table, other: Table) -> None:
    def work(one: Table) -> None:
        for _ in range(50):
            one.increment("n")

    workers = [in_thread(work, one) for one in (table, table, other, other)]
    for worker in workers:
        outcome(worker)

    assert table.get("n") == 200


# --- keys ------------------------------------------------------------------------------


def test_keys_come_sorted_by_prefix_and_in_pages(table: Table) -> None:
    table.set_many({f"job:{number:02}": number for number in range(7)} | {"jo": 0, "k": 0, "ä": 0})

    assert table.keys("job:", limit=3) == ["job:00", "job:01", "job:02"]
    assert table.keys("job:", after="job:04") == ["job:05", "job:06"]
    assert table.keys("nothing") == []
    assert table.keys()[-2:] == ["k", "ä"]
    assert len(table) == 10


@pytest.mark.parametrize("limit", [0, 10_001, "1", 1.5])
def test_a_limit_out_of_range_is_refused(table: Table, limit: Any) -> None:
    with pytest.raises((shmq.InvalidOption, TypeError), match="limit"):
        table.keys(limit=limit)


# --- clearing --------------------------------------------------------------------------


def test_clear_deletes_all_keys_and_counts_those_that_were_there(
    table: Table, other: Table
) -> None:
    table.set_many({str(number): b"x" for number in range(100)}, ttl=LATER)
    table.set("lasting", 1)
    table.set("expired", 1, ttl=0.001)
    eventually(lambda: table.get("expired") is None, "the value expires")

    assert other.clear() == 101
    assert (table.keys(), table.clear()) == ([], 0)
    table.set("again", 1)
    assert other.get("again") == 1


def test_clear_of_some_deletes_those_that_expire_first(table: Table, other: Table) -> None:
    for key, ttl in [("old", None), ("b", LATER + 2), ("a", LATER + 1), ("c", LATER + 3)]:
        table.set(key, 1, ttl=ttl)
    table.set("young", 1)

    assert (other.clear(2), table.keys()) == (2, ["c", "old", "young"])
    assert (table.clear(most=2), table.keys()) == (2, ["young"])
    assert (other.clear(5), table.keys()) == (1, [])


@pytest.mark.parametrize("most", [0, -1, "1", 1.5])
def test_a_number_of_keys_to_clear_out_of_range_is_rejected(table: Table, most: Any) -> None:
    table.set("k", 1)
    with pytest.raises((shmq.InvalidOption, TypeError), match="most"):
        table.clear(most)

    assert table.get("k") == 1


# --- waiting ---------------------------------------------------------------------------


def test_a_wait_ends_when_another_client_sets_the_key(table: Table, other: Table) -> None:
    waits = in_thread(table.wait, "k", LATER)
    other.set("unrelated", 1)
    other.set("k", {"done": True})

    assert outcome(waits) == {"done": True}


def test_a_wait_ends_when_another_thread_sets_the_key_by_the_same_handle(table: Table) -> None:
    waits = in_thread(table.wait, "k")
    table.set("k", 1)

    assert outcome(waits) == 1


def test_a_wait_returns_what_is_there_and_none_after_its_timeout(table: Table) -> None:
    assert table.wait("k", 0.0) is None
    assert table.wait("k", SOON) is None
    table.set("k", 1)

    assert table.wait("k") == 1
    with pytest.raises((shmq.InvalidOption, TypeError)):
        table.wait("k", -1.0)


def test_a_wait_ends_when_the_table_is_deleted(connect: Connect, table: Table) -> None:
    waits = in_thread(table.wait, "k", LATER)
    connect().delete_table(table.name)

    with pytest.raises(shmq.TableDeleted):
        outcome(waits)


def test_many_tasks_await_s_while_the_default_pool_is_occupied(table: Table, other: Table) -> None:
    async def main() -> list[Any]:
        async with occupied_pool():
            keys = [str(number) for number in range(100)]
            waits = [asyncio.create_task(table.await_(key, LATER)) for key in keys]
            await asyncio.sleep(0)
            other.set_many({key: int(key) for key in keys})
            return list(await asyncio.gather(*waits))

    assert asyncio.run(main()) == list(range(100))


def test_an_awaited_key_is_what_is_there_and_none_after_its_timeout(table: Table) -> None:
    async def main() -> None:
        assert await table.await_("k", 0.0) is None
        assert await table.await_("k", SOON) is None
        table.set("k", 1)
        assert await table.await_("k", 0.0) == await table.await_("k") == 1
        with pytest.raises((shmq.InvalidOption, TypeError)):
            await table.await_("k", -1.0)

    asyncio.run(main())


def test_a_cancelled_wait_ends_and_the_others_go_on(table: Table, other: Table) -> None:
    async def main() -> Any:
        cancelled, goes_on = (asyncio.create_task(table.await_("k", LATER)) for _ in range(2))
        await asyncio.sleep(SOON)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        other.set("k", 5)
        return cancelled.cancelled(), await goes_on

    assert asyncio.run(main()) == (True, 5)


def test_every_awaited_key_ends_when_the_table_is_deleted(connect: Connect, table: Table) -> None:
    async def main() -> None:
        waits = [asyncio.create_task(table.await_(key, LATER)) for key in "ab"]
        await asyncio.sleep(SOON)
        connect().delete_table(table.name)
        for wait in waits:
            with pytest.raises(shmq.TableDeleted):
                await wait

    asyncio.run(main())


def test_a_thousand_tasks_wait_with_a_bounded_number_of_threads(table: Table, other: Table) -> None:
    most = 0

    async def await_key(key: str) -> Any:
        nonlocal most
        most = max(most, threading.active_count())
        value = await table.await_(key, LATER)
        most = max(most, threading.active_count())
        return value

    async def main() -> list[Any]:
        keys = [str(number) for number in range(1000)]
        waits = [asyncio.create_task(await_key(key)) for key in keys]
        await asyncio.sleep(SOON)
        await other.aset_many({key: int(key) for key in keys})
        return list(await asyncio.gather(*waits))

    before = threading.active_count()
    assert asyncio.run(main()) == list(range(1000))
    assert most - before <= 4  # those that make all calls of tables of this host


def test_every_call_has_a_twin_for_asyncio(table: Table, other: Table) -> None:
    async def main() -> None:
        await table.aset("a", 1)
        await table.aset_many({"b": 2, "c": "three"}, ttl=LATER)
        assert (await table.aadd("d", 4), await table.aadd("a", 5)) == (True, False)
        assert await table.aincrement("a", 5, most=6, sum_with=["x"]) == 6
        assert await table.aincrement("a", most=6) is None
        assert await table.aincrement("x", ttl=LATER, create=False, renew=False) is None
        assert (await table.aget("a"), await table.aget("x", 9)) == (6, 9)
        assert await table.aget_many(["b", "c", "x"]) == {"b": 2, "c": "three"}
        assert (await table.aexpire("b", LATER), await table.aexpire("x", None)) == (True, False)
        assert await table.akeys(after="a", limit=2) == ["b", "c"]
        assert (await table.adelete("a", "x"), await table.alen()) == (1, 3)

    asyncio.run(main())
    assert other.get_many(list("abcd")) == {"b": 2, "c": "three", "d": 4}
    assert (asyncio.run(table.aclear(1)), asyncio.run(table.aclear())) == (1, 2)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), "5"])
def test_an_invalid_timeout_of_an_awaited_key_is_refused(table: Table, timeout: Any) -> None:
    table.set("k", 1)

    with pytest.raises((shmq.InvalidOption, TypeError)):
        asyncio.run(table.await_("k", timeout))


def test_a_twin_refuses_what_its_call_refuses(broker: Broker, table: Table) -> None:
    async def main() -> None:
        with pytest.raises(shmq.InvalidOption):
            await table.aget("")
        with pytest.raises(TypeError, match="msgpack cannot hold"):
            await table.aset("k", object())
        with pytest.raises(TypeError, match="unexpected"):
            await table.aincrement("k", lest=1)  # type: ignore[call-arg]
        broker.delete_table(table.name)
        with pytest.raises(shmq.TableDeleted):
            await table.aget("k")

    asyncio.run(main())


def test_loops_of_several_threads_await_keys_of_one_handle(table: Table, other: Table) -> None:
    def run(key: str) -> Any:
        return asyncio.run(table.await_(key, LATER))

    waits = [in_thread(run, key) for key in "aab"]
    time.sleep(SOON)
    other.set_many({"a": 1, "b": 2})

    assert [outcome(wait) for wait in waits] == [1, 1, 2]
    assert asyncio.run(table.await_("a")) == 1


def test_an_awaited_key_ends_when_the_broker_is_closed(broker: Broker, table: Table) -> None:
    async def main() -> None:
        wait = asyncio.create_task(table.await_("k", LATER))
        await asyncio.sleep(SOON)
        broker.close()
        with pytest.raises(shmq.ShmqError, match="closed"):
            await wait

    asyncio.run(main())


def test_a_loop_that_ends_cancels_its_waits_and_another_one_can_wait(table: Table) -> None:
    async def main() -> None:
        waits.append(asyncio.create_task(table.await_("k")))
        await asyncio.sleep(SOON)

    waits: list[asyncio.Task[Any]] = []
    asyncio.run(main())

    assert waits[0].cancelled()
    assert asyncio.run(table.await_("k", SOON)) is None


# --- making, finding, deleting ---------------------------------------------------------


def test_a_table_is_made_once_and_found_by_its_name(broker: Broker, connect: Connect) -> None:
    with pytest.raises(shmq.NoSuchTable, match="'t'"):
        broker.table("t")
    broker.ensure_table("t", "disk", max_bytes=1 << 20).set("k", 1)
    again = connect().ensure_table("t")

    assert (again.name, again.durability, again.max_bytes) == ("t", "disk", 1 << 20)
    assert (again.get("k"), connect().table("t").get("k")) == (1, 1)


def test_a_table_with_other_options_is_warned_of_or_refused(broker: Broker) -> None:
    broker.ensure_table("t", "memory", max_bytes=1 << 20)

    with pytest.warns(shmq.OptionsWarning, match=r"table 't' .*durability is 'memory', not 'disk'"):
        broker.ensure_table("t", "disk")
    with pytest.raises(shmq.TableExists) as raised:
        broker.ensure_table("t", max_bytes=2 << 20, if_different="refuse")
    assert raised.value.differences == {"max_bytes": (2 << 20, 1 << 20)}
    broker.ensure_table("t", "disk", if_different="accept")
    broker.ensure_table("t", "memory", if_different="refuse")


def test_tables_are_listed_by_name_wherever_they_are(broker: Broker, connect: Connect) -> None:
    assert broker.list_tables() == []
    broker.ensure_table("b")
    broker.ensure_table("a", "disk")

    assert connect().list_tables() == ["a", "b"]
    broker.delete_table("a")
    assert broker.list_tables() == ["b"]


def test_a_handle_of_a_deleted_table_says_so_and_a_new_table_is_empty(
    broker: Broker, table: Table
) -> None:
    table.set("k", 1)
    broker.delete_table("t")
    calls: list[Callable[[], object]] = [
        lambda: table.get("k"),
        lambda: table.set("k", 2),
        lambda: table.increment("n"),
        table.keys,
        lambda: len(table),
    ]
    for call in calls:
        with pytest.raises(shmq.TableDeleted, match="'t'"):
            call()
    with pytest.raises(shmq.NoSuchTable):
        broker.delete_table("t")
    new = broker.ensure_table("t", table.durability)

    assert new.keys() == []
    with pytest.raises(shmq.TableDeleted):
        table.set("k", 3)
    table.close()
    assert new.keys() == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"durability": "journal"}, shmq.InvalidOption),
        ({"durability": 1}, TypeError),
        ({"max_bytes": 1}, shmq.InvalidOption),
        ({"max_bytes": 1.5}, TypeError),
    ],
)
def test_what_is_no_option_is_refused(
    broker: Broker, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=next(iter(options))):
        broker.ensure_table("t", **options)
    assert broker.list_tables() == []


@pytest.mark.parametrize("name", ["", "a b", "a@b", "a/b", "n" * 129])
def test_what_is_no_name_is_refused(broker: Broker, name: str) -> None:
    for call in (broker.ensure_table, broker.table, broker.delete_table):
        with pytest.raises(shmq.InvalidName, match="table"):
            call(name)


def test_names_that_look_like_files_of_other_tables_are_kept_apart(broker: Broker) -> None:
    names = ["t", "t-wal", "t-shm", "t.lock", "t.0123456789abcdef.sqlite", ".t"]
    for name in names:
        broker.ensure_table(name).set("k", name)

    assert broker.list_tables() == sorted(names)
    assert [broker.table(name).get("k") for name in names] == names


def test_a_table_that_is_full_says_so_keeps_its_values_and_has_room_after_a_delete(
    broker: Broker,
) -> None:
    table = broker.ensure_table("small", max_bytes=256 << 10)
    table.set("kept", 1)
    with pytest.raises(shmq.NoSpace, match="max_bytes=262144"):
        for number in range(1000):
            table.set(f"k{number}", bytes(1000))
    full = table.keys("k", limit=10_000)

    assert 150 < len(full) < 300
    assert table.get("kept") == 1
    table.delete(*full[:100])
    table.set("again", bytes(1000))


def test_a_pickled_table_is_the_same_one(table: Table) -> None:
    table.set("k", 1)
    with pickle.loads(pickle.dumps(table)) as again:
        assert again.increment("k") == 2
    assert table.get("k") == 2


def test_a_closed_handle_says_so_and_the_table_stays(broker: Broker, table: Table) -> None:
    table.set("k", 1)
    with table:
        pass
    table.close()

    with pytest.raises(shmq.ShmqError, match="closed"):
        table.get("k")
    assert broker.table("t").get("k") == 1


def test_a_closed_broker_has_closed_its_tables(connect: Connect) -> None:
    broker = connect()
    table = broker.ensure_table("t")
    broker.close()

    with pytest.raises(shmq.ShmqError, match="closed"):
        table.get("k")
    with pytest.raises(shmq.ShmqError, match="closed"):
        broker.table("t")


def test_threads_share_a_handle(table: Table) -> None:
    begin = threading.Barrier(4)

    def work(number: int) -> list[Any]:
        begin.wait()
        found = []
        for step in range(20):
            table.set(f"{number}", step)
            found.append(table.get(f"{number}"))
        return found

    workers = [in_thread(work, number) for number in range(4)]
    assert [outcome(worker) for worker in workers] == [list(range(20))] * 4
