"""The options of a queue, and the tables in which options are declared.

A class of options is a table: each field is an option with its type and default, and its
:class:`Option` is the rest of the row. The checks below and the flags of the command line come from
the table; from the table tools/options.py also generates the keywords of the calls, the transfer to
the struct of the core and the tables of the documents. See also :mod:`shmq.api.stream_options`.

Options are stored in the queue's segment, so every process that attaches sees the same ones. Some
can be altered while the queue is in use; the table says why not for the others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Final, Literal, NamedTuple, ParamSpec, Self, TypeVar, get_args

from shmq.api.names import check_name, dead_letter_name
from shmq.errors import InvalidName, InvalidOption
from shmq.native._core import (
    MAX_CAPACITY,
    MAX_ERROR_BYTES,
    MAX_PRIORITIES,
    check_seconds,
    plain_number,
)
from shmq.suggestions import suggest

#: The priorities of a queue with the default number of three; higher is served first.
LOW: Final = 0
NORMAL: Final = 1
HIGH: Final = 2

P = ParamSpec("P")

Overflow = Literal["reject", "block", "drop-oldest"]
Expired = Literal["dead-letter", "drop"]
Durability = Literal["memory", "snapshot", "journal"]
Confirm = Literal["memory", "disk"]
#: The lowest, the middle and the highest priority of a queue.
Level = Literal["low", "normal", "high"]
#: The kinds of target of a binding.
TargetKind = Literal["queue", "stream", "exchange"]
#: How many of a binding's headers a message must have.
Match = Literal["all", "any"]

#: What an ``ensure`` does if the name exists with other options than those given: issue an
#: OptionsWarning, attach silently, raise AlreadyExists, or alter the options.
IfDifferent = Literal["warn", "accept", "refuse", "alter"]

DEFAULT_ARENA: Final = 16 << 20
MIN_ARENA: Final = 4096
MAX_ARENA: Final = 1 << 36
MAX_DELIVERIES: Final = 65_534
MIN_LEASE: Final = 0.001
#: The largest number that segments, files and frames hold.
MAX_WHOLE: Final = (1 << 63) - 1
#: The default limit of the bytes that one publisher may have staged for a queue.
STAGING_BYTES: Final = 256 << 20
#: The largest limit of them: beside the rows a marker and a turn are in the arena.
MAX_STAGING_BYTES: Final = MAX_ARENA - (1 << 20)
#: Room for the properties of a dead letter beyond the message's own bytes.
DEAD_LETTER_ROOM: Final = 4096


_DELETE: Final = "delete the queue when it is done with"

_LAID_OUT: Final = "the queue's memory is laid out for it"

_GROWS: Final = (
    "It can grow to 16 times what the queue was created with, and shrink to what is in use"
)

_PARTS: Final = {2: "half", 4: "a quarter"}


class Part(NamedTuple):
    """A fraction of another option of the table."""

    option: str
    divisor: int = 1

    def __str__(self) -> str:
        whole = f"`{self.option}`"
        return whole if self.divisor == 1 else f"{_PARTS[self.divisor]} of {whole}"

    def of(self, given: Mapping[str, Any]) -> int:
        """The fraction's value; ``given`` are the options by name."""
        return int(given[self.option]) // self.divisor


class Option(NamedTuple):
    """A row of a table of options, without the option's name, type and default."""

    #: The kind of its values: an int, an int of bytes, seconds, one of some words, a queue's name,
    #: true or false.
    kind: Literal["count", "bytes", "seconds", "choice", "name", "flag"]
    #: A one-line description, as Markdown.
    text: str
    #: The member of the core's struct that holds it: a time in nanoseconds, 0 for None, the index
    #: of a word among the ``choices``. Empty: it is transferred by hand.
    member: str = ""
    #: For a number: its range.
    least: float = 1
    most: int | Part = MAX_WHOLE
    #: For a word: all of them, in the order of the core's numbers.
    choices: tuple[str, ...] = ()
    #: What None means. Empty: None is not taken.
    none: str = ""
    #: The option from which the default follows, or the default in words.
    follows: Part | str = ""
    #: What the pages add to ``text``, as Markdown; links are relative to the folder of the pages.
    more: str = ""
    #: Its value in a queue's dead-letter queue; ``...``: the same as in the queue.
    of_dead_letters: Any = ...
    #: The flag of the command line, without dashes. Empty: the option's name.
    flag: str = ""
    #: For a name: what it names.
    noun: Literal["queue", "exchange", "site"] = "queue"
    #: Whether a cluster alone has it: it is in no struct and no frame.
    of_cluster: bool = False
    #: Why a cluster cannot have it. Empty: it can.
    not_of_cluster: str = ""
    #: Whether a queue made elsewhere after the example of this one has the same value.
    copied: bool = False
    #: The method that changes it later. Empty: it is fixed.
    changed_by: str = ""
    #: Why it cannot be altered. Empty: `changed_by` says how.
    fixed: str = ""

    def check(self, name: str, value: Any, given: Mapping[str, Any]) -> Any:
        """Return the value of the option ``name``: ``value``, but a timedelta as seconds.

        Raises TypeError or :class:`InvalidOption` if it cannot be.
        """
        if value is None and self.none:
            return None
        if self.kind == "seconds":
            seconds = check_seconds(name, value, self.least)
            return value if isinstance(value, int | float) else seconds
        if self.kind == "choice":
            return check_one_of(name, value, self.choices)
        if self.kind == "name":
            return _check_named(name, value, self.noun)
        if self.kind == "flag":
            check_flag(name, value)
            return value
        most = self.most.of(given) if isinstance(self.most, Part) else self.most
        return check_whole(name, value, int(self.least), most)

    def is_same(self, one: Any, other: Any) -> bool:
        """Whether two values are the same; a time is stored in whole nanoseconds."""
        if self.kind == "seconds" and None not in (one, other):
            return math.isclose(one, other, rel_tol=1e-15, abs_tol=1e-9)
        return bool(one == other)


def _as_field(make: Callable[P, Option]) -> Callable[Concatenate[Any, P], Any]:
    def field(default: Any, /, *row: P.args, **others: P.kwargs) -> Any:
        return dataclasses.field(default=default, metadata={"option": make(*row, **others)})

    return field


#: Makes a field of a class of options: its default, then the rest of its row.
option = _as_field(Option)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The base of the classes of options."""

    def as_dict(self) -> dict[str, Any]:
        """The options by name; without those of a cluster that are not set."""
        return {
            name: getattr(self, name)
            for name, row in options_of(type(self)).items()
            if not row.of_cluster or getattr(self, name) is not None
        }

    def differences(self, other: Self) -> dict[str, tuple[Any, Any]]:
        """The options in which ``self`` and ``other`` differ: name to both values."""
        both = {
            key: (row, getattr(self, key), getattr(other, key))
            for key, row in options_of(type(self)).items()
        }
        return {
            key: (mine, theirs)
            for key, (row, mine, theirs) in both.items()
            if not row.is_same(mine, theirs)
        }

    def why_fixed(self, key: str) -> str:
        """Why what has these options cannot change option ``key``; empty if it can."""
        return options_of(type(self))[key].fixed

    def check_fixed(self, what: str, given: Mapping[str, Any], remedy: str) -> None:
        """Raise :class:`InvalidOption` with every ``given`` option that is fixed and differs.

        ``what`` has these options, such as "queue 'jobs'"; ``remedy`` says what to do instead.
        """
        rows, kept = options_of(type(self)), {}
        for key in (key for key in rows if key in given):
            why, has = self.why_fixed(key), getattr(self, key)
            if not why:
                continue
            wanted = rows[key].check(key, plain_number(given[key]), {})  # it depends on no other
            if not rows[key].is_same(wanted, has):
                kept[key] = f"{key}={given[key]!r} (it has {has!r}), because {why}"
        if kept:
            raise InvalidOption(
                f"{what} is unchanged, as these cannot be altered: {'; '.join(kept.values())}; "
                f"{remedy}"
            )


T = TypeVar("T", bound=Options)


def options_of(table: type[Options]) -> dict[str, Option]:
    """The rows of a table of options, by name; a row comes after the rows that it follows."""
    return {field.name: field.metadata["option"] for field in dataclasses.fields(table)}


def checked(table: type[T], given: Mapping[str, Any], of: str = "", **defaults: Any) -> T:
    """The ``given`` options over the ``defaults`` and those of ``table``, each of them checked.

    Raises :class:`~shmq.InvalidOption` for an unknown option or a value out of range, and TypeError
    for a value of the wrong type; both name the option. ``of`` ends the text "unknown option", such
    as " of a stream".
    """
    rows = options_of(table)
    for key in given:
        if key not in rows:
            raise InvalidOption(f"unknown option {key!r}{of}: {suggest(key, rows)}")
    filled = {field.name: field.default for field in dataclasses.fields(table)}
    filled |= defaults | {key: plain_number(value) for key, value in given.items()}
    for name, row in rows.items():
        if isinstance(row.follows, Part) and name not in given:
            filled[name] = row.follows.of(filled)
        filled[name] = row.check(name, filled[name], filled)
    return table(**filled)


def checked_values(wanted: Options, given: Mapping[str, Any]) -> dict[str, Any]:
    """The ``given`` options with the values that `checked` has made of them: plain numbers.

    What is no option, such as ``allow_same_name``, stays as it is.
    """
    return {key: getattr(wanted, key, value) for key, value in given.items()}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions(Options):
    """The options that a queue was created with. Times are in seconds, sizes in bytes."""

    capacity: int = option(
        16_384,
        "count",
        "How many messages the queue can hold, in any state",
        "capacity",
        most=MAX_CAPACITY,
        more=_GROWS,
        copied=True,
        changed_by="alter_queue",
    )
    arena_bytes: int = option(
        DEFAULT_ARENA,
        "bytes",
        "Room for bodies and properties, taken as needed",
        "arena_bytes",
        least=MIN_ARENA,
        most=MAX_ARENA,
        more=_GROWS,
        copied=True,
        changed_by="alter_queue",
    )
    max_message_bytes: int = option(
        DEFAULT_ARENA // 4,
        "bytes",
        "The largest body",
        "max_message_bytes",
        most=Part("arena_bytes"),
        follows=Part("arena_bytes", 4),
        copied=True,
        changed_by="alter_queue",
    )
    visibility_timeout: float = option(
        30.0,
        "seconds",
        "How long a lease lasts",
        "visibility",
        least=MIN_LEASE,
        copied=True,
        changed_by="alter_queue",
    )
    max_deliveries: int | None = option(
        5,
        "count",
        "Deliveries after which a message that comes back is a dead letter",
        "max_deliveries",
        most=MAX_DELIVERIES,
        none="no limit",
        of_dead_letters=None,
        copied=True,
        changed_by="alter_queue",
    )
    dead_letter: str | None = option(
        None,
        "name",
        "The dead-letter queue, made with the queue",
        "dead_letter",
        none="dead letters are dropped and counted",
        follows="`NAME.dlq`; None with `auto_delete` or `exclusive`",
        of_dead_letters=None,
        fixed="dead letters may be on their way there",
    )
    error_bytes: int = option(
        MAX_ERROR_BYTES,
        "bytes",
        "The most bytes that the error of a failed delivery may take with its message; 0: it is "
        "not stored",
        "error_bytes",
        least=0,
        most=MAX_ERROR_BYTES,
        more="A longer one is truncated in the middle of its texts, and below 128 bytes it is not "
        "stored. `stats().errors` counts it by its type in any case",
        copied=True,
        changed_by="alter_queue",
    )
    ttl: float | None = option(
        None,
        "seconds",
        "How long a message may wait",
        "ttl",
        least=MIN_LEASE,
        none="without limit",
        of_dead_letters=None,
        copied=True,
        changed_by="alter_queue",
    )
    dead_letter_ttl: float | None = option(
        None,
        "seconds",
        "How long a dead letter of this queue may stay in the dead-letter queue",
        "dead_letter_ttl",
        least=MIN_LEASE,
        none="without limit",
        more="After that it is dropped, and `dropped_expired` of the dead-letter queue counts it",
        of_dead_letters=None,
        changed_by="alter_queue",
    )
    on_expired: Expired = option(
        "dead-letter",
        "choice",
        "What happens to a message whose ttl has passed",
        "drop_expired",
        choices=get_args(Expired),
        copied=True,
        changed_by="alter_queue",
    )
    priorities: int = option(
        3,
        "count",
        "How many priorities there are",
        "priorities",
        most=MAX_PRIORITIES,
        more="They are 0 to `priorities` - 1, higher first; with 3 they are `LOW`, `NORMAL`, "
        "`HIGH`",
        copied=True,
        fixed=_LAID_OUT,
    )
    retry_delay: float = option(
        1.0,
        "seconds",
        "The delay after the first `nack` that names none",
        "retry",
        least=0,
        more="It doubles with each delivery, up to `retry_delay_max`; the actual delay is a random "
        "50 to 100 % of it",
        copied=True,
        changed_by="alter_queue",
    )
    retry_delay_max: float = option(
        300.0,
        "seconds",
        "The longest such delay",
        "retry_max",
        least=0,
        copied=True,
        changed_by="alter_queue",
    )
    dedupe_window: float = option(
        0.0,
        "seconds",
        "How long a `dedupe_id` is remembered; 0: not at all",
        "dedupe_window",
        least=0,
        of_dead_letters=0.0,
        fixed=_LAID_OUT,
    )
    overflow: Overflow = option(
        "reject",
        "choice",
        "What a put to a full queue does",
        "overflow",
        choices=get_args(Overflow),
        of_dead_letters="reject",
        changed_by="alter_queue",
    )
    durability: Durability = option(
        "memory",
        "choice",
        "What survives a restart of the machine: nothing, the newest snapshot, or every put and "
        "settlement",
        "durability",
        choices=get_args(Durability),
        more="See [durable queues](../use/durable-queues.md)",
        fixed="its files follow from it",
    )
    snapshot_interval: float = option(
        30.0,
        "seconds",
        "How often a queue with snapshots is written to disk",
        "snapshot_interval",
        least=0.1,
        changed_by="alter_queue",
    )
    confirm: Confirm = option(
        "memory",
        "choice",
        "Where a message is when its put returns, unless the put says otherwise",
        "confirm",
        choices=get_args(Confirm),
        more='`"disk"` takes `durability="journal"`',
        of_dead_letters="memory",
        changed_by="alter_queue",
    )
    expires: float | None = option(
        None,
        "seconds",
        "The queue is deleted once it has been without a consumer for so long",
        "expires",
        least=MIN_LEASE,
        none="it stays",
        more="`create_queue` and `ensure_queue` begin the time again. See "
        "[temporary queues](../use/temporary-queues.md)",
        of_dead_letters=None,
        not_of_cluster=f"no server watches whether it has consumers: {_DELETE}",
        changed_by="alter_queue",
    )
    auto_delete: bool = option(
        False,
        "flag",
        "The queue is deleted once its last consumer has ended or closed its handle",
        "auto_delete",
        of_dead_letters=False,
        not_of_cluster=f"no server counts its consumers across the cluster: {_DELETE}",
        fixed="its consumers are counted from its creation on",
    )
    exclusive: bool = option(
        False,
        "flag",
        "The queue belongs to the process or connection that makes it: others may only put, and "
        "it is deleted with its owner",
        "exclusive",
        more='It takes `durability="memory"`',
        of_dead_letters=False,
        not_of_cluster=f"no server removes it with its owner: {_DELETE}",
        fixed="its owner is the one who creates it",
    )

    @classmethod
    def for_queue(cls, name: str, given: Mapping[str, Any]) -> QueueOptions:
        """The options of the queue ``name``, the ``given`` ones over the defaults.

        Raises :class:`InvalidOption` for an unknown option or a value out of range,
        and TypeError for a value of the wrong type; both name it.
        """
        goes = given.get("auto_delete") or given.get("exclusive")
        if "dead_letter" in given or goes:
            options = checked(cls, given)
        else:
            options = checked(cls, given, dead_letter=dead_letter_name(name))
        if options.dead_letter == name:
            raise InvalidOption(
                f"dead_letter={name!r}: a queue cannot be its own dead-letter queue"
            )
        check_confirm(options.confirm, options.durability)
        if options.exclusive and options.durability != "memory":
            raise InvalidOption(
                f"exclusive=True goes with durability='memory', not {options.durability!r}: the "
                f"queue ends with its owner"
            )
        return options

    def altered(self, name: str, given: Mapping[str, Any]) -> QueueOptions:
        """Return these options of the queue ``name`` with the ``given`` ones over them.

        Raises what `for_queue` raises for all of them together, and :class:`InvalidOption` with
        every given option that is fixed.
        """
        self.check_fixed(
            f"queue {name!r}",
            given,
            "create another queue with them, and move the messages there: Queue.move_to, shmq move",
        )
        self._check_room(name, given)
        return QueueOptions.for_queue(name, {**self.as_dict(), **given})

    def _check_room(self, name: str, given: Mapping[str, Any]) -> None:
        """Raise InvalidOption if the ``given`` arena is too small for the largest body."""
        if "arena_bytes" not in given or "max_message_bytes" in given:
            return
        row = options_of(QueueOptions)["arena_bytes"]
        wanted = row.check("arena_bytes", plain_number(given["arena_bytes"]), {})
        if wanted < self.max_message_bytes:
            raise InvalidOption(
                f"arena_bytes={wanted} is less than the max_message_bytes of queue {name!r}, "
                f"{self.max_message_bytes}: name at least that, or max_message_bytes too"
            )

    def why_fixed(self, key: str) -> str:
        """Why a queue with these options cannot change option ``key``; empty if it can."""
        if key == "expires" and not self.is_temporary:
            return "only a queue created with it counts its consumers"
        return options_of(QueueOptions)[key].fixed

    @property
    def is_temporary(self) -> bool:
        """Whether the queue ends by itself."""
        return self.expires is not None or self.auto_delete or self.exclusive

    def for_dead_letters(self) -> QueueOptions:
        """The options with which this queue's dead-letter queue is created."""
        rows = options_of(QueueOptions).items()
        own = {key: row.of_dead_letters for key, row in rows if row.of_dead_letters is not ...}
        return dataclasses.replace(self, arena_bytes=self.arena_bytes + DEAD_LETTER_ROOM, **own)

    def check_dead_letters(self, name: str, found: QueueOptions) -> None:
        """Raise :class:`InvalidOption` if a queue with the options ``found`` cannot take them.

        ``name`` is the queue that these options are of.
        """
        if found.dead_letter is not None or found.max_deliveries is not None:
            raise InvalidOption(
                f"dead_letter={self.dead_letter!r}: that queue has a delivery limit or a "
                f"dead-letter queue of its own, so it cannot take the dead letters of {name!r}: "
                f"name another"
            )
        if found.arena_bytes < self.max_message_bytes + DEAD_LETTER_ROOM:
            raise InvalidOption(
                f"dead_letter={self.dead_letter!r}: its arena_bytes={found.arena_bytes} cannot "
                f"hold a message of {self.max_message_bytes} bytes from {name!r}: name a larger one"
            )


def check_confirm(confirm: str, durability: str) -> None:
    """Raise :class:`InvalidOption` for ``confirm="disk"`` without a journal."""
    if confirm == "disk" and durability != "journal":
        raise InvalidOption(
            f"confirm='disk' needs a journal, and durability={durability!r} keeps none: "
            f"set durability='journal'"
        )


def _check_named(option: str, name: object, noun: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{option}={name!r} must be a str or None, not {type(name).__name__}")
    try:
        return check_name(name, noun)
    except InvalidName as error:
        raise InvalidName(f"{option}={name!r}: {error}") from None


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


def without_sharing(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options alone of those given with ``allow_same_name``. Raises TypeError."""
    check_flag("allow_same_name", given.get("allow_same_name", False))
    return {name: value for name, value in given.items() if name != "allow_same_name"}


def check_flag(name: str, value: object) -> None:
    """Raise TypeError if ``value`` is not a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be True or False, not {type(value).__name__}")


def check_one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Return ``value``, as a plain str, if it is one of those allowed.

    Raises TypeError if it is not a str, and :class:`InvalidOption` for any other value.
    """
    choices = ", ".join(map(repr, allowed))
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r} must be one of {choices}, not {type(value).__name__}")
    if value not in allowed:
        raise InvalidOption(f"{name}={value!r} must be one of {choices}")
    return str.__str__(value)
