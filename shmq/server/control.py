"""What a remote client asks for beside messages: to be let in, and to look after queues.

The rights are checked here, in the contract's order: form, queue, right, range. What a
token has no right at all to is as if it were not there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgpack

from shmq.client.local import LocalBroker, LocalQueue
from shmq.contract import Message
from shmq.core._core import ADMIN_RIGHT, CONSUME_RIGHT, PRODUCE_RIGHT, Session
from shmq.errors import InvalidOption, NoSpace, NoSuchQueue, QueueExists, ShmqError
from shmq.names import dead_letter_name
from shmq.options import QueueOptions
from shmq.protocol import FOREVER, Status, Type
from shmq.server.caller import Caller
from shmq.server.seldom import Seldom
from shmq.server.staging import Asked, rows_of
from shmq.server.statuses import status_of
from shmq.server.tokens import Doors
from shmq.version import VERSION
from shmq.where import Where

__all__ = ["FEATURES", "Control"]

log = logging.getLogger("shmq.server")

#: What this server can do beyond the types that every one has.
FEATURES: Final = ("return", "peek", "redrive", "where", "columns", "staging")

_LIMIT: Final = struct.Struct("!I")
_COUNT: Final = struct.Struct("!Q")

#: What a PEEK gives at most, in bytes of bodies, but for the last one's.
_PEEKED: Final = 1 << 20

#: About how many rows one PUBLISH puts: the others wait for no more than that.
_PUBLISHED: Final = 10_000

#: What the machine, or a limit of the process, can be out of.
_SCARCE: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}

Payload = bytes | list[Message]
Answer = tuple[int, Payload]


class Refusal(Exception):
    """The request is not carried out. Its text is for the client."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


class Control:
    """Carries out what is not in the path of messages, and knows the attached queues.

    All that is public is called by the engine, see :class:`shmq.core._core.Front`.
    """

    def __init__(
        self,
        broker: LocalBroker,
        doors: Doors,
        wait: Callable[[LocalQueue], None],
        confirm: Callable[[LocalQueue], None],
        stirred: Callable[[Session], None],
        sooner: Callable[[], None],
    ) -> None:
        self.doors = doors
        self.wait = wait
        self.confirm = confirm
        self.stirred = stirred
        self.sooner = sooner
        self._broker = broker
        self._seldom = Seldom(log)
        self._answers: dict[int, Callable[[Session, str, bytes], Payload]] = {
            Type.HELLO: self._hello,
            Type.CREATE: self._create,
            Type.DELETE: self._delete,
            Type.PURGE: self._purge,
            Type.LIST: self._list,
            Type.STATS: self._stats,
            Type.PEEK: self._peek,
            Type.REDRIVE: self._redrive,
            Type.STAGE: self._stage,
            Type.PUBLISH: self._publish,
            Type.STAGED: self._staged,
        }

    def attach(self, name: str) -> LocalQueue:
        """The queue, attached to. Raises NoSuchQueue, NoSpace, SegmentError."""
        try:
            with _scarce(name):
                return self._broker.queue(name)
        except NoSpace as error:
            self._seldom.warning("%s", error)
            raise

    def rights(self, session: Session, name: str) -> int:
        """What the session may do to the queue of that name, whether there is one or not."""
        caller: Caller = session.context
        return caller.rights(self.doors, name)

    def answer(self, session: Session, kind: int, name: str, rest: bytes) -> Answer:
        """Carry a request out: its status, and the payload of the answer."""
        try:
            with _scarce(name):
                return Status.OK, self._answers[kind](session, name, rest)
        except Refusal as refusal:
            return refusal.status, str(refusal).encode()
        except ShmqError as error:
            status = status_of(error)
            if status != Status.INTERNAL:
                return status, str(error).encode()
            log.error("%s, %s of queue %s: %s", session.context, Type(kind).name, name, error)
            return status, b"the server has logged why"

    def failed(self, error: Exception) -> None:
        """A request was answered with INTERNAL, or a queue could not be used."""
        if isinstance(error, ShmqError):
            log.error("%s", error)
        else:
            log.error("a fault of this server", exc_info=error)

    def interrupted(self, error: BaseException) -> None:
        """A signal's handler raised it while a lock was awaited: nothing is left half done."""
        log.error("interrupted by %s: it goes on", type(error).__name__)

    # ---- one request each ----

    def _hello(self, session: Session, _: str, rest: bytes) -> bytes:
        asked = _map_of(rest)
        client, shown = asked.get("client"), asked.get("token")
        if not isinstance(client, str):
            raise Refusal(Status.BAD_REQUEST, "HELLO needs a 'client' of type str")
        if shown is not None and not isinstance(shown, str):
            raise Refusal(Status.BAD_REQUEST, "'token' must be of type str")
        caller: Caller = session.context
        caller.client = client[:100]
        if self.doors.ask:
            caller.token = self.doors.find(shown or "")
            if caller.token is None:
                form = "%s showed an unknown token" if shown else "%s showed no token"
                self._seldom.warning(form, caller)
                raise Refusal(Status.UNAUTHORIZED, "this server asks for a token that it knows")
            log.debug("%s is let in by token %r", caller, caller.token.name)
        return _packed(
            {
                "server": f"shmq/{VERSION}",
                "max_frame": session.front.max_frame,
                "features": FEATURES,
                "namespace": self._broker.namespace,
            }
        )

    def _create(self, session: Session, name: str, rest: bytes) -> bytes:
        given = _map_of(rest) if rest else {}
        self._need_admin(session, name)
        try:
            wanted = QueueOptions.for_queue(name, given)
        except TypeError as error:
            raise Refusal(Status.BAD_REQUEST, str(error)) from error
        if not self._may_bury(session, name, wanted.dead_letter):
            raise Refusal(
                Status.FORBIDDEN,
                f"dead_letter={wanted.dead_letter!r}: the token has no right to administer that",
            )
        try:
            made = self._broker.create_queue(name, **given)
        except QueueExists:
            with self.attach(name) as queue:
                found = queue.options.dead_letter
            if self._may_see(session, name, found):
                raise
            raise Refusal(Status.QUEUE_EXISTS, "it exists with other options") from None
        made.close()
        return b""

    def _delete(self, session: Session, name: str, rest: bytes) -> bytes:
        _nothing_in(rest)
        if not self._broker.has_queue(name):
            raise NoSuchQueue(f"there is no queue {name!r}")
        self._need_admin(session, name)
        self._broker.delete_queue(name)
        return b""

    def _purge(self, session: Session, name: str, rest: bytes) -> bytes:
        _nothing_in(rest)
        with self.attach(name) as queue:
            self._need_admin(session, name)
            return _COUNT.pack(queue.purge())

    def _list(self, session: Session, _: str, rest: bytes) -> bytes:
        _nothing_in(rest)
        summaries = (
            self._broker.summary(name)
            for name in self._broker.queue_names()
            if self.rights(session, name)
        )
        return _packed(
            [{"kind": "queue", **dataclasses.asdict(each)} for each in summaries if each]
        )

    def _stats(self, session: Session, name: str, rest: bytes) -> bytes:
        _nothing_in(rest)
        with self.attach(name) as queue:
            options = queue.options.as_dict()
            attachments = [dataclasses.asdict(each) for each in queue.attachments()]
            stats = dataclasses.asdict(queue.stats())
            stats["identity"] = queue.identity
        if not self._may_see(session, name, options["dead_letter"]):
            options["dead_letter"] = None
        return _packed({**stats, "options": options, "attachments": attachments})

    def _redrive(self, session: Session, name: str, rest: bytes) -> bytes:
        limit = _limit_of(rest[: _LIMIT.size])
        where = _where_of(rest[_LIMIT.size :])
        with self.attach(name) as queue:
            self._need_admin(session, name)
            if where is not None:
                self._need_consume(session, name)  # what goes tells what is in it
            moved = queue.redrive_some(
                None if limit == FOREVER else limit,
                where,
                lambda origin: bool(self.rights(session, origin) & ADMIN_RIGHT),
            )
        return _COUNT.pack(moved)

    def _peek(self, session: Session, name: str, rest: bytes) -> list[Message]:
        limit = _limit_of(rest)
        with self.attach(name) as queue:
            self._need_consume(session, name)
            return _some(queue.peeked(limit))

    def _stage(self, session: Session, name: str, rest: bytes) -> bytes:
        with _well_formed():
            asked, rows = rows_of(rest)
        with self._staging(session, name) as queue, _well_formed():
            queue.stage(
                asked.publisher,
                asked.number("batch"),
                asked.text("part"),
                rows,
                staging_bytes=asked.number("staging_bytes"),
            )
        return b""

    def _publish(self, session: Session, name: str, rest: bytes) -> bytes:
        with _well_formed():
            asked = Asked(_map_of(rest))
            batch, parts = asked.number("batch"), asked.texts("parts")
        with self._staging(session, name) as queue, _well_formed():
            rows, left = queue.publish_some(asked.publisher, batch, parts, _PUBLISHED)
        return _packed({"rows": rows, "left": left})

    def _staged(self, session: Session, name: str, rest: bytes) -> bytes:
        with _well_formed():
            asked = Asked(_map_of(rest))
            action = asked.action
        with self._staging(session, name) as queue, _well_formed():
            removed = 0
            if action == "sweep":
                removed = queue.sweep(asked.publisher, asked.keep)
            elif action == "discard":
                queue.discard(asked.publisher)
            return _packed({"sealed": queue.sealed(asked.publisher), "removed": removed})

    @contextlib.contextmanager
    def _staging(self, session: Session, name: str) -> Iterator[LocalQueue]:
        with self.attach(name) as queue:
            if not self.rights(session, name) & PRODUCE_RIGHT:
                raise Refusal(Status.FORBIDDEN, f"the token has no right to produce to {name!r}")
            yield queue

    # ---- rights ----

    def _need_admin(self, session: Session, name: str) -> None:
        if not self.rights(session, name) & ADMIN_RIGHT:
            raise Refusal(Status.FORBIDDEN, f"the token has no right to administer {name!r}")

    def _need_consume(self, session: Session, name: str) -> None:
        if not self.rights(session, name) & CONSUME_RIGHT:
            raise Refusal(Status.FORBIDDEN, f"the token has no right to consume from {name!r}")

    def _may_bury(self, session: Session, name: str, dead_letter: str | None) -> bool:
        """Whether the queue's dead letters may go there, and a queue be made for them."""
        if dead_letter is None or dead_letter == _own_dead_letters(name):
            return True
        return bool(self.rights(session, dead_letter) & ADMIN_RIGHT)

    def _may_see(self, session: Session, name: str, dead_letter: str | None) -> bool:
        """Whether the session may know of the queue's dead-letter queue."""
        if dead_letter is None or dead_letter == _own_dead_letters(name):
            return True
        return bool(self.rights(session, dead_letter))


@contextlib.contextmanager
def _well_formed() -> Iterator[None]:
    """What is of another type, or out of range, is the client's fault."""
    try:
        yield
    except (TypeError, InvalidOption) as error:
        raise Refusal(Status.BAD_REQUEST, str(error)) from error


@contextlib.contextmanager
def _scarce(name: str) -> Iterator[None]:
    """What the machine has no descriptors or memory for is NoSpace, and no fault."""
    try:
        yield
    except ShmqError:
        raise
    except OSError as error:
        if error.errno not in _SCARCE:
            raise
        raise NoSpace(
            f"the server cannot attach to queue {name!r} now: {os.strerror(error.errno)}"
        ) from error


def _own_dead_letters(name: str) -> str | None:
    """NAME.dlq, which belongs to whoever NAME belongs to."""
    with contextlib.suppress(ShmqError):
        return dead_letter_name(name)
    return None


def _map_of(packed: bytes) -> dict[str, Any]:
    try:
        found = msgpack.unpackb(packed, raw=False, strict_map_key=False)
    except Exception as error:  # its own kinds, ValueError, UnicodeDecodeError, RecursionError
        raise Refusal(Status.BAD_REQUEST, f"that is not msgpack: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise Refusal(Status.BAD_REQUEST, "that is no msgpack map whose keys are of type str")
    return found


def _limit_of(rest: bytes) -> int:
    if len(rest) != _LIMIT.size:
        raise Refusal(Status.BAD_REQUEST, "there must be a name, and a limit of 32 bits")
    limit: int = _LIMIT.unpack(rest)[0]
    if not limit:
        raise Refusal(Status.BAD_REQUEST, "limit=0: it must be 1 or more")
    return limit


def _where_of(rest: bytes) -> str | None:
    """The expression of a REDRIVE; None: there is none."""
    if not rest:
        return None
    try:
        text = rest.decode()
        Where(text)
    except (UnicodeDecodeError, InvalidOption) as error:
        raise Refusal(Status.BAD_REQUEST, str(error)) from error
    return text


def _some(copies: Iterator[Message]) -> list[Message]:
    """The first of them, one at least, as many as may wait to be sent."""
    found: list[Message] = []
    size = 0
    for copy in copies:
        found.append(copy)
        size += copy.view.nbytes
        if size >= _PEEKED:
            break
    return found


def _packed(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def _nothing_in(rest: bytes) -> None:
    if rest:
        raise Refusal(Status.BAD_REQUEST, f"there are {len(rest)} bytes more than its type takes")
