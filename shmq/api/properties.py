"""The properties of a message: the table of the arguments that describe one message of a put.

From the table tools/options.py generates the typed keywords of the calls, the fields of the console
and the tables of the documents; the handles, the codecs and the flags of the command line read it.
The C core and native/properties.pxi name the stored keys again, because they check and pack them. A
test compares the signatures of :class:`shmq.Queue` with it. Its order is that of the signatures.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

#: A call that takes properties by name; ``aput``, ``loan`` and a pipeline take those of ``put``.
Call = Literal["put", "put_many", "put_packed"]

#: The calls that put one body, and those that put many with the same properties.
_ONE: Final[tuple[Call, ...]] = ("put",)
_ALL: Final[tuple[Call, ...]] = ("put", "put_many", "put_packed")


@dataclasses.dataclass(frozen=True, slots=True)
class Property:
    """A row of the table."""

    name: str
    #: The type of its values besides None, which stands for the default, as Python source.
    type: str
    #: The meaning, as Markdown.
    text: str
    #: The calls that take it.
    calls: tuple[Call, ...] = _ALL
    #: Its key in the stored properties of a message. Empty: it is not stored.
    key: str = ""
    #: The unit of a number: a time span, which is stored in ms, or a time since 1970.
    unit: Literal["", "seconds", "seconds since 1970"] = ""
    #: What the protocol says of the key, as Markdown: its type and its meaning.
    stored: str = ""
    #: The help of its flag on the command line. Empty: it has no flag.
    flag: str = ""
    #: The placeholder for the flag's value. Empty: its choices.
    metavar: str = ""

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
            "int",
            "higher is served first; the middle one by default",
            key="pri",
            stored="int | 0 to the queue's priorities - 1; higher is served first; by default "
            "priorities // 2",
            flag="A higher priority is delivered first.  [default: the middle one]",
            metavar="N|low|normal|high",
        ),
        Property(
            "group",
            "str",
            "one message of a group is in flight at a time, in the queue's order",
            key="group",
            stored="str | one message of a group is leased at a time, in the queue's order; a "
            "message that was returned with a delay holds its group back",
            flag="The group: its messages are delivered in order, one at a time.",
            metavar="NAME",
        ),
        Property(
            "headers",
            "Mapping[str, Any]",
            "a map of whatever msgpack holds",
            key="headers",
            stored="map | application data",
            flag="A header; may be repeated.",
            metavar="KEY=VALUE",
        ),
        Property(
            "delay",
            "float",
            "seconds until it becomes visible",
            key="delay",
            unit="seconds",
            stored="int: ms | how long it stays hidden; counts from the PRODUCE",
            flag="Deliver only after TIME.",
            metavar="TIME",
        ),
        Property(
            "deliver_at",
            "float",
            "the same as a time, in seconds since 1970",
            _ONE,
            unit="seconds since 1970",
        ),
        Property(
            "ttl",
            "float",
            "seconds after which it expires, instead of the queue's",
            key="ttl",
            unit="seconds",
            stored="int: ms | when it expires; counts from the PRODUCE",
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
            flag="Drop the message if ID was put within the dedupe window; with one -m.",
            metavar="ID",
        ),
        Property(
            "codec",
            "str",
            "`bytes`, `text`, `msgpack`, `json`, `command`, `event`, or a name of your own for "
            "bytes",
            ("put", "put_many"),
            key="codec",
            stored="str | the format of the body; without it: bytes",
            flag="How bodies are stored; all but text and bytes are given as JSON.",
        ),
        Property(
            "reply_to",
            "str",
            "the queue for a reply; carried along",
            _ONE,
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
            flag="Where messages must be before they are counted.  [default: the queue's option]",
        ),
    )
}


def properties_of(call: Call) -> tuple[Property, ...]:
    """The properties that a call takes, in the order of its signature."""
    return tuple(row for row in PROPERTIES.values() if call in row.calls)
