"""The result backend of Celery, over a table of this host."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from tests.support.waiting import PATIENCE, eventually

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

from celery import Celery, exceptions, states
from celery.backends.base import KeyValueStoreBackend
from kombu.exceptions import EncodeError

from shmq.extras.celery.backend import Backend, ResultNotStored


@pytest.fixture
def app(namespace: str) -> Iterator[Any]:
    with Celery("tests", set_as_current=False) as app:
        app.conf.result_backend = f"shmq.extras.celery.backend:Backend+shmq:///{namespace}"
        yield app


@pytest.fixture
def backend(app: Any) -> Any:
    return app.backend


def test_the_url_chooses_the_backend(backend: Backend, broker: shmq.Broker) -> None:
    assert isinstance(backend, Backend)
    backend.store_result("one", {"x": 1}, states.SUCCESS)
    assert backend.get_result("one") == {"x": 1}
    assert broker.list_tables() == ["celery-results"]
    backend.forget("one")
    assert backend.get_state("one") == states.PENDING


def test_a_result_lasts_as_long_as_the_setting_says(app: Any, backend: Backend) -> None:
    app.conf.result_expires = 0.05
    short = Backend(app, url=backend.url)
    short.store_result("short", 1, states.SUCCESS)
    backend.store_result("long", 1, states.SUCCESS)
    eventually(lambda: backend.get(backend.get_key_for_task("short")) is None, "it has expired")
    assert backend.get_result("long") == 1


def test_a_failure_may_last_for_another_time(app: Any, backend: Backend) -> None:
    app.conf.result_failure_expires = 0.05
    other = Backend(app, url=backend.url)
    other.store_result("failed", ValueError("no"), states.FAILURE)
    other.store_result("done", 1, states.SUCCESS)
    eventually(lambda: other.get(other.get_key_for_task("failed")) is None, "it has expired")
    assert other.get_result("done") == 1


@pytest.mark.parametrize("serializer", ["json", "pickle", "msgpack", "yaml"])
@pytest.mark.parametrize("value", [2**63, -1e308, "订单", [None, True], {"a": {"b": [1]}}], ids=str)
def test_a_result_of_every_serializer_is_stored(
    app: Any, namespace: str, serializer: str, value: Any
) -> None:
    app.conf.update(result_serializer=serializer, result_accept_content=[serializer])
    made = Backend(app, url=f"shmq:///{namespace}")
    made.store_result("one", value, states.SUCCESS)
    assert made.get_result("one") == value


@pytest.mark.parametrize(
    ("serializer", "value"), [("json", {1}), ("msgpack", 2**70), ("msgpack", {1}), ("yaml", 1j)]
)
def test_what_a_serializer_cannot_hold_is_an_error_that_celery_stores(
    app: Any, namespace: str, serializer: str, value: Any
) -> None:
    app.conf.result_serializer = serializer
    with pytest.raises(EncodeError):
        Backend(app, url=f"shmq:///{namespace}").store_result("one", value, states.SUCCESS)


@pytest.mark.parametrize("setting", ["result_expires", "result_failure_expires"])
@pytest.mark.parametrize("seconds", [-1, 1e9, float("nan")])
def test_a_time_that_no_result_can_be_stored_for_is_refused_at_the_start(
    app: Any, namespace: str, setting: str, seconds: float
) -> None:
    app.conf[setting] = seconds
    with pytest.raises(exceptions.ImproperlyConfigured, match=f"{setting}: ttl="):
        Backend(app, url=f"shmq:///{namespace}")


@pytest.mark.parametrize("state", [states.SUCCESS, states.FAILURE, states.RETRY, "PROGRESS"])
def test_a_state_that_is_too_large_is_an_error_of_its_caller_or_stored_as_one(
    backend: Backend, state: str
) -> None:
    large = "x" * (17 << 20)
    if state in states.EXCEPTION_STATES:
        backend.store_result("large", ValueError(large), state, traceback=large)
        assert isinstance(backend.get_result("large"), ResultNotStored)
        assert backend.get_state("large") == state
    else:
        with pytest.raises(ResultNotStored, match="16777216"):
            backend.store_result("large", large, state)


def test_a_wait_with_an_interval_of_nothing_lasts_until_the_result(backend: Backend) -> None:
    for state in (states.PENDING, states.STARTED):
        for interval in (0, -1, None):
            name = f"{state}-{interval}"
            if state == states.STARTED:
                backend.store_result(name, None, state)
            later = threading.Timer(0.05, backend.store_result, (name, 7, states.SUCCESS))
            later.start()
            assert backend.wait_for(name, timeout=PATIENCE, interval=interval)["result"] == 7
            later.join()


def test_a_task_id_that_no_key_can_hold_is_an_error_at_once(backend: Backend) -> None:
    backend.store_result("x" * 495, 1, states.SUCCESS)
    assert backend.wait_for("x" * 495)["result"] == 1
    with pytest.raises(shmq.InvalidOption, match="513 characters; use 1 to 512"):
        backend.wait_for("x" * 496)


def test_a_wait_ends_with_the_result_or_after_the_timeout(backend: Backend) -> None:
    with pytest.raises(exceptions.TimeoutError):
        backend.wait_for("never", timeout=0.02)
    backend.store_result("begun", None, states.STARTED)
    with pytest.raises(exceptions.TimeoutError):
        backend.wait_for("begun", timeout=0.02)
    child = os.fork()
    if not child:
        try:
            backend.store_result("begun", 7, states.SUCCESS)
        finally:
            os._exit(0)
    assert backend.wait_for("begun", timeout=60)["result"] == 7
    os.waitpid(child, 0)


def test_many_results_are_read_together(backend: Backend) -> None:
    ids = [f"task-{number}" for number in range(50)]
    for number, name in enumerate(ids):
        backend.store_result(name, number, states.SUCCESS)
    found = dict(backend.get_many(ids, timeout=60))
    assert {name: meta["result"] for name, meta in found.items()} == {
        name: number for number, name in enumerate(ids)
    }


class Request:
    """What a backend is told of a task of the chord "group"."""

    group = "group"
    group_index = 0

    def __init__(self, name: str, chord: Any) -> None:
        self.id = name
        self.chord = chord


class Chord:
    """The chord of the tasks "one" and "two", whose workers may be killed."""

    def __init__(self, app: Any, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._signature = app.signature("body")
        app.conf.broker_url = f"shmq:///{namespace}"
        results = [app.AsyncResult(name) for name in ("one", "two")]
        backend.apply_chord(("group", results), self._signature)
        backend.set_chord_size("group", 2)

    def end(self, name: str) -> None:
        """Tell the backend that the task has ended."""
        self._backend.store_result(name, name, states.SUCCESS)
        self._backend.on_chord_part_return(Request(name, self._signature), states.SUCCESS, name)


@pytest.fixture
def chord(app: Any, backend: Backend, namespace: str) -> Chord:
    return Chord(app, backend, namespace)


def test_a_task_of_a_chord_counts_once_however_often_it_ends(
    chord: Chord, broker: shmq.Broker
) -> None:
    for name in ("one", "one", "two", "two", "one"):
        chord.end(name)
    (called,) = broker.queue("celery").peek()
    assert json.loads(called.body)[0] == [["one", "two"]]


class Killed(BaseException):
    """In place of the end of the process."""


def kill(*_: Any, **__: Any) -> None:
    raise Killed


@pytest.mark.parametrize("then", [("one", "two"), ("two", "one")], ids=str)
def test_a_chord_ends_though_a_worker_is_killed_before_it_counts_a_task(
    chord: Chord, backend: Backend, broker: shmq.Broker, then: tuple[str, str]
) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(type(backend.table), "increment", kill)
        chord.end("one")
    for name in then:
        chord.end(name)
    (called,) = broker.queue("celery").peek()
    assert json.loads(called.body)[0] == [["one", "two"]]


def _kill_after_incr(self: Backend, key: str) -> int:
    self.table.increment(key)
    raise Killed


@pytest.mark.parametrize(
    ("owner", "step", "end"),
    [(KeyValueStoreBackend, "on_chord_part_return", kill), (Backend, "incr", _kill_after_incr)],
    ids=["uncounted", "counted"],
)
def test_a_chord_ends_though_a_worker_is_killed_before_it_calls_the_body(
    chord: Chord, broker: shmq.Broker, owner: type, step: str, end: Any
) -> None:
    chord.end("one")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, step, end)
        chord.end("two")
    for name in ("two", "one"):
        chord.end(name)
    (called,) = broker.queue("celery").peek()
    assert json.loads(called.body)[0] == [["one", "two"]]


def test_a_chord_whose_worker_is_killed_after_the_call_of_the_body_calls_it_once(
    chord: Chord, backend: Backend, broker: shmq.Broker
) -> None:
    chord.end("one")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(type(backend), "_forget_parts", kill)
        patch.setattr(type(backend.table), "set", _without_done(type(backend.table).set))
        chord.end("two")
    chord.end("two")
    assert broker.queue("celery").qsize() == 1


def _without_done(set_: Any) -> Any:
    return lambda self, key, *more: None if key.endswith(".done") else set_(self, key, *more)


def test_a_backend_is_pickled_without_its_connection(backend: Backend, namespace: str) -> None:
    kind, (cls, args, kwargs) = backend.__reduce__()
    assert (cls, kwargs["url"]) == (Backend, backend.url)
    assert pickle.dumps((kind, cls, args, kwargs))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("shmq:///x?durabilty=disk", "durabilty"),
        ("shmq://host:1/x", "leave the path out"),
        ("shmq://me@host:1", "TOKEN"),
    ],
)
def test_a_url_that_means_nothing_is_refused(app: Any, url: str, why: str) -> None:
    with pytest.raises(exceptions.ImproperlyConfigured, match=why):
        Backend(app, url=url)


def test_the_options_of_the_table_stand_in_the_url(
    app: Any, namespace: str, broker: shmq.Broker
) -> None:
    made = Backend(app, url=f"shmq:///{namespace}?durability=disk&table=results")
    made.store_result("one", 1, states.SUCCESS)
    assert broker.table("results").durability == "disk"
    assert "s3cret" not in Backend(app, url="shmq://:s3cret@host:1").as_uri()
