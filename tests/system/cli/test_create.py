"""``shmq create``."""

from __future__ import annotations

import pytest

import shmq
from shmq.api.options import options_of
from shmq.cli.shared.exit_codes import Code
from tests.system.cli.conftest import Quick


def test_a_queue_is_made_with_the_default_options(quick: Quick, broker: shmq.Broker) -> None:
    ran = quick("create", "-q", "jobs")

    assert ran.text == f"queue 'jobs' is ready in namespace {quick.namespace!r}\n"
    assert broker.queue("jobs").options == shmq.QueueOptions.for_queue("jobs", {})


def test_options_are_set_by_their_flags(quick: Quick, broker: shmq.Broker) -> None:
    flags = {
        "--capacity": "100",
        "--arena-bytes": "1MiB",
        "--max-message-bytes": "64KiB",
        "--visibility-timeout": "5m",
        "--max-deliveries": "7",
        "--error-bytes": "1KiB",
        "--dead-letter": "graveyard",
        "--ttl": "2h",
        "--on-expired": "drop",
        "--priorities": "5",
        "--retry-delay": "500ms",
        "--retry-delay-max": "10s",
        "--dedupe-window": "1m",
        "--overflow": "drop-oldest",
        "--durability": "journal",
        "--snapshot-interval": "1m",
        "--confirm": "disk",
    }

    quick("create", "-q", "jobs", *(part for flag in flags.items() for part in flag))

    options = shmq.QueueOptions(
        capacity=100,
        arena_bytes=1 << 20,
        max_message_bytes=1 << 16,
        visibility_timeout=300.0,
        max_deliveries=7,
        error_bytes=1024,
        dead_letter="graveyard",
        ttl=7200.0,
        on_expired="drop",
        priorities=5,
        retry_delay=0.5,
        retry_delay_max=10.0,
        dedupe_window=60.0,
        overflow="drop-oldest",
        durability="journal",
        snapshot_interval=60.0,
        confirm="disk",
    )
    assert broker.queue("jobs").options == options


def test_every_option_has_a_flag_that_tells_its_default(quick: Quick) -> None:
    said = quick("create", "--help").text

    options = options_of(shmq.QueueOptions)
    for name in options:
        assert f"--{name.replace('_', '-')} " in said
    off = [row for row in options.values() if row.kind == "flag"]  # unless it is given
    assert said.count("[default:") == len(options) - len(off)


def test_none_switches_limits_and_dead_letters_off(quick: Quick, broker: shmq.Broker) -> None:
    quick("create", "-q", "jobs", "--max-deliveries", "none", "--dead-letter", "none")

    options = broker.queue("jobs").options
    assert (options.max_deliveries, options.dead_letter) == (None, None)
    assert [queue.name for queue in broker.list_queues()] == ["jobs"]


def test_json_tells_the_options_that_the_queue_has(quick: Quick) -> None:
    made = quick("create", "-q", "jobs", "--capacity", "10", "--json").json

    assert (made["namespace"], made["name"]) == (quick.namespace, "jobs")
    assert made["options"] == shmq.QueueOptions.for_queue("jobs", {"capacity": 10}).as_dict()


def test_making_it_again_with_the_same_options_is_fine(quick: Quick) -> None:
    for _ in range(2):
        quick("create", "-q", "jobs", "--capacity", "10")


def test_making_it_again_with_other_options_is_refused_and_says_which(quick: Quick) -> None:
    quick("create", "-q", "jobs", "--capacity", "10")

    assert (
        "--capacity is 10"
        in quick("create", "-q", "jobs", "--capacity", "11", code=Code.EXISTS).error
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-q", ""], "invalid queue name"),
        (["-q", "x" * 1025], "1025"),
        (["-q", b"\xff"], "is not UTF-8"),
        (["-q", "x" * 98], "--dead-letter"),
        (["-q", "jobs", "--capacity", "0"], "--capacity 0 is out of range"),
        (["-q", "jobs", "--capacity", "-1"], "--capacity -1 is out of range: 1 to"),
        (["-q", "jobs", "--capacity", str(1 << 64)], f"--capacity {1 << 64} is out of range: 1 to"),
        (["-q", "jobs", "--capacity", "many"], "whole number"),
        (["-q", "jobs", "--capacity", "9" * 4000], "whole number"),
        (["-q", "jobs", "--arena-bytes", "1TB"], "--arena-bytes 1000000000000 is out of range"),
        (["-q", "jobs", "--arena-bytes", "16MX"], "64KiB"),
        (["-q", "jobs", "--visibility-timeout", "0"], "--visibility-timeout 0.0 s is out of range"),
        (["-q", "jobs", "--dead-letter", "jobs"], "its own dead-letter queue"),
        (["-q", "jobs", "--overflow", "explode"], "drop-oldest"),
        (["-q", "jobs", "--priorities", "17"], "--priorities 17"),
        (["-q", "jobs", "--capcity", "5"], "--capacity"),
        (["-q", "jobs", "stray"], "stray"),
        ([], "--queue"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_made(
    quick: Quick, broker: shmq.Broker, arguments: list[str], said: str
) -> None:
    ran = quick("create", *arguments, code=Code.USAGE)

    assert said in ran.error
    assert ran.out == b""
    assert broker.list_queues() == []
