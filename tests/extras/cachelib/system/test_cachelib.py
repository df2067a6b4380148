"""cachelib's cache in a table of shmq, and Flask-Session and Flask-Caching with it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import flask
import flask_caching
import flask_session
import pytest

import shmq
from shmq.extras.cachelib import ShmqCache
from tests.support.expiring import expire_before_increments
from tests.support.server import serve
from tests.support.users import several_users, shared_host
from tests.support.waiting import eventually


@pytest.fixture
def location(namespace: str) -> str:
    return f"shmq://{namespace}/cache"


@pytest.fixture(params=["here", pytest.param("tcp", marks=pytest.mark.prove)])
def cache(request: pytest.FixtureRequest, namespace: str, location: str) -> Iterator[ShmqCache]:
    """A cache of this host, and one of a server."""
    if request.param == "here":
        yield ShmqCache(location, max_bytes=1 << 20)
    else:
        with serve(namespace) as server:
            yield ShmqCache(f"{server.url}/cache", max_bytes=1 << 20, serializer="json")


def test_values_timeouts_and_counters(cache: ShmqCache) -> None:
    assert cache.set("ключ", ["значение", None], timeout=0)
    assert cache.set("century", 1, timeout=dt.timedelta(days=36_600))
    assert cache.set("past", 1, timeout=-5)
    assert cache.get_many("ключ", "past", "century") == [["значение", None], None, 1]
    assert cache.has("century")
    assert not cache.has("past")
    assert (cache.inc("n", 5), cache.dec("n", 2), cache.get("n")) == (5, 3, 3)
    with pytest.raises(TypeError):
        cache.inc("ключ")
    assert cache.add("past", 2)
    assert not cache.add("past", 3)
    assert (cache.delete("past"), cache.delete("past")) == (True, False)
    assert cache.delete_many() == []


def test_a_counter_that_expires_just_before_it_is_incremented_begins_with_a_timeout(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ShmqCache(location, default_timeout=1)
    cache.set("n", 5, timeout=300)
    expire_before_increments(monkeypatch)

    assert cache.inc("n", 2) == 2
    eventually(lambda: not cache.has("n"), "the new counter expires")


def test_a_counter_keeps_its_timeout(location: str) -> None:
    cache = ShmqCache(location, default_timeout=1)
    cache.set("ever", 1, timeout=0)
    assert (cache.inc("new"), cache.inc("ever")) == (1, 2)
    eventually(lambda: cache.inc("new") == 1, "the new counter expires while it is used")

    assert cache.get("ever") == 2


def test_a_value_that_cannot_be_stored_is_an_error(cache: ShmqCache) -> None:
    cache.set("k", "old")
    for error, value in [(Exception, lambda: None), (shmq.MessageTooLarge, "x" * (600 << 10))]:
        for call in (cache.set, cache.add):
            with pytest.raises(error):
                call("k", value)
    with pytest.raises(shmq.InvalidOption, match="UTF-8"):
        cache.set("\ud800", 1)

    assert cache.get("k") == "old"


def test_a_serializer_that_returns_nothing_is_an_error(location: str) -> None:
    from cachelib.serializers import JSONSerializer

    cache = ShmqCache(location, serializer=JSONSerializer())
    with pytest.raises(TypeError, match="a value of type set cannot be cached"):
        cache.set("k", {1})


def test_clear_with_a_prefix_leaves_other_keys(location: str) -> None:
    one, other = ShmqCache(location, key_prefix="one:"), ShmqCache(location)
    one.set_many({str(number): number for number in range(1500)})
    other.set("two", 2)
    assert one.clear()

    assert (one.get("0"), one.get("1499"), other.get("two")) == (None, None, 2)
    assert other.clear()
    assert other.get("two") is None


def test_a_full_table_loses_what_expires_first(cache: ShmqCache) -> None:
    cache.set("long", "x" * 1000, 10_000)
    for number in range(1500):
        cache.set(f"k{number}", "x" * 1000)

    assert (cache.has("k1499"), cache.has("long"), cache.has("k0")) == (True, True, False)


def test_a_deleted_table_is_an_empty_cache(cache: ShmqCache, namespace: str) -> None:
    cache.set("k", 1)
    with shmq.connect(namespace) as broker:
        broker.delete_table("cache")

    assert cache.get("k") is None
    assert cache.inc("n") == 1


def test_pickle_is_not_for_a_server() -> None:
    with pytest.raises(shmq.InvalidOption, match="use 'json' or 'msgpack'"):
        ShmqCache("shmq://host:9991/cache")
    with pytest.raises(shmq.InvalidOption, match="shmq://NAMESPACE/TABLE"):
        ShmqCache("here")


# --- Flask -----------------------------------------------------------------------------


def test_flask_session_keeps_sessions_in_it(location: str) -> None:
    app = flask.Flask("shop")
    app.config.update(SESSION_TYPE="cachelib", SESSION_CACHELIB=ShmqCache(location))
    flask_session.Session(app)

    @app.get("/add/<item>")
    def add(item: str) -> Any:
        flask.session["basket"] = [*flask.session.get("basket", []), item]
        return flask.session["basket"]

    @app.get("/leave")
    def leave() -> Any:
        flask.session.clear()
        return []

    ada, bob = app.test_client(), app.test_client()
    assert ada.get("/add/tea").json == ["tea"]
    assert bob.get("/add/лук").json == ["лук"]
    assert ada.get("/add/milk").json == ["tea", "milk"]
    ada.get("/leave")
    assert ada.get("/add/salt").json == ["salt"]
    ShmqCache(location).clear()
    assert bob.get("/add/salt").json == ["salt"]


def test_flask_caching_keeps_values_in_it(location: str) -> None:
    app = flask.Flask("shop")
    app.config.update(
        CACHE_TYPE="shmq.extras.cachelib.ShmqCache",
        CACHE_ARGS=[location],
        CACHE_OPTIONS={"max_bytes": 1 << 20},
    )
    cache = flask_caching.Cache(app)
    calls: list[int] = []

    @app.get("/")
    @cache.cached(timeout=1)
    def page() -> str:
        calls.append(0)
        return str(len(calls))

    @cache.memoize(60)
    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    client = app.test_client()
    assert (client.get("/").text, client.get("/").text) == ("1", "1")
    eventually(lambda: client.get("/").text == "2", "the page expires")
    with app.app_context():
        assert (double(5), double(5), calls.count(5)) == (10, 10, 1)
        cache.delete_memoized(double)
        assert (double(5), calls.count(5)) == (10, 2)
        assert cache.set("k", 1)
        assert cache.clear()
        assert cache.get("k") is None


@several_users
def test_users_of_a_group_share_a_cache() -> None:
    code = "from shmq.extras.cachelib import ShmqCache; cache = ShmqCache(f'shmq://{name}/cache')\n"
    with shared_host() as host:
        host.run("web", f"{code}cache.set('a', [1])")
        assert host.run("app", f"{code}print(json.dumps(cache.get('a')))") == [1]
