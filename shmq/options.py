"""The options of a queue: their names, defaults and ranges.

They are fixed when the queue is made and stored in its segment, so every process
that attaches sees the same ones.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from shmq.errors import InvalidOption
from shmq.names import check_name, dead_letter_name

__all__ = [
    "HIGH",
    "LOW",
    "NORMAL",
    "Expired",
    "Overflow",
    "QueueOptions",
    "check_one_of",
    "check_seconds",
    "check_whole",
]

LOW: Final = 0
NORMAL: Final = 1
HIGH: Final = 2

Overflow = Literal["reject", "block", "drop-oldest"]
Expired = Literal["dead-letter", "drop"]

MAX_CAPACITY: Final = (1 << 24) - 2
DEFAULT_ARENA: Final = 16 * 1024 * 1024
MIN_ARENA: Final = 4096
MAX_ARENA: Final = 1 << 36
MAX_DELIVERIES: Final = 65_534
MAX_PRIORITIES: Final = 16
#: The longest time an option or a delay may name, in seconds (about 31 years).
MAX_SECONDS: Final = 1e9
MIN_LEASE: Final = 0.001
#: What the properties of a dead letter may take beyond the message's own bytes.
DEAD_LETTER_ROOM: Final = 4096


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """What a queue was made with. Times are in seconds, sizes in bytes."""

    capacity: int = 16_384
    arena_bytes: int = DEFAULT_ARENA
    max_message_bytes: int = DEFAULT_ARENA // 4
    visibility_timeout: float = 30.0
    max_deliveries: int | None = 5
    dead_letter: str | None = None
    ttl: float | None = None
    on_expired: Expired = "dead-letter"
    priorities: int = 3
    retry_delay: float = 1.0
    retry_delay_max: float = 300.0
    dedupe_window: float = 0.0
    overflow: Overflow = "reject"

    @classmethod
    def for_queue(cls, name: str, given: Mapping[str, Any]) -> QueueOptions:
        """The options of the queue ``name``, the ``given`` ones over the defaults.

        Raises :class:`InvalidOption` for an unknown option or a value out of range,
        and names it.
        """
        _refuse_unknown(given)
        filled = dict(given)
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
            check_name(self.dead_letter)
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


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(QueueOptions)]
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(known)}"
            raise InvalidOption(f"unknown option {key!r}: {hint}")


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Raise :class:`InvalidOption` unless ``value`` is an int from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"{name}={value!r} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidOption(f"{name}={value} is out of range: {least} to {most}")


def check_seconds(name: str, value: object, least: float) -> None:
    """Raise :class:`InvalidOption` unless ``value`` is a time from ``least`` on, in seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(
            f"{name}={value!r} must be a number of seconds, not {type(value).__name__}"
        )
    number = cast(float, value)
    if not (math.isfinite(number) and least <= number <= MAX_SECONDS):
        raise InvalidOption(f"{name}={value} s is out of range: {least} to {MAX_SECONDS:.0f} s")


def check_one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise :class:`InvalidOption` unless ``value`` is one of those allowed."""
    if value not in allowed:
        raise InvalidOption(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
