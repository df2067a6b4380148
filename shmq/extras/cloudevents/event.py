"""The event: its checked attributes and its data."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from shmq.errors import InvalidOption
from shmq.extras.cloudevents.attributes import (
    SPECVERSION,
    Attribute,
    check_attribute,
    check_name,
    is_json,
    text_of,
)

_REQUIRED: Final = ("id", "source", "type")
_OPTIONAL: Final = ("datacontenttype", "dataschema", "subject", "time")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvent:
    """One event of CloudEvents 1.0.

    The constructor raises :class:`~shmq.InvalidOption` and TypeError for an attribute that the
    specification does not allow.
    """

    #: Which event of its source it is.
    id: str
    #: Where it happened: a URI, or a reference such as ``/shop/orders``.
    source: str
    #: What happened, such as ``com.example.order.made``.
    type: str
    #: The version of the specification.
    specversion: str = SPECVERSION
    #: The media type of the data; None: not said.
    datacontenttype: str | None = None
    #: The URI of the schema of the data.
    dataschema: str | None = None
    #: What of the source it is about.
    subject: str | None = None
    #: When it happened; a text of RFC 3339 becomes a datetime.
    time: datetime | None = None
    #: What happened: bytes, a str, a value that JSON holds, or None.
    data: Any = None
    #: The other attributes, by name.
    extensions: Mapping[str, Attribute] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*_REQUIRED, "specversion", *_OPTIONAL):
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, check_attribute(name, value))
        if taken := [name for name in self.extensions if name in _KNOWN]:
            raise InvalidOption(f"extension {taken[0]!r} is an attribute of every event")
        checked = {
            check_name(name): check_attribute(name, value)
            for name, value in self.extensions.items()
        }
        object.__setattr__(self, "extensions", checked)

    @classmethod
    def of(cls, event: object) -> CloudEvent:
        """The event that a CloudEvent of the SDK, or a map in the form of JSON, stands for."""
        if isinstance(event, cls):
            return event
        if isinstance(event, Mapping):
            return cls.from_dict(event)
        attributes, data = getattr(event, "get_attributes", None), getattr(event, "get_data", None)
        if not callable(attributes) or not callable(data):
            raise TypeError(
                f"an event is a CloudEvent or a map of its attributes, not {type(event).__name__}"
            )
        return cls._make(attributes(), data())

    @classmethod
    def from_dict(cls, members: Mapping[str, Any]) -> CloudEvent:
        """The event of a map in the form of JSON: attributes, and ``data`` or ``data_base64``.

        A member that is None counts as absent. Raises what the constructor raises.
        """
        given = {name: value for name, value in members.items() if value is not None}
        data, coded = given.pop("data", None), given.pop("data_base64", None)
        if coded is None:
            return cls._make(given, data)
        if data is not None:
            raise InvalidOption("the event has both data and data_base64: give one of them")
        try:
            data = base64.b64decode(coded, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise InvalidOption(f"data_base64 is not Base64: {error}") from None
        return cls._make(given, data)

    @classmethod
    def _make(cls, attributes: Mapping[str, Any], data: Any) -> CloudEvent:
        given = {name: value for name, value in attributes.items() if value is not None}
        if missing := [name for name in _REQUIRED if name not in given]:
            raise InvalidOption(f"the event has no {' and no '.join(missing)}: each event needs it")
        known = {name: given.pop(name) for name in _KNOWN if name in given}
        return cls(**known, data=data, extensions=given)

    def attributes(self) -> dict[str, Attribute]:
        """Every attribute that the event has, the extensions too, by name."""
        own = {name: getattr(self, name) for name in _KNOWN}
        return {name: value for name, value in own.items() if value is not None} | dict(
            self.extensions
        )

    def to_dict(self) -> dict[str, Any]:
        """The event as a map in the form of JSON, application/cloudevents+json."""
        members: dict[str, Any] = {
            name: value if isinstance(value, bool | int) else text_of(value)
            for name, value in self.attributes().items()
        }
        if isinstance(self.data, bytes | bytearray | memoryview):
            members["data_base64"] = base64.b64encode(self.data).decode()
        elif self.data is not None:
            self.check_data()
            members["data"] = self.data
        return members

    def check_data(self) -> None:
        """Raise :class:`~shmq.InvalidOption` for data that is not of its media type."""
        media = self.datacontenttype
        fits = isinstance(self.data, str | bytes | bytearray | memoryview) or self.data is None
        if not fits and media is not None and not is_json(media):
            raise InvalidOption(
                f"data of type {type(self.data).__name__} has the datacontenttype {media!r}: give "
                f"it as bytes or as a str"
            )


_KNOWN: Final = (*_REQUIRED, "specversion", *_OPTIONAL)
