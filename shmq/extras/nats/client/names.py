"""The names of streams, subjects, consumers and keys in a NATS cluster.

A name of shmq may have ``.`` and ``:``, which names of streams and tokens of subjects have not: a
``.`` becomes ``_d``, a ``:`` becomes ``_c`` and a ``_`` becomes ``__``. Other letters after a ``_``
separate the parts, so that each name has one origin.
"""

from __future__ import annotations

import re
from typing import Final

from shmq.errors import InvalidName

PREFIX: Final = "shmq"
#: The longest name of a stream.
_MOST: Final = 250
_TO: Final = {".": "_d", ":": "_c", "_": "__"}
_FROM: Final = {escaped: plain for plain, escaped in _TO.items()}
_SPECIAL: Final = re.compile(r"[.:_]")
_ESCAPED: Final = re.compile(r"_[dc_]")


def escape(name: str) -> str:
    """The name as a part of the name of a stream, or as a token of a subject."""
    return _SPECIAL.sub(lambda found: _TO[found[0]], name)


def unescape(escaped: str) -> str:
    """The name that `escape` made it of."""
    return _ESCAPED.sub(lambda found: _FROM[found[0]], escaped)


def _stream(namespace: str, kind: str, name: str, rest: str = "") -> str:
    made = f"{PREFIX}_n{escape(namespace)}_{kind}{escape(name)}{rest}"
    if len(made) > _MOST:
        raise InvalidName(
            f"the names of the namespace {namespace!r} and of {name!r} are too long together: "
            f"a cluster's name of both has {len(made)} characters, and may have {_MOST}"
        )
    return made


def queue_stream(namespace: str, name: str) -> str:
    """The JetStream stream of a queue."""
    return _stream(namespace, "q", name)


def partition_stream(namespace: str, name: str, partition: int) -> str:
    """The JetStream stream of a partition of a stream."""
    return _stream(namespace, "t", name, f"_p{partition}")


def bucket_name(namespace: str) -> str:
    """The KV bucket with the definitions of a namespace."""
    return f"{PREFIX}_n{escape(namespace)}"


def kv_stream(namespace: str) -> str:
    """The JetStream stream of the KV bucket."""
    return f"KV_{bucket_name(namespace)}"


def kv_subject(namespace: str, key: str) -> str:
    """The subject of a key of the KV bucket."""
    return f"$KV.{bucket_name(namespace)}.{key}"


def kv_key(kind: str, name: str) -> str:
    """The key of a definition: ``queue.NAME``, ``stream.NAME``, ``exchange.NAME``, ``schema.…``."""
    return f"{kind}.{escape(name)}"


def _name_subject(namespace: str, kind: str, name: str) -> str:
    return f"{PREFIX}.{escape(namespace)}.{kind}.{escape(name)}"


def queue_subjects(namespace: str, name: str) -> str:
    """The subjects of all messages of a queue."""
    return f"{_name_subject(namespace, 'q', name)}.>"


def priority_subject(namespace: str, name: str, priority: int) -> str:
    """The subject of the messages of a priority of a queue that have no group."""
    return f"{_name_subject(namespace, 'q', name)}.p{priority}"


def group_subject(namespace: str, name: str, partition: int) -> str:
    """The subject of the messages of a queue whose groups are of that partition."""
    return f"{_name_subject(namespace, 'q', name)}.g{partition}"


def delayed_subject(namespace: str, name: str, unique: str) -> str:
    """The subject of one message of a queue that is not due yet."""
    return f"{_name_subject(namespace, 'q', name)}.s.{unique}"


def control_subject(namespace: str, name: str) -> str:
    """The subject on which the clients of a queue tell each other of changes."""
    return _name_subject(namespace, "c", name)


def priority_consumer(priority: int) -> str:
    """The consumer of a priority of a queue."""
    return f"p{priority}"


def group_consumer(partition: int) -> str:
    """The consumer of a partition of the groups of a queue."""
    return f"g{partition}"


def partition_subject(namespace: str, name: str, partition: int) -> str:
    """The subject of the records of a partition of a stream."""
    return f"{_name_subject(namespace, 't', name)}.{partition}"


def reply_subject(namespace: str, name: str) -> str:
    """The subject of the replies to a client."""
    return _name_subject(namespace, "r", name)
