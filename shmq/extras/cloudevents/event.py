"""The event: its checked attributes and its data."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from shmq.errors import InvalidOption

#: What an attribute may be; a URI and a reference are texts.
Attribute = str | int | bool | bytes | datetime

#: The version of the specification that is read and written.
SPECVERSION: Final = "1.0"

_NAME: Final = re.compile(r"[a-z0-9]+")
#: What a String must not hold: controls, halves of a surrogate pair, noncharacters.
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_INTEGERS: Final = range(-(1 << 31), 1 << 31)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_MEDIA: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+\s*(;.*)?", re.ASCII)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]+")
_REFERENCE: Final = re.compile(r"[^\s]+")
_JSON: Final = re.compile(r"[^/]+/([^/;]+\+)?json\s*(;.*)?", re.IGNORECASE)


def check_name(name: object) -> str:
    """The name of an attribute. Raises :class:`~shmq.InvalidOption` for any other."""
    if not isinstance(name, str):
        raise TypeError(f"an attribute's name is a str, not {type(name).__name__}")
    if not _NAME.fullmatch(name) or name == "data":
        why = "`data` is not an attribute" if name == "data" else "use a to z and 0 to 9 alone"
        raise InvalidOption(f"attribute {name[:80]!r} cannot have this name: {why}")
    return name


def check_attribute(name: str, value: object) -> Any:
    """The value of an attribute, of ``time`` as a datetime.

    Raises TypeError for a type that no attribute has, and :class:`~shmq.InvalidOption` for a value
    that the attribute cannot have.
    """
    if name == "time":
        return _check_time(value)
    if isinstance(value, str):
        return _check_text(name, value)
    if name in _PATTERNS:
        raise TypeError(f"{name}={value!r:.80} must be a str, not {type(value).__name__}")
    if isinstance(value, bool | bytes):
        return value
    if isinstance(value, int):
        if value not in _INTEGERS:
            raise InvalidOption(f"{name}={value} has more than 32 bits: give it as a str")
        return value
    if isinstance(value, datetime):
        return _check_time(value, name)
    raise TypeError(
        f"{name}={value!r:.80} must be a str, an int, a bool, bytes or a datetime, not "
        f"{type(value).__name__}"
    )


def _check_text(name: str, value: str) -> str:
    pattern, what = _PATTERNS.get(name, (None, ""))
    if name in _PATTERNS and not value:
        raise InvalidOption(f"{name} is empty: {what}")
    found = _FORBIDDEN.search(value)
    if found is not None:
        raise InvalidOption(f"{name}={value[:80]!a} has the character {found[0]!a}: leave it out")
    if pattern is not None and not pattern.fullmatch(value):
        raise InvalidOption(f"{name}={value[:80]!r} is none: {what}")
    return value


#: The form of each attribute that the specification names, and how a refusal tells it.
_PATTERNS: Final[dict[str, tuple[re.Pattern[str] | None, str]]] = {
    "id": (None, "an id that is unique for its source"),
    "source": (_REFERENCE, "a URI or a relative reference without spaces, such as '/shop/orders'"),
    "type": (None, "a name such as 'com.example.order.made'"),
    "specversion": (re.compile(re.escape(SPECVERSION)), f"shmq reads and writes {SPECVERSION}"),
    "datacontenttype": (_MEDIA, "a media type such as 'application/json'"),
    "dataschema": (_URI, "an absolute URI"),
    "subject": (None, "a name within the source; leave it out if there is none"),
}


def _check_time(value: object, name: str = "time") -> datetime:
    if isinstance(value, str):
        value = _parse(name, value)
    if not isinstance(value, datetime):
        raise TypeError(f"{name}={value!r:.80} must be a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise InvalidOption(f"{name}={value} has no time zone: give it one, such as datetime.UTC")
    return value


def _parse(name: str, value: str) -> datetime:
    try:
        if not _TIME.fullmatch(value):
            raise ValueError("it has another form")
        return datetime.fromisoformat(value.upper())
    except ValueError as error:
        raise InvalidOption(
            f"{name}={value[:80]!r} is not an RFC 3339 time like '2026-01-31T10:00:00Z': {error}"
        ) from None


def text_of(value: Attribute) -> str:
    """The one form of the value as a text: section 3.1 of the specification."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def is_json(datacontenttype: str) -> bool:
    """Whether data of that media type is JSON."""
    return _JSON.fullmatch(datacontenttype) is not None


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
