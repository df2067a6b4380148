"""A short soak; `make soak` runs it for as long as asked."""

from __future__ import annotations

import pytest

from shmq.extras.stress.journal import ACKED, ACKING, GOT, INTENT, PUT, Record, judge
from tests.prove.soak import durable, mixed, tcp
from tests.prove.soak.__main__ import soak
from tests.prove.soak.containers import Contained, why_not_contained


def test_what_goes_in_comes_out_despite_killed_workers() -> None:
    verdict, killed = soak(seconds=4, seed=20_261_121)

    assert not verdict.wrong()
    assert killed > 10
    assert verdict.put > 1000


def test_what_goes_in_comes_out_beside_workers_that_stand_still() -> None:
    verdict, killed = soak(seconds=4, seed=20_261_124, stopped=0.5)

    assert not verdict.wrong()
    assert killed > 5
    assert verdict.put > 100


@pytest.mark.skipif(bool(why_not_contained()), reason=why_not_contained())
def test_what_goes_in_comes_out_of_workers_that_are_killed_with_their_pid_namespaces() -> None:
    verdict, killed = soak(seconds=4, seed=20_261_123, workers_of=Contained)

    assert not verdict.wrong()
    assert killed > 10
    assert verdict.put > 1000


def test_what_goes_in_over_tcp_comes_out_despite_killed_servers() -> None:
    verdict, killed, served = tcp.soak(seconds=4, seed=20_261_122, least=3)

    assert not verdict.wrong()
    assert killed >= 3
    assert served >= 3
    assert verdict.put > 0


def test_what_the_disk_confirmed_comes_out_though_the_memory_is_lost() -> None:
    verdict, killed, served = durable.soak(seconds=6, seed=20_261_123, rounds=3)

    assert not verdict.wrong()
    assert killed > 5
    assert served > 0
    assert verdict.put > 100


@pytest.mark.watchdog(900)
def test_all_soaks_at_once_pass_beside_full_disks_closed_descriptors_and_frozen_clocks() -> None:
    counts = mixed.soak(seconds=12, seed=20_261_125)

    assert "full disks" in counts or "left out" in counts
    assert "visitors" in counts


def test_an_ack_that_the_lost_memory_alone_knew_does_not_count() -> None:
    steps = [record(INTENT, 1), record(PUT, 2), record(GOT, 3), record(ACKING, 4)]
    steps += [record(ACKED, 5), record(GOT, 9, worker=2)]
    killed_at = {1: 6}

    unsure = durable.known(steps, [durable.Loss(last=1, safe=4)])
    assert not judge(unsure, killed_at).wrong()
    sure = durable.known(steps, [durable.Loss(last=1, safe=5)])
    assert judge(sure, killed_at).back_after_ack == {7}


def test_what_waits_to_be_read_as_its_server_is_killed_is_not_delivered_again() -> None:
    steps = [record(INTENT, 1), record(PUT, 2), record(GOT, 4), record(ACKING, 5)]
    steps += [record(ACKED, 6), record(GOT, 9, worker=2)]

    assert not judge(tcp.known(steps, {2: 3}), {2: 3}).wrong()
    assert judge(tcp.known(steps, {1: 3}), {1: 3}).back_after_ack == {7}
    assert judge(tcp.known(steps, {2: 10}), {2: 10}).back_after_ack == {7}


def record(kind: int, at: int, worker: int = 1, message: int = 7) -> Record:
    return Record(at, worker, kind, message)


def test_the_verdict_sees_a_message_that_is_lost() -> None:
    assert judge([record(INTENT, 1), record(PUT, 2)], {}).lost == {7}


def test_the_verdict_sees_a_message_that_was_never_put() -> None:
    assert judge([record(GOT, 1)], {}).unexpected == {7}


def test_the_verdict_sees_a_message_that_comes_back_after_its_ack() -> None:
    steps = [record(INTENT, 1), record(PUT, 2), record(GOT, 3), record(ACKING, 4)]
    assert judge([*steps, record(ACKED, 5), record(GOT, 6)], {}).back_after_ack == {7}


def test_the_verdict_sees_a_message_held_by_two_that_live() -> None:
    steps = [record(INTENT, 1), record(PUT, 2), record(GOT, 3), record(GOT, 5, worker=2)]

    assert judge(steps, {}).held_twice == {7}
    assert judge(steps, {1: 4}).held_twice == set()
