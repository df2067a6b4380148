"""Tokens: how a client authenticates, and what it may then do to which names.

A token is 256 random bits as text. The server stores only its SHA-256. A slow hash, as for
passwords, would protect nothing: 256 random bits cannot be guessed, and any client could make
the server compute it. So a token must be random, and one that is too short for that is refused.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from shmq.errors import InvalidOption
from shmq.protocol.opcodes import Right

ALL_RIGHTS: Final = Right.PRODUCE | Right.CONSUME | Right.ADMIN

#: A bit beside the engine's rights to a stream: the token has a right to one of its groups.
KNOWN: Final = 1 << 7
assert not KNOWN & ALL_RIGHTS

#: The shortest token that is accepted, in characters: 128 bits in hexadecimal.
LEAST_TOKEN: Final = 32

#: The prefix of every generated token, so that secret scanners find it.
_PREFIX: Final = "shmq_"
_ALGORITHM: Final = "sha256:"
_HASH: Final = re.compile(rf"{_ALGORITHM}[0-9a-f]{{64}}\Z", re.ASCII)
_PART: Final = r"[A-Za-z0-9._:*?\[\]!-]{1,200}"
_PATTERN: Final = re.compile(rf"{_PART}(/{_PART})?\Z", re.ASCII)


def make_token() -> str:
    """A new random token."""
    return _PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """The hash that the server stores. Raises :class:`~shmq.InvalidOption` for a short token."""
    if len(token) < LEAST_TOKEN:
        raise InvalidOption(
            f"a token of {len(token)} characters can be guessed: use {LEAST_TOKEN} or more that "
            f"are random, such as `shmq token` makes"
        )
    return _ALGORITHM + _compute_digest(token).hex()


def _compute_digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What one token allows: patterns of names for each right.

    ``*`` stands for any characters, ``?`` for one, ``[ab]`` for one of those. A pattern covers
    queues, exchanges, and streams with all their consumer groups; ``STREAM/GROUP`` covers
    groups only. No right includes another. Raises :class:`~shmq.InvalidOption`, and TypeError
    for a value of the wrong type; neither names a secret.
    """

    #: The token's name in the log.
    name: str
    #: ``sha256:`` and 64 hexadecimal digits, as :func:`hash_of` returns it.
    hash: str = dataclasses.field(repr=False)
    #: The names it may put messages or append records to.
    produce: Sequence[str] = ()
    #: The names it may get from, settle and read; with a group, as a member of that group.
    consume: Sequence[str] = ()
    #: The names it may create, delete, purge and redrive; the groups it may delete and reset.
    admin: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.hash, str):
            raise TypeError("a token's name and hash must be of type str")
        if not self.name.isprintable() or not 1 <= len(self.name) <= 100:
            raise InvalidOption(f"name={self.name[:120]!r} must be 1 to 100 printable characters")
        if not _HASH.match(self.hash):
            raise InvalidOption(
                f"the hash of token {self.name!r} is not {_ALGORITHM} and 64 hexadecimal digits: "
                f"`shmq token` prints it"
            )
        for right in ("produce", "consume", "admin"):
            object.__setattr__(self, right, self._check(right))

    def _check(self, right: str) -> tuple[str, ...]:
        patterns = getattr(self, right)
        if isinstance(patterns, str) or not isinstance(patterns, Sequence):
            raise TypeError(
                f"{right}={patterns!r} of token {self.name!r} must be a list of name patterns"
            )
        for pattern in patterns:
            if not isinstance(pattern, str) or not _PATTERN.match(pattern):
                raise InvalidOption(
                    f"{right}: {pattern!r} of token {self.name!r} is not a pattern of names: "
                    f"use the characters of a name, and * ? [ ] !, or STREAM/GROUP of these"
                )
            if right == "produce" and "/" in pattern:
                raise InvalidOption(
                    f"produce: {pattern!r} of token {self.name!r} names a group, into which "
                    f"nothing can be put: name the stream"
                )
        return tuple(patterns)

    def rights(self, name: str) -> int:
        """The token's rights to the queue or exchange, as the engine's bits."""
        return self._find(lambda pattern: "/" not in pattern and _is_match(name, pattern))

    def stream_rights(self, stream: str, group: str | None = None) -> int:
        """The token's rights to the stream, or to that group of it.

        A token that may consume as a member of a group may read the stream; one with any right
        to a group may know that the stream exists.
        """

        def fits(pattern: str) -> bool:
            of_stream, slash, of_group = pattern.partition("/")
            if slash and (group is None or not _is_match(group, of_group)):
                return False
            return _is_match(stream, of_stream)

        def fits_a_group(pattern: str) -> bool:
            of_stream, slash, _ = pattern.partition("/")
            return bool(slash) and _is_match(stream, of_stream)

        found = self._find(fits)
        if group is None and (of_groups := self._find(fits_a_group)):
            found |= of_groups & Right.CONSUME | KNOWN
        return found

    def _find(self, fits: Callable[[str], bool]) -> int:
        """The rights with a pattern for which ``fits`` is true, as the engine's bits."""
        found = 0
        for right, patterns in (
            (Right.PRODUCE, self.produce),
            (Right.CONSUME, self.consume),
            (Right.ADMIN, self.admin),
        ):
            if any(map(fits, patterns)):
                found |= right
        return found


def _is_match(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern)


class AccessList:
    """The tokens that a server accepts. Without any, it accepts every client."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = [(bytes.fromhex(token.hash[len(_ALGORITHM) :]), token) for token in tokens]

    @property
    def ask(self) -> bool:
        """Whether clients must show a token."""
        return bool(self._tokens)

    def has(self, token: Token) -> bool:
        """Whether this very token, with these rights, is accepted."""
        return any(token == known for _, known in self._tokens)

    def find(self, shown: str) -> Token | None:
        """The token that was shown, or None. Takes the same time for every token."""
        digest = _compute_digest(shown)
        found = None
        for known, token in self._tokens:
            if hmac.compare_digest(digest, known):
                found = token
        return found
