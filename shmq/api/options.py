"""The options of a queue: their names, defaults and ranges.

They are fixed when the queue is made and stored in its segment, so every process
that attaches sees the same ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final, Literal

from shmq.api.names import check_name, dead_letter_name
from shmq.errors import InvalidName, InvalidOption
from shmq.native._core import plain_number

__all__ = [
    "HIGH",
    "LOW",
    "NORMAL",
    "STAGING_BYTES",
    "Confirm",
    "Durability",
    "Expired",
    "Overflow",
    "QueueOptions",
    "check_one_of",
    "check_seconds",
    "check_whole",
    "hint_at",
]

#: A priority of a queue with the three that are the default; higher is served first.
LOW: Final = 0
NORMAL: Final = 1
HIGH: Final = 2

Overflow = Literal["reject", "block", "drop-oldest"]
Expired = Literal["dead-letter", "drop"]
Durability = Literal["memory", "snapshot", "journal"]
Confirm = Literal["memory", "disk"]

MAX_CAPACITY: Final = (1 << 24) - 2
DEFAULT_ARENA: Final = 16 * 1024 * 1024
MIN_ARENA: Final = 4096
MAX_ARENA: Final = 1 << 36
MAX_DELIVERIES: Final = 65_534
MAX_PRIORITIES: Final = 16
#: The longest time an option or a delay may name, in seconds (about 31 years).
MAX_SECONDS: Final = 1e9
MIN_LEASE: Final = 0.001
#: The largest number that segments, files and frames hold.
MAX_WHOLE: Final = (1 << 63) - 1
#: What a publisher may have staged for a queue, in bytes, unless it says otherwise.
STAGING_BYTES: Final = 256 << 20
#: What the properties of a dead letter may take beyond the message's own bytes.
DEAD_LETTER_ROOM: Final = 4096


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """What a queue was made with. Times are in seconds, sizes in bytes."""

    #: Messages it can hold, in whatever state: 1 to 16,777,214.
    capacity: int = 16_384
    #: Room for bodies and properties: 4 KiB to 64 GiB. Taken as it is needed.
    arena_bytes: int = DEFAULT_ARENA
    #: The largest body: 1 to ``arena_bytes``; if not given, a quarter of it.
    max_message_bytes: int = DEFAULT_ARENA // 4
    #: How long a lease lasts: 0.001 to 1e9.
    visibility_timeout: float = 30.0
    #: Deliveries after which a message that comes back is a dead letter: 1 to 65,534; None:
    #: no limit.
    max_deliveries: int | None = 5
    #: The queue for dead letters, made with this one. If not given, ``NAME.dlq``; None: dead
    #: letters are dropped and counted.
    dead_letter: str | None = None
    #: How long a message may wait: 0.001 to 1e9; None: for ever.
    ttl: float | None = None
    #: What becomes of a message whose ttl is over: ``"dead-letter"`` or ``"drop"``.
    on_expired: Expired = "dead-letter"
    #: How many priorities there are, 1 to 16: 0 to ``priorities - 1``, higher first.
    priorities: int = 3
    #: The first delay of a ``nack`` without one of its own: 0 to 1e9. It doubles with each
    #: delivery, and a random half to whole of it is taken.
    retry_delay: float = 1.0
    #: The longest such delay: 0 to 1e9.
    retry_delay_max: float = 300.0
    #: How long a ``dedupe_id`` is remembered: 0 to 1e9; 0: not at all.
    dedupe_window: float = 0.0
    #: What a put to a full queue does: ``"reject"``, ``"block"`` or ``"drop-oldest"``.
    overflow: Overflow = "reject"
    #: What outlives the machine: nothing with ``"memory"``, the newest snapshot with
    #: ``"snapshot"``, every put and settlement with ``"journal"``.
    durability: Durability = "memory"
    #: How often a queue with ``durability="snapshot"`` is written to disk: 0.1 to 1e9.
    snapshot_interval: float = 30.0
    #: When a put returns that does not say so itself: once it is in ``"memory"``, or on
    #: ``"disk"``, which takes ``durability="journal"``.
    confirm: Confirm = "memory"

    @classmethod
    def for_queue(cls, name: str, given: Mapping[str, Any]) -> QueueOptions:
        """The options of the queue ``name``, the ``given`` ones over the defaults.

        Raises :class:`InvalidOption` for an unknown option or a value out of range,
        and TypeError for a value of the wrong type; both name it.
        """
        _refuse_unknown(given)
        filled = {key: plain_number(value) for key, value in given.items()}
        if "arena_bytes" in filled:
            check_whole("arena_bytes", filled["arena_bytes"], MIN_ARENA, MAX_ARENA)
        if "max_message_bytes" not in filled:
            filled["max_message_bytes"] = filled.get("arena_bytes", DEFAULT_ARENA) // 4
        if "dead_letter" not in filled:
            filled["dead_letter"] = dead_letter_name(name)
        options = cls(**filled)
        options._check(name)
        return options

    def for_dead_letters(self) -> QueueOptions:
        """The options that this queue's dead-letter queue is made with."""
        return dataclasses.replace(
            self,
            arena_bytes=self.arena_bytes + DEAD_LETTER_ROOM,
            dead_letter=None,
            max_deliveries=None,
            ttl=None,
            dedupe_window=0.0,
            overflow="reject",
            confirm="memory",
        )

    def as_dict(self) -> dict[str, Any]:
        """The options by name, as :meth:`for_queue` takes them."""
        return dataclasses.asdict(self)

    def differences(self, other: QueueOptions) -> dict[str, tuple[Any, Any]]:
        """The options in which ``self`` and ``other`` differ: name to both values."""
        mine, theirs = self.as_dict(), other.as_dict()
        return {key: (mine[key], theirs[key]) for key in mine if mine[key] != theirs[key]}

    def _check(self, name: str) -> None:
        check_whole("capacity", self.capacity, 1, MAX_CAPACITY)
        check_whole("arena_bytes", self.arena_bytes, MIN_ARENA, MAX_ARENA)
        check_whole("max_message_bytes", self.max_message_bytes, 1, self.arena_bytes)
        check_seconds("visibility_timeout", self.visibility_timeout, MIN_LEASE)
        if self.max_deliveries is not None:
            check_whole("max_deliveries", self.max_deliveries, 1, MAX_DELIVERIES)
        if self.dead_letter is not None:
            _check_dead_letter(self.dead_letter)
            if self.dead_letter == name:
                raise InvalidOption(
                    f"dead_letter={name!r}: a queue cannot be its own dead-letter queue"
                )
        if self.ttl is not None:
            check_seconds("ttl", self.ttl, MIN_LEASE)
        check_whole("priorities", self.priorities, 1, MAX_PRIORITIES)
        check_seconds("retry_delay", self.retry_delay, 0.0)
        check_seconds("retry_delay_max", self.retry_delay_max, 0.0)
        check_seconds("dedupe_window", self.dedupe_window, 0.0)
        check_one_of("overflow", self.overflow, ("reject", "block", "drop-oldest"))
        check_one_of("on_expired", self.on_expired, ("dead-letter", "drop"))
        check_one_of("durability", self.durability, ("memory", "snapshot", "journal"))
        check_seconds("snapshot_interval", self.snapshot_interval, 0.1)
        check_one_of("confirm", self.confirm, ("memory", "disk"))
        if self.confirm == "disk" and self.durability != "journal":
            raise InvalidOption(
                f"confirm='disk' needs a journal, and durability={self.durability!r} keeps none: "
                f"set durability='journal'"
            )


def _check_dead_letter(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"dead_letter={name!r} must be a str or None, not {type(name).__name__}")
    try:
        check_name(name, "dead-letter queue")
    except InvalidName as error:
        raise InvalidName(f"dead_letter={name!r}: {error}") from None


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(QueueOptions)]
    for key in given:
        if key not in known:
            raise InvalidOption(f"unknown option {key!r}: {hint_at(key, known)}")


def hint_at(key: str, known: list[str]) -> str:
    """What may have been meant by an option that is not known."""
    near: list[str] = []
    with contextlib.suppress(ImportError, OSError):  # for want of a descriptor
        import difflib  # noqa: PLC0415 - for the hint alone

        near = difflib.get_close_matches(str(key), known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(known)}"


def check_whole(name: str, value: object, least: int, most: int | None = MAX_WHOLE) -> int:
    """``value`` as an int, if it is one from ``least`` to ``most`` (None: no limit).

    Raises TypeError for another type, and :class:`InvalidOption` out of range.
    """
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} must be an int, not {type(value).__name__}")
    if most in {None, MAX_WHOLE} and value < least:
        raise InvalidOption(f"{name}={value} must be {least} or more")
    if most is not None and not least <= value <= most:
        raise InvalidOption(f"{name}={value} is out of range: {least} to {most}")
    return value


def check_seconds(name: str, value: object, least: float) -> float:
    """``value`` as a float, if it is a number of seconds from ``least`` to ``MAX_SECONDS``.

    Raises TypeError for another type, and :class:`InvalidOption` out of range.
    """
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r} must be a number of seconds, not {type(value).__name__}")
    if not (math.isfinite(value) and least <= value <= MAX_SECONDS):
        raise InvalidOption(f"{name}={value} s is out of range: {least} to {MAX_SECONDS:.0f} s")
    return float(value)


def check_one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of those allowed.

    Raises TypeError for what is no str, and :class:`InvalidOption` for another one.
    """
    choices = ", ".join(map(repr, allowed))
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r} must be one of {choices}, not {type(value).__name__}")
    if value not in allowed:
        raise InvalidOption(f"{name}={value!r} must be one of {choices}")
    return value
