"""``shmq alter``."""

from __future__ import annotations

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.system.cli.conftest import Quick


def test_options_are_altered_by_their_flags(quick: Quick, broker: shmq.Broker) -> None:
    broker.create_queue("jobs", ttl=60)

    ran = quick("alter", "jobs", "--max-deliveries", "9", "--ttl", "none", "--error-bytes", "0")

    assert ran.text == (
        "queue 'jobs' is altered: max_deliveries from 5 to 9, error_bytes from 4096 to 0, "
        "ttl from 60.0 to None\n"
    )
    options = broker.queue("jobs").options
    assert (options.max_deliveries, options.error_bytes, options.ttl) == (9, 0, None)
    assert quick("alter", "jobs", "--max-deliveries", "9").text == (
        "queue 'jobs' has these options already\n"
    )


def test_the_changes_are_json(quick: Quick, broker: shmq.Broker) -> None:
    broker.create_queue("jobs")

    told = quick("alter", "jobs", "--overflow", "block", "--json").json

    assert told["queue"] == "jobs"
    assert told["changed"] == {"overflow": {"from": "reject", "to": "block"}}
    assert told["options"] == broker.queue("jobs").options.as_dict()


def test_an_option_that_is_fixed_is_refused_with_the_reason(
    quick: Quick, broker: shmq.Broker
) -> None:
    before = broker.create_queue("jobs").options

    ran = quick("alter", "jobs", "--ttl", "9", "--priorities", "5", code=Code.USAGE)

    assert "--priorities 5 (it has 3), because the queue's memory is laid out" in ran.error
    assert broker.queue("jobs").options == before


def test_sizes_grow_by_their_flags_and_say_how_far(quick: Quick, broker: shmq.Broker) -> None:
    broker.create_queue("jobs", capacity=10)

    ran = quick("alter", "jobs", "--capacity", "160", "--arena-bytes", "32MiB")
    assert ran.text == (
        "queue 'jobs' is altered: capacity from 10 to 160, arena_bytes from 16777216 to 33554432\n"
    )
    ran = quick("alter", "jobs", "--capacity", "161", code=Code.USAGE)
    assert "161 is more than 160" in ran.error and "create a larger queue" in ran.error
    assert broker.queue("jobs").options.capacity == 160


def test_an_arena_that_is_too_small_for_the_largest_body_is_named_with_what_remedies_it(
    quick: Quick, broker: shmq.Broker
) -> None:
    broker.create_queue("jobs")

    ran = quick("alter", "jobs", "--arena-bytes", "4KiB", code=Code.USAGE)
    assert ran.error == (
        "--arena-bytes 4096 is less than the --max-message-bytes of queue 'jobs', 4194304: "
        "name at least that, or --max-message-bytes too"
    )
    quick("alter", "jobs", "--arena-bytes", "4KiB", "--max-message-bytes", "1KiB")


def test_the_help_has_only_what_can_be_altered(quick: Quick) -> None:
    text = quick("alter", "--help").text

    assert "--max-deliveries" in text
    assert "--capacity" in text
    assert "--priorities" not in text
    assert "[default" not in text
