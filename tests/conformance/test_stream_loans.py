"""Loans: a record's value is written before the record is appended."""

from __future__ import annotations

import os
import signal

import pytest

import shmq
from shmq import Broker, Stream


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A stream of one small partition."""
    return broker.create_stream("events", 1, ring_bytes=64 << 10)


def test_a_loan_is_appended_when_its_block_ends(stream: Stream) -> None:
    loan = stream.loan(5, key="k", headers={"h": 1})
    with loan as view:
        view[:] = b"hello"
        assert (loan.appended, len(stream.read(0, 0))) == (None, 0)
    (record,) = stream.read(0, 0)

    assert loan.appended is not None
    assert (loan.appended.offset, loan.appended.partition) == (0, 0)
    assert (record.value, record.key, record.headers) == (b"hello", b"k", {"h": 1})
    assert record.timestamp_ns == loan.appended.timestamp_ns


def test_a_loan_takes_the_offset_of_its_commit_and_stops_no_other_append(stream: Stream) -> None:
    with stream.loan(10_000) as view:
        view[:] = b"x" * 10_000
        for n in range(100):
            assert stream.append(b"y" * 2_000).offset == n
    (record,) = stream.read(0, 100)

    assert record.value == b"x" * 10_000
    assert {bytes(it) for it in stream.read(0, stream.earliest(0)).values()} == {
        b"x" * 10_000,
        b"y" * 2_000,
    }


def test_a_loan_may_be_committed_shorter_or_dropped(stream: Stream) -> None:
    loan = stream.loan(100)
    loan.view[:3] = b"abc"
    appended = loan.commit(3)
    dropped = stream.loan(100)
    dropped.drop()
    loan.drop()

    assert (appended.offset, loan.appended) == (0, appended)
    assert dropped.appended is None
    assert stream.read(0, 0).values() == [b"abc"]
    for ended in (loan, dropped):
        with pytest.raises(ValueError, match="has ended"):
            ended.commit()
        with pytest.raises(ValueError, match="has ended"):
            _ = ended.view


def test_an_exception_in_the_block_appends_nothing(stream: Stream) -> None:
    with pytest.raises(KeyError), stream.loan(10):
        raise KeyError

    assert stream.append(b"next").offset == 0


def test_loans_may_be_open_at_the_same_time(stream: Stream) -> None:
    loans = [stream.loan(8) for _ in range(3)]
    for n, loan in enumerate(loans):
        loan.view[:] = b"%08d" % n
    for loan in reversed(loans):
        loan.commit()

    assert stream.read(0, 0).values() == [b"%08d" % n for n in (2, 1, 0)]


def test_what_a_loan_cannot_be_is_refused(stream: Stream) -> None:
    with pytest.raises(shmq.MessageTooLarge):
        stream.loan(1 << 20)
    with pytest.raises(shmq.InvalidOption):
        stream.loan(-1)
    with pytest.raises(TypeError):
        stream.loan("5")  # type: ignore[arg-type]
    with pytest.raises(shmq.InvalidOption, match="not within the loan"):
        stream.loan(5).commit(6)
    assert stream.append(b"next").offset == 0


def test_a_view_that_outlives_its_loan_keeps_its_bytes(stream: Stream) -> None:
    loan = stream.loan(8000)
    kept = memoryview(loan.view)
    kept[:] = b"k" * 8000
    loan.drop()
    for _ in range(50):
        stream.append(b"o" * 8000)

    assert bytes(kept) == b"k" * 8000
    kept.release()
    with stream.loan(3) as view:
        view[:] = b"new"
    assert stream.read(0, 50).values() == [b"new"]


def test_a_view_that_outlives_its_append_is_followed_by_the_next_record(stream: Stream) -> None:
    loan = stream.loan(8000)
    kept = memoryview(loan.view)
    kept[:] = b"k" * 8000
    loan.commit()
    stream.append(b"next")
    stream.append(b"last", key=b"k")

    assert stream.read(0, 0).values() == [b"k" * 8000, b"next", b"last"]
    kept.release()


@pytest.mark.only_local("a stream is repartitioned on its host")
def test_a_sealed_partition_gives_its_loan_to_a_new_one(stream: Stream) -> None:
    with stream.loan(3, key="k") as view:
        view[:] = b"abc"
        stream.repartition(2)
    places = [stream.read(p, 0).values() for p in range(3)]

    assert places[0] == []
    assert sorted(places[1] + places[2]) == [b"abc"]


@pytest.mark.only_local("a borrower shares the memory")
def test_a_borrower_that_dies_leaves_nothing_and_its_place_comes_back(stream: Stream) -> None:
    borrower = os.fork()
    if borrower == 0:
        try:
            stream.loan(10_000).view[:] = b"x" * 10_000
            stream.append(b"before")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(borrower, 0)
    before = stream.latest(0)
    for n in range(200):
        stream.append(b"%04d" % n * 500)
    found = stream.read(0, stream.earliest(0))

    assert [it.offset for it in found][-1] == before + 199
    assert all(it.value == b"%04d" % (it.offset - before) * 500 for it in found)


@pytest.mark.only_local("a borrower shares the memory")
def test_a_borrower_that_is_stopped_stops_nobody(stream: Stream) -> None:
    borrower = os.fork()
    if borrower == 0:
        try:
            loan = stream.loan(10_000)
            stream.append(b"borrowed")
            os.kill(os.getpid(), signal.SIGSTOP)
            loan.view[:] = b"x" * 10_000
            loan.commit()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(borrower, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    for n in range(200):
        stream.append(b"%04d" % n * 500)
    with stream.loan(5) as view:
        view[:] = b"other"
    os.kill(borrower, signal.SIGCONT)
    _, status = os.waitpid(borrower, 0)
    found = stream.read(0, stream.earliest(0))

    assert status == 0
    assert found[-1].value == b"x" * 10_000
    assert found[-2].value == b"other"
    assert all(it.value == b"%04d" % (it.offset - 1) * 500 for it in found[:-2])
