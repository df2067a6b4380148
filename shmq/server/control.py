"""What a remote client asks for beside messages: to be let in, and to look after queues.

The rights are checked here, in the contract's order: form, queue, right, range. What a
token has no right at all to is as if it were not there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from shmq.client.local import LocalBroker, LocalQueue
from shmq.contract import Message
from shmq.core._core import ADMIN_RIGHT, CONSUME_RIGHT, PRODUCE_RIGHT, Session
from shmq.errors import InvalidOption, NoSpace, NoSuchQueue, QueueExists, ShmqError
from shmq.names import dead_letter_name
from shmq.options import QueueOptions
from shmq.protocol import FOREVER, Status, Type
from shmq.server.answering import (
    Refusal,
    map_of,
    nothing_in,
    packed,
    scarce,
    well_formed,
)
from shmq.server.caller import Caller
from shmq.server.exchanging import Exchanging
from shmq.server.schemas import changes, schema_answer
from shmq.server.seldom import Seldom
from shmq.server.staging import Asked, rows_of
from shmq.server.statuses import refusal_of
from shmq.server.streams import Streams
from shmq.server.tokens import Doors
from shmq.version import VERSION
from shmq.where import Where

__all__ = ["FEATURES", "Control"]

log = logging.getLogger("shmq.server")

#: What this server can do beyond the types that every one has.
FEATURES: Final = (
    "return",
    "peek",
    "redrive",
    "where",
    "columns",
    "staging",
    "exchanges",
    "own-queues",
    "schemas",
    "filters",
    "streams",
    "holds",
    "names",
)

_LIMIT: Final = struct.Struct("!I")
_COUNT: Final = struct.Struct("!Q")

#: What a PEEK gives at most, in bytes of bodies, but for the last one's.
_PEEKED: Final = 1 << 20

#: About how many rows one PUBLISH puts: the others wait for no more than that.
_PUBLISHED: Final = 10_000

#: None: it comes later.
Payload = bytes | list[Message] | None
Answer = tuple[int, Payload]


class Control:
    """Carries out what is not in the path of messages, and knows the attached queues.

    All that is public is called by the engine, see :class:`shmq.core._core.Front`.
    """

    def __init__(
        self,
        broker: LocalBroker,
        doors: Doors,
        wait: Callable[[LocalQueue], None],
        wait_chosen: Callable[[LocalQueue], None],
        confirm: Callable[[LocalQueue], None],
        stirred: Callable[[Session], None],
        sooner: Callable[[], None],
    ) -> None:
        self.doors = doors
        self.wait = wait
        self.wait_chosen = wait_chosen
        self.confirm = confirm
        self.stirred = stirred
        self.sooner = sooner
        self._broker = broker
        self._exchanging = Exchanging(broker)
        self._seldom = Seldom(log)
        self.streams = Streams(broker, self.rights)
        self._own: dict[Session, list[tuple[str, int]]] = {}
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
            Type.SCHEMA: self._schema,
            Type.EXCHANGE: self._exchange,
            Type.EXCHANGES: self._list_exchanges,
            Type.ROUTE: self._route,
            **self.streams.answers,
        }

    def attach(self, name: str) -> LocalQueue:
        """The queue, attached to. Raises NoSuchQueue, NoSpace, SegmentError."""
        try:
            with scarce(f"queue {name!r}"):
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
            with scarce(f"{name!r}"):
                return Status.OK, self._answer_of(kind, name)(session, name, rest)
        except Refusal as refusal:
            return refusal.status, refusal.payload
        except ShmqError as error:
            status, payload = refusal_of(error)
            if status == Status.INTERNAL:
                log.error("%s, %s of %s: %s", session.context, Type(kind).name, name, error)
            return status, payload

    def _answer_of(self, kind: int, name: str) -> Callable[[Session, str, bytes], Payload]:
        """What answers a request of that type, of which the engine has checked the form."""
        answer = self._answers.get(kind)
        if answer is None:
            raise Refusal(Status.UNSUPPORTED, "this server has no such type")
        if kind in self.streams.answers and not name and kind != Type.STREAM_LIST:
            raise Refusal(Status.BAD_REQUEST, "a name is 1 to 100 characters: A-Z a-z 0-9 . _ : -")
        return answer

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
        asked = map_of(rest)
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
        return packed(
            {
                "server": f"shmq/{VERSION}",
                "max_frame": session.front.max_frame,
                "features": FEATURES,
                "namespace": self._broker.namespace,
            }
        )

    def _create(self, session: Session, name: str, rest: bytes) -> bytes:
        given = map_of(rest) if rest else {}
        own = given.pop("own", False)
        if not isinstance(own, bool):
            raise Refusal(Status.BAD_REQUEST, f"own={own!r:.40} must be true or false")
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
        if own:
            self._create_own(session, name, given)
            return b""
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

    def _create_own(self, session: Session, name: str, given: dict[str, Any]) -> None:
        """Make a queue that goes with the session; its name is a reply queue's."""
        with well_formed(), self._broker.create_own_queue(name, **given) as made:
            self._own.setdefault(session, []).append((name, made.segment.queue_id))

    def left(self, session: Session) -> None:
        """The session has ended: remove the queues that were its own, and end its waits."""
        self.streams.left(session)
        for name, queue_id in self._own.pop(session, ()):
            self._broker.delete_own_queue(name, queue_id)

    def _delete(self, session: Session, name: str, rest: bytes) -> bytes:
        nothing_in(rest)
        if not self._broker.has_queue(name):
            raise NoSuchQueue(f"there is no queue {name!r}")
        self._need_admin(session, name)
        self._broker.delete_queue(name)
        return b""

    def _purge(self, session: Session, name: str, rest: bytes) -> bytes:
        nothing_in(rest)
        with self.attach(name) as queue:
            self._need_admin(session, name)
            return _COUNT.pack(queue.purge())

    def _list(self, session: Session, _: str, rest: bytes) -> bytes:
        only_names = map_of(rest).get("names") if rest else False
        if not isinstance(only_names, bool):
            raise Refusal(Status.BAD_REQUEST, "a LIST carries nothing, or 'names', true or false")
        names = [name for name in self._broker.queue_names() if self.rights(session, name)]
        if only_names:
            return packed(names)
        summaries = map(self._broker.summary, names)
        return packed([{"kind": "queue", **dataclasses.asdict(each)} for each in summaries if each])

    def _stats(self, session: Session, name: str, rest: bytes) -> bytes:
        nothing_in(rest)
        with self.attach(name) as queue:
            options = queue.options.as_dict()
            attachments = [dataclasses.asdict(each) for each in queue.attachments()]
            stats = dataclasses.asdict(queue.stats())
            stats["identity"] = queue.identity
        if not self._may_see(session, name, options["dead_letter"]):
            options["dead_letter"] = None
        return packed({**stats, "options": options, "attachments": attachments})

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
        limit = _limit_of(rest[: _LIMIT.size])
        where = _where_of(rest[_LIMIT.size :])
        with self.attach(name) as queue:
            self._need_consume(session, name)
            return _some(queue.peeked(limit, where))

    def _stage(self, session: Session, name: str, rest: bytes) -> bytes:
        with well_formed():
            asked, rows = rows_of(rest)
        with self._staging(session, name) as queue, well_formed():
            queue.stage(
                asked.publisher,
                asked.number("batch"),
                asked.text("part"),
                rows,
                staging_bytes=asked.number("staging_bytes"),
            )
        return b""

    def _publish(self, session: Session, name: str, rest: bytes) -> bytes:
        with well_formed():
            asked = Asked(map_of(rest))
            batch, parts = asked.number("batch"), asked.texts("parts")
        with self._staging(session, name) as queue, well_formed():
            rows, left = queue.publish_some(asked.publisher, batch, parts, _PUBLISHED)
        return packed({"rows": rows, "left": left})

    def _staged(self, session: Session, name: str, rest: bytes) -> bytes:
        with well_formed():
            asked = Asked(map_of(rest))
            action = asked.action
        with self._staging(session, name) as queue, well_formed():
            removed = 0
            if action == "sweep":
                removed = queue.sweep(asked.publisher, asked.keep)
            elif action == "discard":
                queue.discard(asked.publisher)
            return packed({"sealed": queue.sealed(asked.publisher), "removed": removed})

    def _schema(self, session: Session, name: str, rest: bytes) -> bytes:
        with well_formed():
            asked = map_of(rest)
            if changes(asked):
                self._need_admin(session, name)
            return packed(schema_answer(self._broker, name, asked))

    @contextlib.contextmanager
    def _staging(self, session: Session, name: str) -> Iterator[LocalQueue]:
        with self.attach(name) as queue:
            if not self.rights(session, name) & PRODUCE_RIGHT:
                raise Refusal(Status.FORBIDDEN, f"the token has no right to produce to {name!r}")
            yield queue

    def _exchange(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = map_of(rest)
        with well_formed():
            return packed(self._exchanging.ask(self._rights_of(session), name, asked))

    def _list_exchanges(self, session: Session, _: str, rest: bytes) -> bytes:
        map_of(rest)
        return packed(self._exchanging.summaries(self._rights_of(session)))

    def _route(self, session: Session, name: str, rest: bytes) -> bytes:
        with well_formed():
            return packed(self._exchanging.route(self._rights_of(session), name, rest))

    # ---- rights ----

    def _rights_of(self, session: Session) -> Callable[[str], int]:
        return functools.partial(self.rights, session)

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


def _own_dead_letters(name: str) -> str | None:
    """NAME.dlq, which belongs to whoever NAME belongs to."""
    with contextlib.suppress(ShmqError):
        return dead_letter_name(name)
    return None


def _limit_of(rest: bytes) -> int:
    if len(rest) != _LIMIT.size:
        raise Refusal(Status.BAD_REQUEST, "there must be a name, and a limit of 32 bits")
    limit: int = _LIMIT.unpack(rest)[0]
    if not limit:
        raise Refusal(Status.BAD_REQUEST, "limit=0: it must be 1 or more")
    return limit


def _where_of(rest: bytes) -> str | None:
    """The expression of a REDRIVE or a PEEK; None: there is none."""
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
