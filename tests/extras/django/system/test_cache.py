"""Django's cache in a table of shmq, and sessions in it; Django's own tests are in prove."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import django
import pytest
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache, CacheKeyWarning
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import override_settings

import shmq
from tests.support.expiring import expire_before_increments
from tests.support.server import serve
from tests.support.waiting import PATIENCE, eventually

SITE = "tests.support.django_site.settings"
with pytest.MonkeyPatch.context() as patch:  # the processes of other tests have their own settings
    patch.setenv("DJANGO_SETTINGS_MODULE", SITE)
    django.setup()

from shmq.extras.django.cache import ShmqCache  # noqa: E402

BACKEND = "shmq.extras.django.cache.ShmqCache"


def make(location: str, **options: Any) -> BaseCache:
    return ShmqCache(location, {"OPTIONS": options})


@pytest.fixture(params=["here", pytest.param("tcp", marks=pytest.mark.prove)])
def cache(request: pytest.FixtureRequest, namespace: str) -> Iterator[BaseCache]:
    """A cache of this host, and one of a server."""
    if request.param == "here":
        yield make(f"shmq://{namespace}/cache", max_bytes=1 << 20)
    else:
        with serve(namespace) as server:
            yield make(f"{server.url}/cache", max_bytes=1 << 20, serializer="json")


# --- values and keys -------------------------------------------------------------------


@pytest.mark.parametrize("serializer", ["pickle", "json", "msgpack", "json.dotted"])
def test_a_value_is_what_was_set(namespace: str, serializer: str) -> None:
    dotted = "django.core.signing.JSONSerializer"
    given = dotted if serializer == "json.dotted" else serializer
    cache = make(f"shmq://{namespace}/cache", serializer=given)
    for value in (None, True, 0, -(1 << 63), 1 << 63, 1.5, "текст", [1, {"a": None}], ""):
        cache.set("k", value)
        assert cache.get("k", "default") == value
        assert type(cache.get("k")) is type(value)


@pytest.mark.parametrize(
    ("serializer", "value", "error"),
    [
        ("pickle", lambda: None, Exception),
        ("json", {1, 2}, TypeError),
        ("msgpack", object(), TypeError),
        ("msgpack", 1 << 64, OverflowError),
    ],
)
def test_a_value_that_cannot_be_stored_is_an_error_of_the_caller(
    namespace: str, serializer: str, value: Any, error: type[Exception]
) -> None:
    cache = make(f"shmq://{namespace}/cache", serializer=serializer)
    cache.set("k", "old")
    for call in (cache.set, cache.add):
        with pytest.raises(error):
            call("k", value)
    with pytest.raises(error):
        cache.set_many({"a": 1, "k": value})

    assert (cache.get("k"), cache.get("a")) == ("old", None)


def test_keys_may_be_of_any_length_and_script(cache: BaseCache) -> None:
    keys = ["ключ", "鍵 with spaces", "k" * 500 + "a", "k" * 500 + "b", "x" * 5000, ""]
    with warnings.catch_warnings(action="ignore", category=CacheKeyWarning):
        cache.set_many({key: number for number, key in enumerate(keys)})
        assert cache.get_many([*keys, "absent"]) == {key: n for n, key in enumerate(keys)}
        cache.delete_many(keys)
        assert cache.get_many(keys) == {}
    with pytest.warns(CacheKeyWarning):
        cache.get("k" * 251)


def test_a_key_that_is_not_text_of_unicode_is_an_error(cache: BaseCache) -> None:
    for call in (cache.get, cache.delete, cache.touch, lambda key: cache.set(key, 1)):
        with pytest.raises(shmq.InvalidOption, match="UTF-8"):
            call("\ud800")


def test_a_value_too_large_is_an_error_and_evicts_nothing(cache: BaseCache) -> None:
    cache.set("small", 1)
    for call in (cache.set, cache.add):
        with pytest.raises(shmq.MessageTooLarge, match="half of the table's max_bytes"):
            call("large", "x" * (600 << 10))

    assert (cache.get("small"), cache.get("large")) == (1, None)


# --- timeouts --------------------------------------------------------------------------


def test_timeouts(cache: BaseCache) -> None:
    cache.set("ever", 1, None)
    cache.set("century", 1, 100 * 366 * 86_400)
    cache.set("past", 1, -5)
    cache.set("soon", 1, 0.05)
    assert cache.get("past") is None
    eventually(lambda: cache.get("soon") is None, "the value expires")

    assert not cache.touch("soon", 10)
    assert not cache.touch("absent")
    assert cache.add("soon", 2)
    assert (cache.touch("soon", 0), cache.get("soon")) == (True, None)
    assert cache.touch("ever", 0.05)
    eventually(lambda: cache.get("ever") is None, "the value expires")
    assert cache.get("century") == 1


@pytest.mark.parametrize(
    ("timeout", "error"), [(float("nan"), shmq.InvalidOption), ("5", TypeError), ({}, TypeError)]
)
def test_an_invalid_timeout_is_an_error(
    cache: BaseCache, timeout: Any, error: type[Exception]
) -> None:
    cache.set("k", 1)
    for call in (cache.set, cache.add):
        with pytest.raises(error):
            call("other", 1, timeout)
    with pytest.raises(error):
        cache.touch("k", timeout)
    assert (cache.get("k"), cache.get("other")) == (1, None)


# --- counters --------------------------------------------------------------------------


def test_a_counter(cache: BaseCache) -> None:
    for value, error in [(None, TypeError), ("1", TypeError), (1.5, TypeError), (True, TypeError)]:
        cache.set("k", value)
        with pytest.raises(error):
            cache.incr("k")
    with pytest.raises(ValueError, match="not found"):
        cache.incr("absent")
    assert cache.get("absent") is None
    cache.set("n", (1 << 63) - 2)
    assert cache.incr("n") == (1 << 63) - 1
    with pytest.raises(ValueError, match="64 bits"):
        cache.incr("n")
    assert cache.decr("n", 10) == (1 << 63) - 11


def test_a_counter_that_expires_just_before_it_is_incremented_is_not_found(
    cache: BaseCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.set("n", 5, 300)
    expire_before_increments(monkeypatch)
    for change in (cache.incr, cache.decr):
        with pytest.raises(ValueError, match="not found"):
            change("n")

    assert cache.get("n") is None, "it would never expire"


def _count(location: str) -> None:
    cache = make(location)
    for _ in range(200):
        cache.incr("n")


def test_counts_of_several_processes_add_up(namespace: str) -> None:
    location = f"shmq://{namespace}/cache"
    cache = make(location)
    cache.set("n", 0)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_count, args=(location,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)

    assert [worker.exitcode for worker in workers] == [0, 0]
    assert cache.get("n") == 400


# --- a full table, a deleted one -------------------------------------------------------


def test_a_full_table_loses_what_expires_first(cache: BaseCache) -> None:
    cache.set("ever", "x" * 1000, None)
    cache.set("long", "x" * 1000, 10_000)
    for number in range(2000):
        cache.set(f"k{number}", "x" * 1000, 1000 + number)

    assert cache.get("k1999") is not None
    assert cache.get("long") is not None
    assert cache.get("ever") is not None
    assert cache.get("k0") is None
    there = [number for number in range(2000) if cache.get(f"k{number}") is not None]
    assert len(there) > 300
    assert there == list(range(there[0], 2000))


def test_a_table_full_of_values_without_a_timeout_takes_new_ones(cache: BaseCache) -> None:
    for number in range(30):
        cache.set(f"k{number}", "x" * (100 << 10), None)

    assert cache.get("k29") is not None
    cache.set_many({f"m{number}": "x" * (100 << 10) for number in range(30)}, None)
    assert cache.get("m29") is not None


def test_a_deleted_table_is_an_empty_cache(cache: BaseCache, namespace: str) -> None:
    cache.set("k", 1)
    with shmq.connect(namespace) as broker:
        broker.delete_table("cache")

        assert cache.get("k") is None
        cache.set("k", 2)
        broker.delete_table("cache")
    assert cache.add("k", 3)
    assert cache.get("k") == 3


def test_clear_empties_the_table(cache: BaseCache, namespace: str) -> None:
    cache.set_many({"a": 1, "b": 2})
    cache.clear()
    cache.clear()

    assert cache.get_many(["a", "b"]) == {}
    with shmq.connect(namespace) as broker:
        assert len(broker.table("cache")) == 0


@pytest.mark.prove
def test_a_server_that_has_ended_is_an_error(namespace: str) -> None:
    with serve(namespace) as server:
        cache = make(f"{server.url}/cache", serializer="msgpack")
        cache.set("k", 1)
    with pytest.raises(shmq.ConnectionLost):
        cache.get("k")


# --- settings --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "options", "message"),
    [
        ("", {}, "shmq://NAMESPACE/TABLE"),
        ("shmq://here", {}, "shmq://NAMESPACE/TABLE"),
        ("redis://here/t", {}, "shmq://NAMESPACE/TABLE"),
        (["shmq://here/t"], {}, "must be a str"),
        ("shmq://host:9991/t", {}, "use 'json' or 'msgpack'"),
        ("shmqs://host/t", {"serializer": "pickle"}, "use 'json' or 'msgpack'"),
        ("shmq://here/t", {"MAX_ENTRIES": 5}, "max_bytes"),
        ("shmq://here/t", {"serialiser": "json"}, "did you mean 'serializer'"),
        ("shmq://here/t", {"serializer": "yaml"}, "must be 'pickle', 'json'"),
        ("shmq://here/t", {"serializer": "no.such.module"}, "no"),
        ("shmq://here/t", {"serializer": 5}, "dumps and loads"),
        ("shmq://here/t", {"max_bytes": 5}, "max_bytes"),
        ("shmq://here/t", {"durability": "ram"}, "durability"),
    ],
)
def test_wrong_settings_are_explained(location: Any, options: Any, message: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        make(location, **options)


# --- sessions --------------------------------------------------------------------------


@pytest.mark.parametrize("serializer", ["pickle", "json"])
@pytest.mark.parametrize("engine", ["cache", "cached_db"])
def test_a_session_is_kept_in_the_cache(engine: str, serializer: str, namespace: str) -> None:
    store = {
        "BACKEND": BACKEND,
        "LOCATION": f"shmq://{namespace}/sessions",
        "OPTIONS": {"serializer": serializer},
    }
    name = f"django.contrib.sessions.backends.{engine}"
    with override_settings(CACHES={"default": store}, SESSION_ENGINE=name):
        session_store = import_module(name).SessionStore
        if engine == "cached_db":
            from django.contrib.sessions.models import Session

            if Session._meta.db_table not in connection.introspection.table_names():
                with connection.schema_editor() as editor:
                    editor.create_model(Session)
        session = session_store()
        session["user"] = "ada"
        session.set_expiry(60)
        session.save()
        key = session.session_key

        assert session_store(key)["user"] == "ada"
        assert session_store().exists(key)
        caches["default"].clear()
        assert session_store(key).get("user") == (None if engine == "cache" else "ada")
        session_store(key).delete()
        assert not session_store(key).exists(key)
