"""Failed logins, counted and slowed down by source."""

from __future__ import annotations

from shmq.host.supervision.login_failures import LoginFailures, source_of


def test_a_source_is_an_address_or_a_network_of_ipv6() -> None:
    assert source_of("10.1.2.3") == source_of("::ffff:10.1.2.3") == "10.1.2.3"
    assert source_of("2001:db8:1:2::1") == source_of("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert source_of("fe80::1%eth0") == "fe80::/64"
    assert source_of("2001:db8:1:3::1") != source_of("2001:db8:1:2::1")
    assert source_of("unix") == "unix"


def test_the_delay_doubles_up_to_five_seconds_for_that_source_alone() -> None:
    now = [0.0]
    failures = LoginFailures(clock=lambda: now[0])
    delays = []
    for _ in range(8):
        failures.failed("a")
        delays.append(failures.delay("a"))
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert failures.delay("b") == 0.0
    assert failures.total == 8
    now[0] = 601.0
    assert failures.delay("a") == 0.0


def test_a_login_that_succeeds_makes_the_failures_forgotten() -> None:
    failures = LoginFailures(clock=lambda: 0.0)
    failures.failed("a")
    failures.failed("a")
    failures.succeeded("a")
    assert failures.delay("a") == 0.0
    assert failures.failed("a") == {"failures": 1}


def test_the_table_is_bounded_and_forgets_who_failed_longest_ago() -> None:
    failures = LoginFailures(most_sources=2, clock=lambda: 0.0)
    for source in ("a", "b", "a", "c"):
        failures.failed(source)
    assert failures.delay("b") == 0.0
    assert failures.delay("a") == 0.2
    assert failures.delay("c") == 0.1


def test_events_of_a_source_are_limited_and_say_how_many_were_left_out() -> None:
    now = [0.0]
    failures = LoginFailures(clock=lambda: now[0])
    assert [failures.failed("a") is None for _ in range(12)] == [False] * 10 + [True] * 2
    now[0] = 2.0
    assert failures.failed("a") == {"failures": 13, "left_out": 2}
