"""``shmq stream alter``."""

from __future__ import annotations

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.system.cli.conftest import Quick


def test_options_are_altered_by_their_flags(quick: Quick, broker: shmq.Broker) -> None:
    broker.create_stream("clicks", 1, ring_bytes=1 << 20)

    ran = quick("stream", "alter", "clicks", "--ring-bytes", "2MiB", "--retention", "2h")

    assert ran.text == (
        "stream 'clicks' is altered: ring_bytes from 1048576 to 2097152, "
        "retention_seconds from None to 7200.0\n"
    )
    assert broker.stream("clicks").options.ring_bytes == 2 << 20
    assert quick("stream", "alter", "clicks", "--ring-bytes", "2MiB").text == (
        "stream 'clicks' has these options already\n"
    )
    told = quick("stream", "alter", "clicks", "--retention", "none", "--json").json
    assert told["stream"] == "clicks"
    assert told["changed"] == {"retention_seconds": {"from": 7200.0, "to": None}}
    assert told["options"] == broker.stream("clicks").options.as_dict()


def test_what_cannot_be_altered_is_refused_with_the_reason(
    quick: Quick, broker: shmq.Broker
) -> None:
    before = broker.create_stream("clicks", 1, ring_bytes=1 << 20).options

    ran = quick("stream", "alter", "clicks", "--retention", "9", "--overflow", "block",
                code=Code.USAGE)  # fmt: skip
    assert "--overflow 'block' (it has 'drop-oldest'), because its groups" in ran.error
    ran = quick("stream", "alter", "clicks", "--ring-bytes", "17MiB", code=Code.USAGE)
    assert "is more than 16777216" in ran.error and "create a larger stream" in ran.error
    assert broker.stream("clicks").options == before
    assert quick("stream", "alter", "none", "--retention", "9", code=Code.NO_QUEUE).error


def test_the_help_has_only_what_can_be_altered(quick: Quick) -> None:
    text = quick("stream", "alter", "--help").text

    assert "--ring-bytes" in text
    assert "--partitions" not in text
    assert "--durability" not in text
    assert "[default" not in text
