"""The names of queues and namespaces, and the file names made of them in /dev/shm."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from shmq.errors import InvalidName, InvalidOption
from shmq.lazy_imports import late_imports
from shmq.native._core import MAX_NAME

#: The directory of all segments: shm_overview(7).
SHM: Final = Path("/dev/shm")

_ALLOWED = re.compile(rf"[A-Za-z0-9._:-]{{1,{MAX_NAME}}}\Z", re.ASCII)

#: The group of users before the name of a namespace: what groupadd(8) allows, and no gid.
_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,31}\Z", re.ASCII)

#: A character that no name has.
_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9._:-]")

_NO_GROUP: Final = (
    "before '/' is the name of a group of this host (getent group), of 1 to 32 of A-Z, a-z, 0-9, "
    "'.', '_' and '-', which begins with a letter or '_'"
)

#: What nothing can be named: the names of the entries of every directory.
_DIRECTORIES: Final = frozenset({".", ".."})

#: The bytes that an escape does not have as they are; a colon begins one.
_ESCAPED = re.compile(rb"[^A-Za-z0-9._-]")

_ESCAPE = re.compile(rb":([0-9A-F]{2})")

#: An escape that was cut short.
_CUT_ESCAPE = re.compile(r":[0-9A-F]?\Z")

_SUFFIX = ".dlq"

#: The longest text that `escape_name` accepts, in bytes of UTF-8.
MAX_TEXT: Final = 1024

#: The longest name after which ``.dlq`` fits, and the longest escape, without a ``.dlq``.
_LONGEST_STEM: Final = MAX_NAME - len(_SUFFIX)

#: How many characters of a long text's escape its name starts with: `staging_name` adds 16 to it.
_READABLE: Final = 48

#: The name of a long text. No escape has two colons in a row, so no other text has such a name.
_HASHED = re.compile(
    rf"[A-Za-z0-9._:-]{{{_READABLE - 2},{_READABLE}}}::[0-9a-f]{{32}}(?:\.dlq)?\Z", re.ASCII
)

#: The texts of hashed names that this process knows, the newest last.
_texts: Final[dict[str, str]] = {}
_MOST_TEXTS: Final = 10_000

_STAGED = re.compile(r"(.+)\.staged\.[0-9a-f]{8}\Z", re.ASCII)

#: The queues of a lock: see `shmq.client.handles.lock`. No escape has two colons in a row.
LOCK_PERMITS: Final = "lock::"
LOCK_LINE: Final = "line::"
LOCK_INBOX: Final = "turn::"

_REPLY = re.compile(r"reply\.[0-9a-f]{16}\Z", re.ASCII)


def check_move(source: str, target: str) -> None:
    """Raise what `check_name` raises, and InvalidOption if a queue would move to itself."""
    if check_name(target) == source:
        raise InvalidOption(f"queue {source!r} cannot move its messages to itself")


def check_name(name: str, what: str = "queue") -> str:
    """Return ``name``, as a plain str, if it may name a ``what``.

    Raises :class:`InvalidName` if not, and TypeError if it is not a str.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of the {what} must be a str, not {type(name).__name__}")
    name = str.__str__(name)  # of a subclass, such as an Enum's
    noun, mark, source = what.partition(" (")  # the source of the name, if it is known
    if noun == "namespace" and "/" in name:
        group, _, own = name.rpartition("/")
        if not _GROUP.match(group):
            raise InvalidName(f"invalid {noun} name {name[:120]!r}{mark}{source}: {_NO_GROUP}")
        check_name(own, what)
        return name
    if not _ALLOWED.match(name):
        why = _explain_invalid(name)
        raise InvalidName(f"invalid {noun} name {name[:120]!r}{mark}{source}: {why}")
    if name in _DIRECTORIES:
        raise InvalidName(
            f"invalid {noun} name {name!r}{mark}{source}: every directory has an entry of that name"
        )
    return name


def check_group(group: str) -> str:
    """Return ``group`` if a group of users may have that name. Raises InvalidName and TypeError."""
    if not isinstance(group, str):
        raise TypeError(f"group must be the name of a group, a str, not {type(group).__name__}")
    if not _GROUP.match(group):
        raise InvalidName(f"invalid group name {group[:120]!r}: {_NO_GROUP}")
    return group


def group_of(namespace: str) -> str | None:
    """The group of users that share the namespace, which is ``GROUP/NAME``; None: it has none."""
    group, mark, _ = namespace.partition("/")
    return group if mark else None


def name_in_group(namespace: str) -> str:
    """The name of the namespace without its group."""
    return namespace.rpartition("/")[2]


def _explain_invalid(name: str) -> str:
    """Why ``name``, which is not valid, is not, and what is."""
    wrong = _FORBIDDEN.search(name)
    if wrong is None:
        why = f"it has {len(name)} characters"
    else:
        why = f"{_describe_character(wrong[0])} at position {wrong.start() + 1} is not allowed"
    valid = f"1 to {MAX_NAME} of A-Z, a-z, 0-9, '.', '_', ':' and '-'"
    escape = ""
    if 0 < len(name) <= _READABLE:
        with contextlib.suppress(InvalidName):
            escape = f", such as {escape_name(name)!r}, its form by escape_name"
    return f"{why}; use {valid}{escape}"


def _describe_character(character: str) -> str:
    """A character with its code point and its name, unless it is plain ASCII."""
    if character.isascii() and character.isprintable():
        return repr(character)
    with late_imports:
        import unicodedata  # noqa: PLC0415 - only for this error

    name = unicodedata.name(character, "")
    return f"{character!r} (U+{ord(character):04X}{name and ' '}{name})"


def escape_name(text: str) -> str:
    """A name for any text: a valid name as is; of another text, ``:XX`` for each byte and ``:``.

    Other systems allow ``@``, ``/`` or spaces in names; `unescape_name` reverses it.
    ``"celery@host"`` becomes ``"celery:40host"``. A text whose name would have over 96 characters
    is named by its beginning, ``::`` and a hash of 128 bits, so that texts that differ have names
    that differ, and each has room for its dead-letter queue's: the name of ``TEXT.dlq`` is that of
    ``TEXT`` and ``.dlq``. A valid name of over 96 characters stays, too: its queue has to set
    ``dead_letter``. One that is the name of another text is escaped. Raises
    :class:`~shmq.InvalidName` for a text that is empty, over 1,024 bytes, or not UTF-8.
    """
    if not isinstance(text, str):
        raise TypeError(f"a text to name something by must be a str, not {type(text).__name__}")
    if _ALLOWED.match(text) and text not in _DIRECTORIES and not _is_escape(text):
        return text
    stem = stem_of(text)
    try:
        escaped = _escape(stem)
    except UnicodeEncodeError as error:
        raise InvalidName(f"invalid queue name {text[:120]!r}: it is not UTF-8: {error}") from None
    size = len(stem.encode())
    if size > MAX_TEXT:
        raise InvalidName(
            f"invalid queue name {text[:120]!r}…: it must have at most {MAX_TEXT} bytes, not {size}"
        )
    name = escaped if len(escaped) <= _LONGEST_STEM else _hash_text(stem)
    return check_name(name + text[len(stem) :])


def _escape(text: str) -> str:
    """The text with ``:XX`` for each byte that no name has, each ``:``, and all of ``..``."""
    if text in _DIRECTORIES:
        return ":2E" * len(text)
    return _ESCAPED.sub(lambda found: b":%02X" % found[0][0], text.encode()).decode("ascii")


def _unescape(name: str) -> str:
    """The text that `_escape` made ``name`` of. Raises UnicodeError if it is not UTF-8."""
    return _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode()).decode()


def _is_escape(name: str) -> bool:
    """Whether `escape_name` returns ``name`` for another text."""
    if ":" not in name:
        return False
    if is_hashed(name):
        return True
    stem = stem_of(name)
    try:
        return len(stem) <= _LONGEST_STEM and _escape(_unescape(stem)) == stem
    except UnicodeError:
        return False


def _hash_text(text: str) -> str:
    """The name of a text whose escape is too long; this process remembers it."""
    with late_imports:
        import hashlib  # noqa: PLC0415 - it loads OpenSSL, and few names are long

    readable = _CUT_ESCAPE.sub("", _escape(text)[:_READABLE])
    name = f"{readable}::{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"
    _texts[name] = text
    if len(_texts) > _MOST_TEXTS:
        _texts.pop(next(iter(_texts)), None)
    return name


def own_dead_letters(name: str) -> str:
    """The name of the dead-letter queue that comes with the rights to ``name``: ``NAME.dlq``.

    Of a name over 96 characters, after which that does not fit, it is the name that `escape_name`
    has for ``NAME.dlq``: a beginning of it, ``::``, a hash, and ``.dlq``.
    """
    return (name if len(name) <= _LONGEST_STEM else _hash_text(name)) + _SUFFIX


def with_dead_letter(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a queue that a framework names: of a long name, with `own_dead_letters`.

    Such a queue has to set ``dead_letter``, and the framework's users name queues without knowing
    that. A queue that ends with its users has no dead letters by default.
    """
    ends = options.get("auto_delete") or options.get("exclusive")
    if len(name) <= _LONGEST_STEM or ends or "dead_letter" in options:
        return dict(options)
    return {**options, "dead_letter": own_dead_letters(name)}


def is_hashed(name: str) -> bool:
    """Whether `escape_name` shortened the text that it made ``name`` of."""
    return "::" in name and _HASHED.match(name) is not None


def stem_of(name: str) -> str:
    """The name of the queue whose dead letters are in the queue ``name``; otherwise ``name``."""
    return name.removesuffix(_SUFFIX) or name


def learn_texts(texts: Iterable[str]) -> None:
    """Let `unescape_name` reverse the names of these texts, which another process has escaped."""
    for text in texts:
        with contextlib.suppress(InvalidName):
            own_dead_letters(escape_name(text))


def unescape_name(name: str) -> str:
    """The text that `escape_name` made ``name`` of; ``name`` itself if it did not make it.

    Also ``name`` itself for a long text that this process does not know: it knows those that it has
    escaped, and those of names that its brokers have opened or listed.
    """
    if ":" not in name:
        return name
    if is_hashed(name):
        stem = stem_of(name)
        text = _texts.get(stem)
        return name if text is None else text + name[len(stem) :]
    try:
        text = _unescape(name)
        return text if escape_name(text) == name else name
    except (UnicodeError, InvalidName):
        return name


def shown_name(name: str) -> str:
    """How ``name`` is shown to people: as `unescape_name` has it, where `given_name` reverses that.

    A text that is a name itself, is not printable, or has spaces that a table cannot show, stays
    escaped: so no control character reaches a terminal.
    """
    text = unescape_name(name)
    if _ALLOWED.match(text) or not text.isprintable() or text != " ".join(text.split()):
        return name
    return text


def given_name(text: str) -> str:
    """The name that a person means: ``text``, escaped if it is not a name. Raises InvalidName."""
    return text if _ALLOWED.match(text) else escape_name(text)


def user_namespace(kind: str) -> str:
    """A namespace that the effective user alone has: ``KIND-UID``."""
    return f"{kind}-{os.geteuid()}"


def default_namespace() -> str:
    """The namespace if none is named: ``default-UID``, or ``GROUP/default`` of ``SHMQ_GROUP``.

    Only the user who created a segment can use it, unless it is in the folder of a group. Raises
    :class:`InvalidName` for a group that cannot be.
    """
    group = os.environ.get("SHMQ_GROUP")
    return f"{check_group(group)}/default" if group else user_namespace("default")


def chosen_namespace(name: str | None, group: str | None = None) -> str:
    """The namespace to use: ``name``, else ``SHMQ_NAMESPACE``, else the default.

    A name without a group is of ``group``, else of ``SHMQ_GROUP``, else of this user alone. An
    empty variable counts as unset. Raises :class:`InvalidName`, :class:`InvalidOption` if the name
    has another group than ``group``, and TypeError for a name that is not a str.
    """
    what = "namespace"
    if name is None:
        name = os.environ.get("SHMQ_NAMESPACE") or None
        what = "namespace (SHMQ_NAMESPACE)"
    if name is None and group is None:
        return default_namespace()
    name = "default" if name is None else check_name(name, what)
    shared_by = os.environ.get("SHMQ_GROUP") if group is None else check_group(group)
    if "/" not in name:
        return f"{check_group(shared_by)}/{name}" if shared_by else name
    if group not in {None, group_of(name)}:
        raise InvalidOption(
            f"namespace {name!r} is of group {group_of(name)!r}, and group={group!r} is another: "
            f"leave one of them out"
        )
    return name


#: The schemes of the URLs of servers, and whether each is of TLS; and that of a Unix socket.
TCP_SCHEMES: Final = {"shmq": False, "shmqs": True}
UNIX_SCHEME: Final = "shmq+unix"


def is_url(text: str) -> bool:
    """Whether the text is the URL of a server, not the name of a namespace."""
    return "://" in text


def dead_letter_source(name: str) -> str | None:
    """The queue of which this is the dead-letter queue by default; None: of none."""
    return name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) else None


def dead_letter_name(name: str) -> str:
    """The default name of a queue's dead-letter queue: ``NAME.dlq``.

    Raises :class:`InvalidOption` for a name over 96 characters, which leaves no room
    for the suffix.
    """
    if len(name) > _LONGEST_STEM:
        raise InvalidOption(
            f"the name {name!r} has {len(name)} characters, so {_SUFFIX!r} does not fit "
            f"after it: set dead_letter to a name of your own, or to None"
        )
    return name + _SUFFIX


def staging_name(target: str, publisher: str) -> str:
    """The name of the queue in which ``publisher`` stages messages for ``target``.

    It is ``TARGET.staged.`` and eight hexadecimal digits. Raises :class:`InvalidOption` if the
    target's name is over 84 characters.
    """
    with late_imports:
        import hashlib  # noqa: PLC0415 - it loads OpenSSL, and few stage

    name = f"{target}.staged.{hashlib.blake2s(publisher.encode(), digest_size=4).hexdigest()}"
    if len(name) > MAX_NAME:
        raise InvalidOption(
            f"the name {target!r} has {len(target)} characters, so nothing can be staged for it: "
            f"at most {MAX_NAME - len(name) + len(target)} leave room for its staging queues' names"
        )
    return name


def staging_target(name: str) -> str | None:
    """The target of the staging queue of that name; None if it names another kind of queue."""
    found = _STAGED.match(name)
    return found[1] if found else None


def reply_name() -> str:
    """A new name for a client's reply queue: ``reply.`` and 64 random bits in hexadecimal."""
    return f"reply.{os.urandom(8).hex()}"


def is_reply_name(name: str) -> bool:
    """Whether a queue of that name is a client's reply queue, removed once the client is gone."""
    return _REPLY.match(name) is not None


def is_lock_queue(name: str) -> bool:
    """Whether a queue of that name is part of a lock, and not listed among the queues."""
    return name.startswith((LOCK_PERMITS, LOCK_LINE, LOCK_INBOX))
