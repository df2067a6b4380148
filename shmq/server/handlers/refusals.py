"""Why a request is refused: its values, what the server has run out of, and quotas.

The server does not record which client created what. A token is charged for the queues,
streams and tables that it may administer and the groups that it may be a member of, regardless
of their creator: so the count survives a restart, and what was deleted no longer counts. What
exists is counted under the registry lock before more is created.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from shmq.api.names import staging_target
from shmq.client.local.broker import LocalBroker
from shmq.errors import (
    InvalidName,
    InvalidOption,
    NoSpace,
    NoSuchQueue,
    NoSuchStream,
    SegmentError,
    ShmqError,
)
from shmq.host.namespace import streams
from shmq.host.namespace.group_files import group_names
from shmq.host.namespace.namespace import Namespace
from shmq.model.table.files import TableFile, tables_of
from shmq.native import _core, _stream
from shmq.native._core import Session
from shmq.protocol.opcodes import Right, Status
from shmq.protocol.status import Refusal
from shmq.server.config.settings import Limits, Quota
from shmq.server.config.tokens import Token
from shmq.server.connection.peer import Peer

_BLOCK: Final = 512  # bytes of st_blocks
#: What takes bytes without a new name, by the kind of a request.
_UNNAMED: Final = {"queues": "its larger size", "streams": "new partitions"}


class QuotaRequest(NamedTuple):
    """What a request is about to create: names of a kind of a :class:`Quota`, and bytes."""

    kind: str
    names: Collection[str]
    #: None: it has no bound.
    size: int | None = 0


class Quotas:
    """Refuses requests that would exceed the quotas. For any thread."""

    def __init__(self, broker: LocalBroker, limits: Limits) -> None:
        #: The limits that are in force.
        self.limits = limits
        self._namespace = Namespace.of(broker.namespace)

    @contextlib.contextmanager
    def room_for(
        self, session: Session, wished: Callable[[], QuotaRequest | None]
    ) -> Iterator[None]:
        """Reserve quota for what the block creates; no other process creates anything until then.

        ``wished`` returns what that will be; None: nothing. Raises Refusal with NO_SPACE, and
        LockTimeout.
        """
        peer: Peer = session.context
        namespace, token = self.limits.namespace, self.limits.token
        limited = namespace or (token and peer.token is not None)
        if not limited or wished() is None:
            yield
            return
        with self._namespace.locked():
            wanted = wished()
            if wanted is not None:  # no other process has created it in the meantime
                self._check("namespace", namespace, wanted, None)
                if peer.token is not None:
                    self._check("token", token, wanted, peer.token)
            yield

    def _check(self, scope: str, quota: Quota, wanted: QuotaRequest, token: Token | None) -> None:
        who = f"namespace {self._namespace.name!r}" if token is None else f"token {token.name!r}"
        what = ", ".join(map(repr, wanted.names))
        most: int | None = getattr(quota, wanted.kind)
        if most is not None and wanted.names:
            there = self._count(wanted.kind, token)
            if there + len(wanted.names) > most:
                raise Refusal(
                    Status.NO_SPACE,
                    f"limits.{scope}.{wanted.kind}={most}: {who} has {there} {wanted.kind}, and "
                    f"{what} would be {len(wanted.names)} more: delete some, or have the server's "
                    f"limit raised",
                )
        if quota.bytes is not None and wanted.size is None:
            raise Refusal(
                Status.NO_SPACE,
                f"limits.{scope}.bytes={quota.bytes}: {what} needs a bound: give it max_bytes",
            )
        if quota.bytes is not None and wanted.size:
            taken = self._count_bytes(token)
            if taken + wanted.size > quota.bytes:
                raise Refusal(
                    Status.NO_SPACE,
                    f"limits.{scope}.bytes={quota.bytes}: the queues, streams and tables of {who} "
                    f"take {taken} bytes, and {what or _UNNAMED[wanted.kind]} would take "
                    f"{wanted.size} more: delete some, ask for less, or have the server's limit "
                    f"raised",
                )

    # ---- counting ----

    def _count(self, kind: str, token: Token | None) -> int:
        if kind == "queues":
            return len(self._list_queues(token))
        if kind == "streams":
            return len(self._list_streams(token))
        if kind == "tables":
            return len(self._list_tables(token))
        if token is None:
            return len(self._namespace.names_of("group.shmq"))
        return sum(
            bool(token.stream_rights(stream, group) & Right.CONSUME)
            for stream in self._namespace.stream_names()
            for group in self._list_groups(stream)
        )

    def _list_queues(self, token: Token | None) -> list[str]:
        names = self._namespace.queue_names()
        return names if token is None else [name for name in names if _is_of(token, name)]

    def _list_streams(self, token: Token | None) -> list[str]:
        names = self._namespace.stream_names()
        if token is None:
            return names
        return [name for name in names if token.stream_rights(name) & Right.ADMIN]

    def _list_tables(self, token: Token | None) -> list[TableFile]:
        found = tables_of(self._namespace)
        return found if token is None else [each for each in found if _is_of(token, each.name)]

    def _list_groups(self, stream: str) -> list[str]:
        try:
            control = streams.look_at(self._namespace, stream)
        except (NoSuchStream, SegmentError):
            return []
        return [] if control is None else group_names(self._namespace, control.identity)

    def _count_bytes(self, token: Token | None) -> int:
        return (
            sum(map(self._queue_bytes, self._list_queues(token)))
            + sum(map(self.stream_bytes, self._list_streams(token)))
            + sum(map(_count_table_bytes, self._list_tables(token)))
        )

    def _queue_bytes(self, name: str) -> int:
        """The bytes the queue may take; of a staging queue, which may grow large, what it takes.

        Of a segment that cannot be used also what it takes.
        """
        if staging_target(name) is None:
            with contextlib.suppress(NoSuchQueue, SegmentError):
                segment = self._namespace.look_at(name)
                return 0 if segment is None else _core.segment_bytes(segment.options)
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._namespace.path_of(name)).st_blocks * _BLOCK
        return 0

    def stream_bytes(self, name: str) -> int:
        """The bytes the stream's partitions may take.

        Of segments that cannot be used what they take.
        """
        with contextlib.suppress(NoSuchStream, SegmentError):
            control = streams.look_at(self._namespace, name)
            if control is None:
                return 0
            return control.shape[1] * int(_stream.partition_bytes(control.options))
        size = 0
        with contextlib.suppress(FileNotFoundError):
            for partition in itertools.count():
                path = streams.partition_path(self._namespace, name, partition)
                size += os.stat(path).st_blocks * _BLOCK
        return size


def _is_of(token: Token, queue: str) -> bool:
    """Whether the token may administer the queue; NAME.dlq comes with NAME."""
    return bool((token.rights(queue) | token.rights(queue.removesuffix(".dlq"))) & Right.ADMIN)


def _count_table_bytes(table: TableFile) -> int:
    """The bytes the table may take; of one without a bound, or that cannot be read, what it takes.

    The log beside it is not counted.
    """
    database = table.opened()
    try:
        with database.using():
            if database.max_bytes is not None:
                return database.max_bytes
    except ShmqError:
        pass
    finally:
        database.close()
    with contextlib.suppress(FileNotFoundError):
        return table.path.stat().st_size
    return 0


#: Errors for resources that the machine or the process has run out of.
_SCARCE: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


@contextlib.contextmanager
def well_formed() -> Iterator[None]:
    """Refuse values of a wrong type or out of range as BAD_REQUEST."""
    try:
        yield
    except (TypeError, InvalidName, InvalidOption) as error:
        raise Refusal(Status.BAD_REQUEST, str(error)) from error


@contextlib.contextmanager
def scarce(what: str) -> Iterator[None]:
    """Raise NoSpace if descriptors or memory run out."""
    try:
        yield
    except ShmqError:
        raise
    except OSError as error:
        if error.errno not in _SCARCE:
            raise
        raise NoSpace(
            f"the server cannot attach to {what} now: {os.strerror(error.errno)}"
        ) from error
