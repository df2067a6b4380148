"""Keys and values of tables, as their callers give them and as they are stored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgpack

from shmq.api.options import check_whole
from shmq.api.table import MAX_KEY, MAX_KEYS, MAX_TTL, MAX_VALUE
from shmq.errors import InvalidOption, MessageTooLarge
from shmq.model.codec.codecs import CODECS, Default, decode_body, encode_body
from shmq.native._core import check_seconds

_MSGPACK: Final = CODECS.index("msgpack")
_LEAST_INTEGER: Final = -(1 << 63)
_MOST_INTEGER: Final = (1 << 63) - 1
#: Of integers; `msgpack.packb` makes a packer for each.
_pack: Final = msgpack.Packer().pack
#: The least ttl, in seconds.
_SHORTEST: Final = 0.001


class Stored(NamedTuple):
    """A value as it is stored: its codec's number, and the encoded bytes."""

    codec: int
    raw: bytes


class Terms(NamedTuple):
    """The terms of an increment."""

    #: What the sum is compared with; None: no bound.
    least: int | None = None
    most: int | None = None
    sum_with: tuple[str, ...] = ()
    #: Whether a key that is not there is created.
    create: bool = True
    #: Whether the ttl is that of a key that is there, too.
    renew: bool = True

    def allow(self, total: int) -> bool:
        """Whether that sum is within the bounds."""
        return (self.least is None or total >= self.least) and (
            self.most is None or total <= self.most
        )


#: Of an increment that names none.
USUAL_TERMS: Final = Terms()


def check_key(key: object, what: str = "key") -> str:
    """Return ``key`` if it is one. Raises InvalidOption, and TypeError if it is not a str."""
    if not isinstance(key, str):
        raise TypeError(f"a {what} must be a str, not {type(key).__name__}")
    if not 1 <= len(key) <= MAX_KEY:
        raise InvalidOption(
            f"{key[:80]!r} is not a {what}: it has {len(key)} characters; use 1 to {MAX_KEY}"
        )
    return _check_text(key, what)


def check_keys(keys: Iterable[str], what: str = "keys") -> list[str]:
    """The keys, each once and checked. Raises as `check_key`; one str stands for no list."""
    if isinstance(keys, str | bytes):
        raise TypeError(f"{what}={keys[:80]!r} must be keys, not a {type(keys).__name__}")
    return list(dict.fromkeys(map(check_key, keys)))


def check_prefix(text: object, what: str) -> str:
    """Return ``text``, which may be empty. Raises as `check_key`."""
    return "" if text == "" and isinstance(text, str) else check_key(text, what)


def _check_text(text: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidOption(
            f"{text[:80]!a} is not a {what}: it cannot be encoded as UTF-8"
        ) from None
    return text


def check_ttl(ttl: float | None) -> float | None:
    """Return the ttl in seconds, or None. Raises InvalidOption, TypeError."""
    if ttl is None:
        return None
    try:
        seconds = check_seconds("ttl", ttl, _SHORTEST)
    except InvalidOption:
        seconds = math.inf  # it names the range of other times
    if seconds > MAX_TTL:
        raise InvalidOption(
            f"ttl={ttl} s is out of range: {_SHORTEST} to {MAX_TTL:.0f} s, or None: for ever"
        )
    return seconds


def check_limit(limit: int) -> int:
    """Return the limit of `Table.keys`. Raises InvalidOption, TypeError."""
    return check_whole("limit", limit, 1, MAX_KEYS)


def check_most(most: int | None) -> int | None:
    """Return how many keys `Table.clear` deletes; None: all. Raises InvalidOption, TypeError."""
    return None if most is None else check_whole("most", most, 1)


def check_by(name: str, value: object) -> int:
    """Return an integer of an increment. Raises InvalidOption, TypeError."""
    if type(value) is int and _LEAST_INTEGER <= value <= _MOST_INTEGER:
        return value  # the usual one, at once
    return check_whole(name, value, _LEAST_INTEGER, _MOST_INTEGER)


def check_stored(stored: Stored) -> Stored:
    """Return a value that came over the wire. Raises InvalidOption, TypeError, MessageTooLarge."""
    check_whole("codec", stored.codec, 0, len(CODECS) - 1)
    if not isinstance(stored.raw, bytes):
        raise TypeError(f"a value must be bytes, not {type(stored.raw).__name__}")
    return _check_size(stored)


def _check_size(stored: Stored) -> Stored:
    if len(stored.raw) > MAX_VALUE:
        raise MessageTooLarge(
            f"the value has {len(stored.raw)} bytes, and may have {MAX_VALUE}: put large results "
            f"into files, and their names into the table"
        )
    return stored


def encoded(value: Any, default: Default | None = None) -> Stored:
    """The value as it is stored. Raises MessageTooLarge, and TypeError if no codec exists."""
    raw, codec = encode_body(value, None, default)
    return _check_size(Stored(codec, bytes(raw)))


def encoded_integer(value: int) -> Stored:
    """An integer of 64 bits as it is stored."""
    return Stored(_MSGPACK, _pack(value))


def encoded_all(mapping: Mapping[str, Any], default: Default | None) -> dict[str, Stored]:
    """The keys, checked, with their encoded values. Raises as `check_key` and `encoded`."""
    if not isinstance(mapping, Mapping):
        raise TypeError(f"mapping={mapping!r:.80} must be a map, not {type(mapping).__name__}")
    return {check_key(key): encoded(value, default) for key, value in mapping.items()}


def decoded(stored: Stored) -> Any:
    """The value. Raises ShmqError if its bytes are not of its codec."""
    return decode_body(stored.raw, stored.codec, CODECS[stored.codec])


def integer_of(key: str, stored: Stored) -> int:
    """The integer that is stored under the key. Raises InvalidOption if it is none."""
    value = decode_body(stored.raw, _MSGPACK, "msgpack") if stored.codec == _MSGPACK else None
    if not isinstance(value, int) or isinstance(value, bool):
        kind = type(decoded(stored)).__name__
        raise InvalidOption(f"the value of {key!r} is a {kind}, and only an int is incremented")
    return value


def check_sum(key: str, value: int) -> int:
    """Return the new integer, if 64 bits hold it. Raises InvalidOption."""
    if not _LEAST_INTEGER <= value <= _MOST_INTEGER:
        raise InvalidOption(f"the value of {key!r} would be {value}, more than 64 bits hold")
    return value


def check_sum_with(key: str, sum_with: Iterable[str]) -> tuple[str, ...]:
    """The other keys of an increment's sum. Raises InvalidOption, TypeError."""
    others = check_keys(sum_with, "sum_with")
    if key in others or len(others) > MAX_KEYS:
        raise InvalidOption(
            f"sum_with must name up to {MAX_KEYS} other keys than {key!r}, and names {len(others)}"
        )
    return tuple(others)
