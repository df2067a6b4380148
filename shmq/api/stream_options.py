"""The options of a stream; see :mod:`shmq.api.options` for how they are written.

They are stored in its control segment, so every process sees the same ones. Some can be altered
while the stream is in use; the table says why not for the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from shmq.api.options import Confirm, Options, Part, check_confirm, checked, option
from shmq.errors import InvalidOption, Unsupported
from shmq.native._core import plain_number
from shmq.native._stream import MAX_PARTITIONS

StreamDurability = Literal["memory", "journal"]
StreamOverflow = Literal["drop-oldest", "block"]

DEFAULT_RING: Final = 16 << 20
MIN_RING: Final = 64 << 10
MAX_RING: Final = 1 << 36
MIN_SEGMENT: Final = 1 << 16
MAX_SEGMENT: Final = 1 << 36


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions(Options):
    """The options that a stream was created with. Times are in seconds, sizes in bytes."""

    partitions: int = option(
        4,
        "count",
        "How many partitions it has",
        "partitions",
        most=MAX_PARTITIONS,
        more="A key always goes to the same one",
        changed_by="repartition",
    )
    ring_bytes: int = option(
        DEFAULT_RING,
        "bytes",
        "Room for the records of one partition in shared memory, taken as needed",
        "ring_bytes",
        least=MIN_RING,
        most=MAX_RING,
        more="It can grow to 16 times what the stream was created with, and not shrink. A ring "
        "that grows keeps the memory of the one before it",
        changed_by="alter_stream",
    )
    retention_bytes: int | None = option(
        None,
        "bytes",
        "How many bytes of records each partition keeps; older ones are removed",
        "retention_bytes",
        none="as many as the ring holds, or on disk all of them",
        more="In memory it is at most `ring_bytes`. From 64 KiB on, at least 90 % of it is kept, "
        "and at most one record or file more",
        changed_by="alter_stream",
    )
    retention_seconds: float | None = option(
        None,
        "seconds",
        "How long records are kept; older ones are removed",
        "retention",
        least=0.001,
        none="records of any age are kept",
        flag="retention",
        more="See [what goes](../use/streams.md#what-goes)",
        changed_by="alter_stream",
    )
    durability: StreamDurability = option(
        "memory",
        "choice",
        "What survives a restart of the machine: nothing, or every record",
        "durability",
        choices=get_args(StreamDurability),
        more="See [durable streams](../use/durable-streams.md)",
        fixed="its files follow from it",
    )
    overflow: StreamOverflow = option(
        "drop-oldest",
        "choice",
        "What an append to a full ring does",
        "overflow",
        choices=get_args(StreamOverflow),
        more="It removes the oldest records, unless they are pinned or not on disk yet; or it "
        "waits until the groups and the blocking subscribers have read them. A group holds records "
        "back until it is deleted, even while it has no member",
        fixed="its groups hold records back, or do not, from their creation on",
    )
    max_record_bytes: int = option(
        DEFAULT_RING // 4,
        "bytes",
        "The largest record, its key and headers included",
        "max_record_bytes",
        most=Part("ring_bytes", 4),
        follows=Part("ring_bytes", 4),
        changed_by="alter_stream",
    )
    confirm: Confirm = option(
        "memory",
        "choice",
        "Where a record is when its append returns, unless the append says otherwise",
        "confirm",
        choices=get_args(Confirm),
        more='`"disk"` takes `durability="journal"`',
        changed_by="alter_stream",
    )
    segment_bytes: int = option(
        64 << 20,
        "bytes",
        "With a journal, how long a file grows before the next one begins",
        "segment_bytes",
        least=MIN_SEGMENT,
        most=MAX_SEGMENT,
        changed_by="alter_stream",
    )
    mirror: str | None = option(
        None,
        "name",
        "Of a cluster alone: the site that keeps a copy",
        none="no site",
        noun="site",
        of_cluster=True,
        more="See [another site](../operate/cluster.md#another-site)",
        fixed="the site copies it from its creation on",
    )

    @classmethod
    def given(cls, given: Mapping[str, Any]) -> StreamOptions:
        """The options of a stream, the ``given`` ones over the defaults.

        Raises :class:`~shmq.InvalidOption` for an unknown option or a value out of range,
        and TypeError for a value of the wrong type; both name it.
        """
        options = checked(cls, given, " of a stream")
        kept, ring = options.retention_bytes, options.ring_bytes
        if options.durability == "memory" and kept is not None and kept > ring:
            raise InvalidOption(
                f"retention_bytes={kept} is more than ring_bytes={ring}, and a stream "
                f"with durability='memory' keeps its records there alone: set ring_bytes to as "
                f"much, or durability='journal'"
            )
        check_confirm(options.confirm, options.durability)
        return options

    def altered(self, name: str, given: Mapping[str, Any], most_ring: int) -> StreamOptions:
        """Return these options of the stream ``name`` with the ``given`` ones over them.

        ``most_ring`` is the most ring_bytes that its memory is laid out for. Raises what `given`
        raises for all of them together, and :class:`~shmq.InvalidOption` with every given option
        that is fixed, and for a ring that cannot be.
        """
        partitions = plain_number(given.get("partitions", self.partitions))
        if partitions != self.partitions:
            raise InvalidOption(
                f"stream {name!r} is unchanged: partitions={partitions!r} (it has "
                f"{self.partitions}) is changed by Stream.repartition, and by shmq stream "
                f"repartition: only more are possible"
            )
        self.check_fixed(
            f"stream {name!r}",
            given,
            "create another stream with them, and delete this one once its records are read",
        )
        ring = plain_number(given.get("ring_bytes"))
        if isinstance(ring, int) and MIN_RING <= ring < self.ring_bytes:
            raise InvalidOption(
                f"stream {name!r} is unchanged: ring_bytes={ring} is less than the "
                f"{self.ring_bytes} that it has, and a ring only grows; lower retention_bytes or "
                f"retention_seconds to keep fewer records"
            )
        wanted = StreamOptions.given({**self.as_dict(), **given})
        if wanted.ring_bytes > most_ring:
            raise InvalidOption(
                f"stream {name!r} is unchanged: ring_bytes={wanted.ring_bytes} is more than "
                f"{most_ring}, the most that its memory is laid out for; create a larger stream"
            )
        return wanted

    def check_of_host(self, name: str) -> None:
        """Raise :class:`~shmq.Unsupported` for what a cluster alone has; ``name``: the stream's."""
        if self.mirror is not None:
            raise Unsupported(
                f"stream {name!r}: mirror={self.mirror!r} is possible on a cluster alone: connect "
                f"to nats://HOST:PORT, whose servers are joined with that site"
            )
