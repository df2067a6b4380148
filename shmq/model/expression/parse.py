"""Parses expressions that select messages, and evaluates them on dead letters.

``reason = 'rejected' and queue = 'orders' and age < 2h``. An expression only compares, and
nothing of it is run as Python. docs/reference/cli.md describes the language.
:mod:`shmq.model.expression.compiler` compiles it for the core.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar

from shmq.api import Message
from shmq.api.message import error_of
from shmq.errors import InvalidOption, ShmqError, to_utf8
from shmq.model.expression.fingerprint import shape_of
from shmq.native import _clock as time
from shmq.suggestions import suggest
from shmq.units import fraction_of, moment_of, seconds_of

#: The most characters of an expression.
LONGEST: Final = 1 << 16

#: The most comparisons of an expression that a server accepts; each value of a list counts.
MOST_REMOTE: Final = 256

#: A comparison has fewer tokens than this, including the word that joins it to the next.
_TOKENS_OF_ONE: Final = 64

#: How deep parentheses and ``not`` may be nested.
_DEEPEST: Final = 50

Kind = Literal["text", "number", "seconds", "bytes", "moment", "any"]
Relation = Literal["=", "<", "<=", ">", ">=", "like"]
Test = Callable[[Any], bool]
T = TypeVar("T")


class _Part(Generic[T]):
    """A part that is read at its first use, as by ``functools.cached_property``.

    That has a lock of the whole class until Python 3.11: another thread of a process may hold it at
    a fork, and the child would wait for it forever.
    """

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self._name = read.__name__

    def __get__(self, asked: Any, kind: type) -> T:
        found = vars(asked)[self._name] = self._read(asked)
        return found


class Asked:
    """The message or record that an expression is evaluated on; each part is read lazily, once."""

    def __init__(self, what: Any, now: float) -> None:
        self.what = what
        self.now = now

    @_Part
    def raw(self) -> bytes:
        """The bytes of its body."""
        with self.what.view as view:
            return bytes(view)

    @_Part
    def shape(self) -> str:
        """The shape of its body."""
        return shape_of(self.what.codec, self.raw)

    @_Part
    def body(self) -> Any:
        """Its body; None if its codec cannot decode it."""
        try:
            return self.what.body
        except (ShmqError, ValueError, TypeError, RecursionError):
            return None

    @_Part
    def headers(self) -> Mapping[str, Any]:
        """Its headers; none if they are damaged."""
        try:
            headers: Mapping[str, Any] = self.what.headers
        except ShmqError:
            return {}
        return headers

    def part(self, path: tuple[str, ...]) -> Any:
        """The value in the body under the nested keys; None if there is none."""
        value = self.body
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value


class _Letter(Asked):
    """A dead letter, or any other message."""

    what: Message

    @_Part
    def dead(self) -> Any:
        return self.what.dead

    @_Part
    def error(self) -> Any:
        return error_of(self.what)


class Field(NamedTuple):
    """A field to compare; ``path``: a header's name, or the keys within a body."""

    name: str
    kind: Kind
    read: Callable[[Any], Any]
    path: tuple[str, ...] = ()


#: The fields of an expression, by name.
Fields = Mapping[str, Field]


class Comparison(NamedTuple):
    """A field and a value; None is null, and only for ``=``."""

    field: Field
    relation: Relation
    value: str | int | float | bool | None


class Not(NamedTuple):
    """True if its part is not."""

    part: Node


class Joined(NamedTuple):
    """True if all of its parts are (``and``), or any (``or``)."""

    word: Literal["and", "or"]
    parts: tuple[Node, ...]


#: A parsed expression.
Node = Comparison | Not | Joined

_FIELDS: Final[dict[str, Field]] = {
    field.name: field
    for field in (
        Field("reason", "text", lambda letter: letter.dead and letter.dead.reason),
        Field("queue", "text", lambda letter: letter.dead and letter.dead.queue),
        Field("error", "text", lambda letter: letter.error and str(letter.error)),
        Field("codec", "text", lambda letter: letter.what.codec),
        Field("group", "text", lambda letter: letter.what.group),
        Field("correlation", "text", lambda letter: letter.what.correlation),
        Field("shape", "text", lambda letter: letter.shape),
        Field("deliveries", "number", lambda letter: letter.dead and letter.dead.deliveries),
        Field("priority", "number", lambda letter: letter.what.priority),
        Field("sequence", "number", lambda letter: letter.what.sequence),
        Field("size", "bytes", lambda letter: len(letter.raw)),
        Field("age", "seconds", lambda letter: letter.dead and letter.now - letter.dead.at),
        Field("at", "moment", lambda letter: letter.dead and letter.dead.at),
    )
}

_MEASURES: Final[dict[str, Callable[[str], float | None]]] = {
    "seconds": seconds_of,
    "bytes": fraction_of,
}

#: The form of a value of each kind, for error texts.
_FORMS: Final[dict[Kind, str]] = {
    "text": "a text such as 'orders'",
    "number": "a number such as 3",
    "seconds": "a time such as 30s, 5m, 2h or 1d",
    "bytes": "a size such as 4096 or 64KiB",
    "moment": "a moment such as '2026-01-31T12:00:00Z'",
    "any": "a text, a number, true, false or null",
}

_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*')
      | (?P<number>-?[0-9]{1,18}(?:\.[0-9]{1,9})?)(?P<unit>[A-Za-z]*)
      | (?P<word>[A-Za-z_][A-Za-z0-9_-]*)
      | (?P<sign><=|>=|!=|=|<|>|\(|\)|,|\.)
    )""",
    re.VERBOSE | re.ASCII,
)

_WORDS: Final = ("and", "or", "not", "in", "like", "true", "false", "null")


class _Token(NamedTuple):
    kind: Literal["text", "number", "word", "sign", "end"]
    text: str
    unit: str
    at: int

    @property
    def word(self) -> str:
        """The token as a word of the language, in lower case; empty for a text."""
        return self.text.lower() if self.kind in ("word", "sign") else ""

    @property
    def shown(self) -> str:
        return repr(self.text + self.unit) if self.kind != "end" else "the end"


class Expression(Generic[T]):
    """A condition that selects messages or records.

    Raises :class:`~shmq.InvalidOption` for one that cannot be parsed, with the position and
    what is expected there, and for one of more than ``most`` comparisons.
    """

    _fields: ClassVar[Fields]
    _asked: ClassVar[type[Asked]]

    def __init__(self, text: str, most: int | None = None) -> None:
        self.text = text
        self._test = _test_of(parse(text, self._fields, most))

    def matches(self, what: T, now: float | None = None) -> bool:
        """Whether the expression is true of it; ``now`` is in seconds since 1970."""
        return self._test(self._asked(what, time.time() if now is None else now))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class Where(Expression[Message]):
    """An expression that selects dead letters.

    The message must be a copy, or leased, since its body is read. If it is not a dead letter,
    the reason, the queue, the deliveries and the times are null.
    """

    _fields = _FIELDS
    _asked = _Letter


def parse(text: str, fields: Fields = _FIELDS, most: int | None = None) -> Node:
    """Parse an expression over these fields, headers and bodies; by default a message's fields.

    ``most``: how many comparisons it may have. Raises :class:`~shmq.InvalidOption` as
    :class:`Where` does.
    """
    if not isinstance(text, str):
        raise TypeError(f"where={text!r:.80} must be a str, not {type(text).__name__}")
    if len(text) > LONGEST:
        raise InvalidOption(f"where has {len(text)} characters: it may have {LONGEST} at most")
    to_utf8("where", text)
    return _Parser(text, fields, most).parse()


def quoted(text: str) -> str:
    """A text as a literal of an expression."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


class _Parser:
    """Parses an expression, token by token."""

    def __init__(self, text: str, fields: Fields, most: int | None) -> None:
        self._text = text
        self._fields = fields
        self._most = most
        self._terms = 0
        self._tokens = self._split(text)
        self._next = 0
        self._deep = 0

    def parse(self) -> Node:
        node = self._parse_or()
        if self._token.kind != "end":
            raise self._make_error("'and' or 'or'")
        return node

    # ---- the language ----

    def _parse_or(self) -> Node:
        return self._join("or", self._parse_and)

    def _parse_and(self) -> Node:
        return self._join("and", self._parse_one)

    def _join(self, word: Literal["and", "or"], part: Callable[[], Node]) -> Node:
        nodes = [part()]
        while self._accept(word):
            nodes.append(part())
        return nodes[0] if len(nodes) == 1 else Joined(word, tuple(nodes))

    def _parse_one(self) -> Node:
        if self._deep == _DEEPEST:
            raise self._reject(f"more than {_DEEPEST} parentheses and 'not' in each other")
        self._deep += 1
        try:
            if self._accept("not"):
                return Not(self._parse_one())
            if self._accept("("):
                node = self._parse_or()
                self._expect(")")
                return node
            return self._parse_comparison()
        finally:
            self._deep -= 1

    def _parse_comparison(self) -> Node:
        field = self._parse_field()
        if self._accept("not"):
            return Not(self._parse_in(field, "'in' or 'like'"))
        if self._token.word in ("=", "!="):
            negated = self._advance().word == "!="
            equal = Comparison(field, "=", self._parse_value(field.kind, null=True))
            return Not(equal) if negated else equal
        relation: Any = self._token.word
        if relation in _ORDER:
            if field.kind == "text":
                raise self._reject("a text has no order here: use =, !=, in or like")
            self._advance()
            return Comparison(field, relation, self._parse_value(field.kind))
        return self._parse_in(field, "=, !=, <, <=, >, >=, 'in' or 'like'")

    def _parse_in(self, field: Field, expected: str) -> Node:
        if self._accept("in"):
            self._expect("(")
            nodes = [Comparison(field, "=", self._parse_value(field.kind, null=True))]
            while self._accept(","):
                nodes.append(Comparison(field, "=", self._parse_value(field.kind, null=True)))
            self._expect(")")
            return nodes[0] if len(nodes) == 1 else Joined("or", tuple(nodes))
        if self._accept("like"):
            if field.kind not in ("text", "any"):
                raise self._reject(f"'like' is for texts, and this is {_FORMS[field.kind]}")
            return Comparison(field, "like", self._parse_value("text"))
        raise self._make_error(expected)

    def _parse_field(self) -> Field:
        token = self._token
        if token.kind != "word" or token.word in _WORDS:
            raise self._make_error("a field")
        name = self._advance().text
        if name == "header":
            (key,) = self._parse_path(most=1)
            return Field(name, "any", lambda letter: letter.headers.get(key), (key,))
        if name == "body":
            path = self._parse_path(most=20)
            return Field(name, "any", lambda letter: letter.part(path), path)
        if name not in self._fields:
            known = [*self._fields, "header.NAME", "body.KEY"]
            raise self._reject(f"field {name!r} does not exist: {suggest(name, known)}", token)
        return self._fields[name]

    def _parse_path(self, most: int) -> tuple[str, ...]:
        path: list[str] = []
        while self._token.word == "." or not path:
            self._expect(".")
            if self._token.kind not in ("word", "text"):
                raise self._make_error(
                    "a name, in quotes if it has other than letters, digits, _ and -"
                )
            if len(path) == most:
                raise self._reject(f"a path of more than {most} names: quote one with dots in it")
            path.append(_unquote(self._advance()))
        return tuple(path)

    def _parse_value(self, kind: Kind, *, null: bool = False) -> Any:
        token = self._token
        self._terms += 1
        if self._most is not None and self._terms > self._most:
            raise self._make_too_many()
        if null and token.word == "null":
            self._advance()
            return None
        value = _VALUES[kind](token)
        if value is None:
            raise self._make_error(_FORMS[kind])
        self._advance()
        return value

    def _make_too_many(self) -> InvalidOption:
        return InvalidOption(
            f"where has more than {self._most} comparisons, each value of an 'in' list being one: "
            f"a server takes {self._most} at most"
        )

    # ---- tokens ----

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            if self._most is not None and len(tokens) > self._most * _TOKENS_OF_ONE:
                raise self._make_too_many()
            found = _TOKEN.match(text, at)
            if found is None:
                place = at + len(text[at:]) - len(text[at:].lstrip())
                what = "a quote that is not closed" if text[place] == "'" else repr(text[place])
                raise InvalidOption(f"where, at character {place + 1}: {what} cannot stand there")
            kind: Any = found.lastgroup if found.lastgroup != "unit" else "number"
            tokens.append(_Token(kind, found[kind], found["unit"] or "", found.start(kind)))
            at = found.end()
        return [*tokens, _Token("end", "", "", end)]

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _advance(self) -> _Token:
        token = self._token
        self._next += 1
        return token

    def _accept(self, text: str) -> bool:
        """Consume the next token if it is this word; a quoted text is none."""
        if self._token.word == text:
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._make_error(repr(text))

    def _make_error(self, expected: str) -> InvalidOption:
        return self._reject(f"{expected} is expected, not {self._token.shown:.80}")

    def _reject(self, why: str, token: _Token | None = None) -> InvalidOption:
        return InvalidOption(f"where, at character {(token or self._token).at + 1}: {why}")


# ---- values ----


def _unquote(token: _Token) -> str:
    return token.text[1:-1].replace("''", "'") if token.kind == "text" else token.text


def _text(token: _Token) -> str | None:
    return _unquote(token) if token.kind == "text" else None


def _number(token: _Token) -> int | float | None:
    if token.kind != "number" or token.unit:
        return None
    return float(token.text) if "." in token.text else int(token.text)


def _measure(kind: str, token: _Token) -> float | None:
    if token.kind != "number":
        return None
    found = _MEASURES[kind](token.text.removeprefix("-") + token.unit)
    return -found if found is not None and token.text.startswith("-") else found


def _parse_moment(token: _Token) -> float | None:
    """Seconds since 1970; without a zone it is UTC."""
    if token.kind != "text":
        return None
    found = moment_of(_unquote(token))
    return None if found is None else found.timestamp()


def _parse_constant(token: _Token) -> Any:
    if token.kind == "word":
        return {"true": True, "false": False}.get(token.word)
    return _text(token) if token.kind == "text" else _number(token)


_VALUES: Final[dict[Kind, Callable[[_Token], Any]]] = {
    "text": _text,
    "number": _number,
    "seconds": functools.partial(_measure, "seconds"),
    "bytes": functools.partial(_measure, "bytes"),
    "moment": _parse_moment,
    "any": _parse_constant,
}


# ---- tests ----


def _test_of(node: Node) -> Test:
    if isinstance(node, Not):
        return _negate(_test_of(node.part))
    if isinstance(node, Joined):
        join = any if node.word == "or" else all
        tests = [_test_of(part) for part in node.parts]
        return lambda letter: join(test(letter) for test in tests)
    read, value = node.field.read, node.value
    if node.relation == "=":
        return _make_equals(read, value)
    if node.relation == "like":
        assert isinstance(value, str)
        return _make_like(read, value)
    return _make_ordered(read, _ORDER[node.relation], value)


def _negate(test: Test) -> Test:
    return lambda letter: not test(letter)


def _make_equals(read: Callable[[Any], Any], value: Any) -> Test:
    if value is None:
        return lambda letter: read(letter) is None
    return lambda letter: _is_comparable(found := read(letter), value) and bool(found == value)


def _make_ordered(
    read: Callable[[Any], Any], compare: Callable[[Any, Any], bool], value: Any
) -> Test:
    return lambda letter: _is_comparable(found := read(letter), value) and compare(found, value)


def _is_comparable(one: Any, other: Any) -> bool:
    """Whether two values can be compared: true is not 1, and a text is not a number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool)
    if isinstance(one, int | float):
        return isinstance(other, int | float)
    return isinstance(one, str) and isinstance(other, str)


def _make_like(read: Callable[[Any], Any], pattern: str) -> Test:
    """``%`` stands for any text; every other character stands for itself."""
    first, *rest = pattern.split("%")

    def test(letter: _Letter) -> bool:
        found = read(letter)
        if not isinstance(found, str):
            return False
        if not rest:
            return found == first
        if not found.startswith(first):
            return False
        at, end = len(first), len(found) - len(rest[-1])
        for part in rest[:-1]:
            place = found.find(part, at, max(at, end))
            if place < 0:
                return False
            at = place + len(part)
        return at <= end and found.endswith(rest[-1])

    return test
