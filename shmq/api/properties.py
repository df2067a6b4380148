"""The properties of a message: the table of the arguments that describe one message of a put.

From the table tools/options.py generates the signatures and keywords of the calls, the accessors of
a message, the fields of the console and the tables of the documents. tools/properties.py generates
at each build what the C core and its binding know of it. The handles, the codecs and the flags of
the command line read it. Its order is that of the signatures.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

#: A call that takes properties by name; ``aput``, ``loan`` and a pipeline take those of ``put``.
Call = Literal["put", "put_many", "put_packed", "transaction"]

#: The calls that put one body, and all calls; a transaction only takes what needs no timer.
_ONE: Final[tuple[Call, ...]] = ("put", "transaction")
_ALL: Final[tuple[Call, ...]] = ("put", "put_many", "put_packed", "transaction")
_TIMED: Final[tuple[Call, ...]] = ("put", "put_many", "put_packed")


class Property(NamedTuple):
    """A row of the table."""

    name: str
    #: The type of its values besides None, which stands for the default, as Python source.
    type: str
    #: The meaning, as Markdown.
    text: str
    #: The calls that take it.
    calls: tuple[Call, ...] = _ALL
    #: What :class:`shmq.Message` says of its text. Empty: it is not a text, or has no accessor.
    accessor: str = ""
    #: Its key in the stored properties of a message. Empty: it is not stored.
    key: str = ""
    #: The unit of a number: a time span, which is stored in ms, or a time since 1970.
    unit: Literal["", "seconds", "seconds since 1970"] = ""
    #: What the protocol says of the key, as Markdown: its type and its meaning.
    stored: str = ""
    #: The label of its field in the form of the console. Empty: it has no field.
    label: str = ""
    #: The help of its flag on the command line. Empty: it has no flag.
    flag: str = ""
    #: The placeholder for the flag's value. Empty: its choices.
    metavar: str = ""

    @property
    def kind(self) -> str:
        """The type of its stored value: ``int``, ``str`` or ``map``."""
        return self.stored.partition(" | ")[0].partition(":")[0]

    @property
    def option(self) -> str:
        """Its flag on the command line."""
        return "--" + ("header" if self.name == "headers" else self.name.replace("_", "-"))

    @property
    def is_of_one(self) -> bool:
        """Whether it is unique to a message, so that ``put_many`` does not take it."""
        return "put_many" not in self.calls


PROPERTIES: Final = {
    row.name: row
    for row in (
        Property(
            "priority",
            "int | Level",
            'higher is served first; the middle one by default. Or `"low"`, `"normal"`, '
            '`"high"`: the lowest, the middle, the highest',
            key="pri",
            stored="int | 0 to the queue's priorities - 1; higher is served first; by default "
            "priorities // 2",
            label="Priority: a number, low, normal or high",
            flag="A higher priority is delivered first.  [default: the middle one]",
            metavar="N|low|normal|high",
        ),
        Property(
            "group",
            "str",
            "one message of a group is in flight at a time, in the queue's order",
            accessor="The message group, or None.",
            key="group",
            stored="str | one message of a group is leased at a time, in the queue's order; a "
            "message that was returned with a delay holds its group back",
            label="Group",
            flag="The group: its messages are delivered in order, one at a time.",
            metavar="NAME",
        ),
        Property(
            "headers",
            "Mapping[str, Any]",
            "a map of whatever msgpack holds",
            key="headers",
            stored="map | application data",
            label="Headers, as a JSON object",
            flag="A header; may be repeated.",
            metavar="KEY=VALUE",
        ),
        Property(
            "delay",
            "float | dt.timedelta",
            "seconds until it becomes visible, or a timedelta",
            _TIMED,
            key="delay",
            unit="seconds",
            stored="int: ms | how long it stays hidden; counts from the PRODUCE",
            label="Deliver only after, such as 30 s or 10 min",
            flag="Deliver only after TIME.",
            metavar="TIME",
        ),
        Property(
            "deliver_at",
            "float | dt.datetime",
            "the same as a time: seconds since 1970, or an aware datetime",
            ("put",),
            unit="seconds since 1970",
        ),
        Property(
            "ttl",
            "float | dt.timedelta",
            "seconds after which it expires, or a timedelta, instead of the queue's",
            _TIMED,
            key="ttl",
            unit="seconds",
            stored="int: ms | when it expires; counts from the PRODUCE",
            label="Expire after, such as 30 s or 10 min",
            flag="Expire after TIME.",
            metavar="TIME",
        ),
        Property(
            "dedupe_id",
            "str",
            "within the queue's window, a second put of the same id is a duplicate; without a "
            "window it is refused, but ignored by a publish",
            ("put", "put_packed"),
            key="dedupe",
            stored="str | within the queue's `dedupe_window`, a second message of this id is a "
            "DUPLICATE",
            label="Dedupe id",
            flag="Drop the message if ID was put within the dedupe window; with one -m.",
            metavar="ID",
        ),
        Property(
            "codec",
            "str",
            "`bytes`, `text`, `msgpack`, `json`, `command`, `event`, or a name of your own for "
            "bytes",
            ("put", "put_many", "transaction"),
            key="codec",
            stored="str | the format of the body; without it: bytes",
            flag="How bodies are stored; all but text and bytes are given as JSON.",
        ),
        Property(
            "reply_to",
            "str",
            "the queue for a reply; carried along",
            _ONE,
            accessor="The queue to which the producer wants the reply, or None.",
            key="reply_to",
            stored="str | carried along, for a reply",
            flag="The queue for a reply; with one -m.",
            metavar="QUEUE",
        ),
        Property(
            "correlation",
            "str",
            "what the reply is to be recognised by; carried along",
            _ONE,
            accessor="The id by which the producer recognizes the reply, or None.",
            key="corr",
            stored="str | carried along, for a reply",
            flag="What the reply is to be recognised by; with one -m.",
            metavar="ID",
        ),
        Property(
            "confirm",
            "Confirm",
            '`"disk"`: the put returns once the message is on disk; `"memory"`: once it is in the '
            "queue; by default as the queue's option says",
            _TIMED,
            flag="Where messages must be before they are counted.  [default: the queue's option]",
        ),
    )
}

#: The names of the texts that a message has accessors for.
TEXTS: Final = tuple(row.name for row in PROPERTIES.values() if row.accessor)


def properties_of(call: Call) -> tuple[Property, ...]:
    """The properties that a call takes, in the order of its signature."""
    return tuple(row for row in PROPERTIES.values() if call in row.calls)
