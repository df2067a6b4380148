"""TABLE, and the LIST of tables, byte by byte."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from shmq.client.local.table import LocalTable
from tests.support.server import Server
from tests.support.waiting import PATIENCE
from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.frames import S, T

MSGPACK = 2


def table(name: str, action: str, **keys: Any) -> bytes:
    return frames.name(name) + frames.pack({"action": action, **keys})


def told(payload: bytes) -> Any:
    return frames.unpack(payload)


@pytest.fixture
def t(wire: Wire) -> Iterator[str]:
    """A table."""
    name = f"t-{secrets.token_hex(4)}"
    wire.ok(T.TABLE, table(name, "make"))
    yield name
    wire.status(T.TABLE, table(name, "drop"))


@pytest.fixture
def identity(wire: Wire, t: str) -> int:
    found: int = told(wire.ok(T.TABLE, table(t, "look")))["identity"]
    return found


def test_hello_says_that_there_are_tables(wire: Wire) -> None:
    assert "tables" in told(wire.ok(T.HELLO, frames.pack({"client": "t"})))["features"]


def test_a_table_is_made_looked_at_listed_and_deleted(wire: Wire) -> None:
    made = told(wire.ok(T.TABLE, table("y", "make", durability="disk", max_bytes=1 << 20)))
    assert made == {"identity": made["identity"], "durability": "disk", "max_bytes": 1 << 20}
    assert told(wire.ok(T.TABLE, table("y", "look"))) == made
    assert told(wire.ok(T.TABLE, table("y", "make", durability="memory"))) == made
    assert "y" in told(wire.ok(T.LIST, frames.pack({"tables": True})))
    assert told(wire.ok(T.TABLE, table("y", "drop"))) == {}
    for action in ("look", "drop"):
        assert wire.status(T.TABLE, table("y", action)) == S.NO_QUEUE
    assert wire.status(T.TABLE, table("y", "count", identity=made["identity"])) == S.NO_QUEUE
    assert "y" not in told(wire.ok(T.LIST, frames.pack({"tables": True})))


def test_each_action_does_what_it_says(wire: Wire, t: str, identity: int) -> None:
    def ask(action: str, **keys: Any) -> Any:
        return told(wire.ok(T.TABLE, table(t, action, identity=identity, **keys)))

    assert ask("set", entries={"a": [1, b"text"], "n": [MSGPACK, b"\x05"]}, ttl=None) == {}
    assert ask("get", keys=["n", "absent", "a"]) == {
        "found": {"n": [MSGPACK, b"\x05"], "a": [1, b"text"]},
        "looked": 3,
    }
    assert ask("add", entries={"a": [0, b""]}, ttl=1000) == {"added": False}
    assert ask("increment", key="n", by=2, most=10, sum_with=["absent"]) == {"value": 7}
    assert ask("increment", key="n", by=2, most=8) == {"value": None}
    assert ask("increment", key="n", by=0, ttl=1000, create=False, renew=False) == {"value": 7}
    assert ask("increment", key="absent", create=False) == {"value": None}
    assert ask("expire", key="n", ttl=60_000) == {"there": True}
    assert ask("keys", prefix="", limit=10, after="a") == {"keys": ["n"], "more": False}
    assert ask("count") == {"count": 2}
    assert ask("delete", keys=["a", "a", "absent"]) == {"deleted": 1}
    assert ask("clear", most=5) == {"deleted": 1}
    assert ask("clear", most=None) == {"deleted": 0}


def test_a_get_of_many_large_values_ends_where_an_answer_is_long_enough(
    wire: Wire, t: str, identity: int
) -> None:
    for key in "abc":
        entries = {key: [0, bytes(3 << 20)]}
        wire.ok(T.TABLE, table(t, "set", identity=identity, entries=entries, ttl=None))

    asked = table(t, "get", identity=identity, keys=["absent", "a", "b", "c"])
    answer = told(wire.ok(T.TABLE, asked))

    assert ([*answer["found"]], answer["looked"]) == (["a", "b"], 3)


def test_another_table_of_the_name_is_not_the_one_that_is_meant(
    wire: Wire, t: str, identity: int
) -> None:
    wire.ok(T.TABLE, table(t, "drop"))
    again = told(wire.ok(T.TABLE, table(t, "make")))["identity"]

    assert again != identity
    assert wire.status(T.TABLE, table(t, "count", identity=identity)) == S.NO_QUEUE
    assert wire.status(T.TABLE, table(t, "count", identity=again)) == S.OK


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"action": 5},
        {"action": "nothing"},
        {"action": "make", "durability": "journal"},
        {"action": "make", "durability": 5},
        {"action": "make", "max_bytes": 1},
        {"action": "make", "max_bytes": "many"},
        {"action": "get"},
        {"action": "get", "keys": "k"},
        {"action": "get", "keys": [""]},
        {"action": "get", "keys": [5]},
        {"action": "get", "keys": ["k" * 513]},
        {"action": "get", "keys": ["k"] * 10_001},
        {"action": "keys", "limit": 0},
        {"action": "keys", "limit": 10_001},
        {"action": "keys", "prefix": 5},
        {"action": "set", "ttl": None},
        {"action": "set", "entries": {"k": [0, b""]}, "ttl": 0},
        {"action": "set", "entries": {"k": [0, b""]}, "ttl": 1.5},
        {"action": "set", "entries": {"k": [0, b""]}, "ttl": True},
        {"action": "set", "entries": {"k": [0, b""]}, "ttl": 1 << 63},
        {"action": "set", "entries": {"k": [255, b""]}},
        {"action": "set", "entries": {"k": [-1, b""]}},
        {"action": "set", "entries": {"k": ["bytes", b""]}},
        {"action": "set", "entries": {"k": [0, "text"]}},
        {"action": "set", "entries": {"k": [0]}},
        {"action": "set", "entries": {"k": b""}},
        {"action": "set", "entries": {"": [0, b""]}},
        {"action": "set", "entries": [["k", 0, b""]]},
        {"action": "add", "entries": {}},
        {"action": "add", "entries": {"a": [0, b""], "b": [0, b""]}},
        {"action": "delete", "keys": None},
        {"action": "clear", "most": 0},
        {"action": "clear", "most": "all"},
        {"action": "expire", "ttl": None},
        {"action": "expire", "key": "k", "ttl": -5},
        {"action": "increment"},
        {"action": "increment", "key": "k", "by": 1.5},
        {"action": "increment", "key": "k", "by": 1 << 63},
        {"action": "increment", "key": "k", "least": "0"},
        {"action": "increment", "key": "k", "sum_with": ["k"]},
        {"action": "increment", "key": "k", "sum_with": [None]},
        {"action": "increment", "key": "k", "create": 0},
        {"action": "increment", "key": "k", "create": None},
        {"action": "increment", "key": "k", "renew": "no"},
        {"action": "increment", "key": "text"},
    ],
    ids=repr,
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    wire: Wire, t: str, identity: int, asked: dict[str, Any]
) -> None:
    entries = {"text": [1, b"x"]}
    wire.ok(T.TABLE, table(t, "set", identity=identity, entries=entries, ttl=None))
    payload = frames.name(t) + frames.pack({"identity": identity, **asked})

    assert wire.status(T.TABLE, payload) == S.BAD_REQUEST
    assert told(wire.ok(T.TABLE, table(t, "keys", identity=identity)))["keys"] == ["text"]


@pytest.mark.parametrize("identity", [None, -1, "5", 1.5, True, b"x"])
def test_what_is_no_identity_is_refused(wire: Wire, t: str, identity: object) -> None:
    assert wire.status(T.TABLE, table(t, "count", identity=identity)) == S.BAD_REQUEST


def test_a_value_that_is_too_large_is_refused(serve: Serve) -> None:
    with serve(workers=1, limits={"max_frame": 17 << 20}) as server, Wire(server.address) as wire:
        identity = told(wire.ok(T.TABLE, table("t", "make")))["identity"]
        entries = {"k": [0, bytes((16 << 20) + 1)]}
        asked = table("t", "set", identity=identity, entries=entries, ttl=None)
        assert wire.status(T.TABLE, asked) == S.TOO_LARGE


def test_a_request_larger_than_a_frame_is_refused_by_the_client_before_it_is_sent(
    serve: Serve,
) -> None:
    with (
        serve(workers=1, limits={"max_frame": 1 << 16}) as server,
        shmq.connect(server.url) as broker,
    ):
        made = broker.ensure_table("t")
        with pytest.raises(shmq.MessageTooLarge, match="65536"):
            made.set("k", bytes(1 << 16))
        keys = [f"{number:0500}" for number in range(300)]
        for at in range(0, 300, 100):
            made.set_many(dict.fromkeys(keys[at : at + 100], 1))

        assert len(made.get_many(keys)) == 300
        assert made.keys(limit=10_000) == keys


@pytest.mark.parametrize("payload", [{"tables": 5}, {"tables": True, "names": 5}, {"names": None}])
def test_a_list_that_makes_no_sense_is_refused(wire: Wire, payload: dict[str, Any]) -> None:
    assert wire.status(T.LIST, frames.pack(payload)) == S.BAD_REQUEST


# ---- rights ----

PRODUCE, CONSUME, ADMIN, NOTHING = (letter * 40 for letter in "pcan")
NEEDS: dict[str, tuple[str, dict[str, Any]]] = {
    "get": ("consume", {"keys": ["k"]}),
    "keys": ("consume", {}),
    "count": ("consume", {}),
    "set": ("produce", {"entries": {"k": [0, b""]}, "ttl": None}),
    "add": ("produce", {"entries": {"k": [0, b""]}, "ttl": None}),
    "delete": ("produce", {"keys": ["k"]}),
    "clear": ("produce", {}),
    "expire": ("produce", {"key": "k", "ttl": None}),
    "increment": ("produce", {"key": "n"}),
    "look": ("any", {}),
    "make": ("admin", {}),
    "drop": ("admin", {}),
}


@pytest.fixture(scope="module")
def guarded(serve: Serve) -> Iterator[Server]:
    tokens = {
        PRODUCE: {"produce": ["shop*"]},
        CONSUME: {"consume": ["shop*"]},
        ADMIN: {"admin": ["shop*"]},
        NOTHING: {},
    }
    with serve(workers=1, tokens=tokens) as server:
        yield server


def let_in(address: Address, token: str) -> Wire:
    wire = Wire(address)
    wire.ok(T.HELLO, frames.pack({"client": "t", "token": token}))
    return wire


@pytest.mark.parametrize("action", NEEDS)
def test_each_action_needs_its_right_and_none_else(guarded: Server, action: str) -> None:
    right, keys = NEEDS[action]
    held = {"produce": PRODUCE, "consume": CONSUME, "admin": ADMIN, "none": NOTHING}
    found = {}
    with shmq.connect(guarded.namespace) as broker:
        for what, token in held.items():
            made = broker.ensure_table("shop")
            identity = int(made.identity)  # type: ignore[attr-defined]
            with let_in(guarded.address, token) as wire:
                found[what] = wire.status(T.TABLE, table("shop", action, identity=identity, **keys))

    allowed = {"produce", "consume", "admin"} if right == "any" else {right}
    expected = {what: S.OK if what in allowed else S.FORBIDDEN for what in held}
    assert found == {**expected, "none": S.NO_QUEUE}


def test_a_table_of_others_is_as_if_it_were_not_there(guarded: Server) -> None:
    with shmq.connect(guarded.namespace) as broker:
        broker.ensure_table("secret")
        broker.ensure_table("shop")
        for action, (_, keys) in NEEDS.items():
            answers = set()
            for name in ("secret", "absent"):
                with let_in(guarded.address, ADMIN) as wire:
                    answer = wire.ask(T.TABLE, table(name, action, identity=5, **keys))
                text = answer.payload.replace(name.encode(), b"NAME")
                answers.add((answer.status, text))
            assert {status for status, _ in answers} == {S.NO_QUEUE}
            assert len(answers) == 1
        with let_in(guarded.address, CONSUME) as wire:
            assert told(wire.ok(T.LIST, frames.pack({"tables": True}))) == ["shop"]


def test_the_client_of_a_token_without_the_right_gets_an_error_that_says_so(
    guarded: Server,
) -> None:
    with shmq.connect(guarded.namespace) as broker:
        broker.ensure_table("shop").set("k", 1)
        with shmq.connect(guarded.url, token=CONSUME) as reader:
            made = reader.ensure_table("shop")
            assert made.get("k") == 1
            with pytest.raises(shmq.Forbidden, match="write to table 'shop'"):
                made.set("k", 2)
            with pytest.raises(shmq.Forbidden, match="administer table 'shop'"):
                reader.delete_table("shop")
            for name in ("secret", "absent"):
                with pytest.raises(shmq.NoSuchTable):
                    reader.ensure_table(name)


def test_making_and_deleting_are_audited(guarded: Server) -> None:
    with let_in(guarded.address, ADMIN) as wire:
        wire.ok(T.TABLE, table("shop.audited", "make"))
        wire.ok(T.TABLE, table("shop.audited", "drop"))
    assert guarded.said("event=table.create name=shop.audited outcome=ok")
    assert guarded.said("event=table.delete name=shop.audited outcome=ok")


# ---- quotas ----


def test_tables_are_counted_and_bounded_by_quotas(serve: Serve) -> None:
    limits = {"namespace": {"tables": 2, "bytes": 1 << 20}}
    with serve(workers=1, limits=limits) as server, shmq.connect(server.url) as broker:
        with pytest.raises(shmq.NoSpace, match="max_bytes"):
            broker.ensure_table("a")
        with pytest.raises(shmq.NoSpace, match=r"limits\.namespace\.bytes"):
            broker.ensure_table("a", max_bytes=2 << 20)
        broker.ensure_table("a", max_bytes=600 << 10)
        with pytest.raises(shmq.NoSpace, match=r"limits\.namespace\.bytes"):
            broker.ensure_table("b", max_bytes=600 << 10)
        broker.ensure_table("b", max_bytes=100 << 10)
        with pytest.raises(shmq.NoSpace, match=r"limits\.namespace\.tables=2"):
            broker.ensure_table("c", max_bytes=100 << 10)
        assert broker.ensure_table("a").max_bytes == 600 << 10


def test_a_held_lock_delays_no_other_request(broker: shmq.Broker, address: Address, t: str) -> None:
    local = broker.table(t)
    local.set("k", 1)
    held, release = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        held.set()
        assert release.wait(PATIENCE)

    assert isinstance(local, LocalTable)
    holder = threading.Thread(target=local.database.change, args=(hold,))
    holder.start()
    assert held.wait(PATIENCE)
    brokers = [shmq.connect(f"shmq://{address[0]}:{address[1]}") for _ in range(3)]
    first, second, third = (each.table(t) for each in brokers)
    writers = [threading.Thread(target=each.increment, args=("n",)) for each in (first, second)]
    for writer in writers:
        writer.start()
    for _ in range(20):
        assert third.get("k") == 1
        assert third.get_many(["k", "n"]) == {"k": 1}
    assert all(writer.is_alive() for writer in writers)
    release.set()
    for thread in (holder, *writers):
        thread.join()
    assert third.get("n") == local.get("n") == 2
    for each in brokers:
        each.close()


def test_a_request_about_large_values_is_answered_like_one_about_small_ones(
    broker: shmq.Broker, address: Address, t: str
) -> None:
    local = broker.table(t)
    with shmq.connect(f"shmq://{address[0]}:{address[1]}") as remote:
        table = remote.table(t)
        for size in (10, 20_000, 100_000, 10, 2_000_000):
            table.set("k", bytes(size))
            assert local.get("k") == table.get("k") == bytes(size)
            local.set("k", b"local")
            assert table.get("k") == b"local"
        assert table.delete("k") == 1
        assert table.get("k") is local.get("k") is None


def test_a_table_of_the_same_name_is_another_table_for_a_server(
    broker: shmq.Broker, address: Address, t: str
) -> None:
    with shmq.connect(f"shmq://{address[0]}:{address[1]}") as remote:
        table = remote.table(t)
        for _ in range(2):  # the second time, the server has it open
            table.set("k", 1)
            assert table.get("k") == 1
        broker.delete_table(t)
        broker.ensure_table(t).set("k", 2)
        with pytest.raises(shmq.TableDeleted):
            table.get("k")
        with pytest.raises(shmq.TableDeleted):
            table.set("k", 3)
        assert remote.table(t).get("k") == 2
