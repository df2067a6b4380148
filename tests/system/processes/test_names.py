"""The book of a namespace's names: what it spares, and that it is healed where it is wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.client.local.broker import LocalBroker
from shmq.host.namespace import name_book
from shmq.host.namespace.name_book import NameBook
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.shm_files import refuse_foreign
from tests.support.namespaces import own_namespace
from tests.support.processes import SHM, Start, files_of

MANY = 10_000

#: Who is to be told of system calls: an audit hook cannot be removed.
_listeners: list[list[str]] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _listeners and event in {"os.listdir", "os.scandir"}:
        for listener in _listeners:
            listener.append(str(arguments[0]))


sys.addaudithook(_hear)


@contextlib.contextmanager
def listings() -> Iterator[list[str]]:
    """The directories that this process lists meanwhile."""
    heard: list[str] = []
    _listeners.append(heard)
    try:
        yield heard
    finally:
        _listeners.remove(heard)


@pytest.fixture
def many_files(
    namespace: str, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Ten thousand other files, each named as a queue's segment, that the book knows."""
    monkeypatch.setattr(name_book, "_FEW", MANY // 10)
    paths = [SHM / f"shmq@{namespace}@other-{number}" for number in range(MANY)]
    for path in paths:
        path.touch(mode=0o600)
    broker.create_queue("first", dead_letter=None)
    yield
    for path in paths:
        path.unlink()


def book_of(namespace: str) -> Path:
    return SHM / f"names.shmq@{namespace}"


def seen_anew(namespace: str) -> list[str]:
    """The queues that a process sees which has just come."""
    return seen(NameBook(namespace, refuse_foreign))


def seen(book: NameBook) -> list[str]:
    """The queues that another process sees."""
    return book.names("shmq", lambda: False)


# ---- what it spares ----


@pytest.mark.prove
@pytest.mark.usefixtures("many_files")
def test_making_and_deleting_a_queue_list_no_directory_whatever_else_there_is(
    broker: LocalBroker,
) -> None:
    assert len(broker.queue_names()) == MANY + 1
    began = time.monotonic()
    with listings() as heard:
        for number in range(20):
            broker.create_queue(f"q{number}")
            broker.delete_queue(f"q{number}")

    assert heard.count(str(SHM)) <= time.monotonic() - began + 1


def test_making_and_deleting_a_queue_beside_another_list_no_directory(broker: LocalBroker) -> None:
    broker.create_queue("other", dead_letter=None)
    with listings() as heard:
        for number in range(5):
            broker.create_queue(f"q{number}")
            broker.delete_queue(f"q{number}")
    assert str(SHM) not in heard


@pytest.mark.prove
@pytest.mark.usefixtures("many_files")
def test_names_are_listed_without_listing_the_directory_each_time(broker: LocalBroker) -> None:
    names = set(broker.queue_names())
    began = time.monotonic()
    with listings() as heard:
        for number in range(20):
            broker.create_queue(f"q{number}", dead_letter=None)
            assert set(broker.queue_names()) - names == {f"q{n}" for n in range(number + 1)}
    assert heard.count(str(SHM)) <= time.monotonic() - began + 1


@pytest.mark.prove
@pytest.mark.usefixtures("many_files")
def test_what_another_process_makes_and_removes_is_known_at_once(
    namespace: str, broker: LocalBroker
) -> None:
    other = NameBook(namespace, refuse_foreign)
    assert "q" not in seen(other)

    broker.create_queue("q", dead_letter=None)
    assert "q" in seen(other)
    broker.delete_queue("q")
    assert "q" not in seen(other)


# ---- where it is wrong ----


@pytest.mark.debris
def test_a_file_that_was_removed_by_hand_is_no_queue(namespace: str, broker: LocalBroker) -> None:
    for name in ("one", "two"):
        broker.create_queue(name, dead_letter=None)
    broker.queue_names()
    (SHM / f"shmq@{namespace}@one").unlink()

    assert broker.queue_names() == ["two"]
    assert [queue.name for queue in broker.list_queues()] == ["two"]
    broker.create_queue("three", dead_letter=None)
    assert f"-shmq@{namespace}@one\n" in book_of(namespace).read_text("latin-1")
    assert seen_anew(namespace) == ["three", "two"]


def test_a_file_that_was_put_there_by_hand_is_found(namespace: str, broker: LocalBroker) -> None:
    broker.create_queue("one", dead_letter=None)
    broker.queue_names()
    stray = SHM / f"shmq@{namespace}@stray"
    stray.touch(mode=0o600)

    assert broker.queue_names() == ["one", "stray"]
    broker.create_queue("two", dead_letter=None)
    assert f"+{stray.name}\n" in book_of(namespace).read_text("latin-1")


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff" * 4096),
        lambda path: path.write_bytes(path.read_bytes()[:70]),
        lambda path: path.write_bytes(path.read_bytes().replace(b"+shmq", b"*shmq")),
        lambda path: path.write_bytes(path.read_bytes()[:8] + b"\xff" * 8),
        lambda path: path.write_bytes(
            path.read_bytes()[:8] + bytes([1, *bytes(7)]) + path.read_bytes()[16:]
        ),
    ],
    ids=["removed", "empty", "noise", "short", "torn", "endless", "without an end"],
)
def test_a_book_that_cannot_be_believed_is_not_and_is_written_anew(
    namespace: str, broker: LocalBroker, harm: Any
) -> None:
    broker.create_queue("one", dead_letter=None)
    harm(book_of(namespace))

    assert not Namespace(namespace).is_empty()
    assert broker.queue_names() == ["one"]
    assert seen_anew(namespace) == ["one"]
    broker.create_queue("two", dead_letter=None)
    with broker._namespace.locked():  # another process makes one
        NameBook(namespace, refuse_foreign).note(f"shmq@{namespace}@two", there=True)
    assert book_of(namespace).read_bytes().count(b"+shmq") == 2
    assert seen_anew(namespace) == ["one", "two"]


def _die_in(_: Any, namespace: str, operation: str) -> None:
    """Die by SIGKILL once the book has been told, or is about to be."""
    note = NameBook.note

    def noting(book: NameBook, file: str, there: bool) -> None:
        if there == (operation == "create"):
            if operation == "create":
                note(book, file, there)
            os.kill(os.getpid(), signal.SIGKILL)
        note(book, file, there)

    broker = shmq.connect(namespace)
    if operation == "delete":
        broker.create_queue("q", dead_letter=None)
    NameBook.note = noting  # type: ignore[method-assign, assignment]
    if operation == "create":
        broker.create_queue("q", dead_letter=None)
    broker.delete_queue("q")


@pytest.mark.parametrize("operation", ["create", "delete"])
def test_a_name_whose_maker_or_remover_died_is_not_believed(
    namespace: str, broker: LocalBroker, start: Start, operation: str
) -> None:
    broker.create_queue("one", dead_letter=None)
    assert start(_die_in, namespace, operation).reap() == -signal.SIGKILL

    assert f"+shmq@{namespace}@q\n" in book_of(namespace).read_text("latin-1")
    assert broker.queue_names() == ["one"]
    broker.create_queue("two", dead_letter=None)
    assert seen_anew(namespace) == ["one", "two"]
    assert f"-shmq@{namespace}@q\n" in book_of(namespace).read_text("latin-1")


def test_a_log_that_undid_itself_is_written_anew_and_stays_short(
    namespace: str, broker: LocalBroker
) -> None:
    other = NameBook(namespace, refuse_foreign)
    broker.create_queue("keep", dead_letter=None)
    path = Path(broker._namespace.path_of("keep"))
    with broker._namespace.locked():
        for _ in range(3000):
            broker._namespace.note(path, there=False)
            broker._namespace.note(path, there=True)
    assert book_of(namespace).stat().st_size < 100_000
    assert seen(other) == ["keep"]


def test_nothing_is_left_of_it_with_the_last_queue() -> None:
    with own_namespace() as name:
        with shmq.connect(name) as broker:
            broker.create_queue("q")
            assert f"names.shmq@{name}" in files_of(name)
            broker.delete_queue("q")
        assert files_of(name) == []


def test_a_namespace_has_names_whichever_of_them_have_their_files(
    namespace: str, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and the last names of the book are tried, then all."""
    monkeypatch.setattr(name_book, "_FEW_BYTES", 64)
    for number in range(20):
        broker.create_queue(f"queue-{number:02}", dead_letter=None).close()
    files = [SHM / f"shmq@{namespace}@queue-{number:02}" for number in range(20)]
    aside = SHM / f"aside-{namespace}"
    aside.mkdir()

    def has_any() -> bool:
        return NameBook(namespace, refuse_foreign).has_any(["shmq"], lambda: False)

    assert has_any()
    for file in (*files[:5], *files[-5:]):
        file.rename(aside / file.name)
    assert has_any()
    for file in files[5:-5]:
        file.rename(aside / file.name)
    assert not has_any()
    for file in files:
        (aside / file.name).rename(file)
    assert has_any()
    aside.rmdir()
