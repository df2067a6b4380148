"""The control requests of remote clients: authentication, and the administration of queues.

Rights are checked here, in the protocol's order: form, queue, right, range. A name to which
the token has no right at all is answered as if it did not exist.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from shmq.api import Message, Rows
from shmq.api.names import check_move, own_dead_letters, staging_name
from shmq.api.options import QueueOptions, without_sharing
from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue
from shmq.errors import NoSpace, NoSuchQueue, QueueExists, ShmqError
from shmq.host.supervision.login_failures import LoginFailures
from shmq.model.expression.compiler import compile_filter
from shmq.model.expression.parse import MOST_REMOTE
from shmq.native import _core
from shmq.native._core import Filter, Session
from shmq.protocol.messages.exchange import EXCHANGES, ExchangeRequest, Exchanges
from shmq.protocol.messages.named_lease import NamedLease
from shmq.protocol.messages.numbers import Leases
from shmq.protocol.messages.payload import check_empty, pack_map, unpack_map
from shmq.protocol.messages.queue import (
    QUEUES,
    Create,
    Greeting,
    Hello,
    LeasesState,
    List,
    Move,
    QueueState,
    SchemaRequest,
    Select,
)
from shmq.protocol.messages.staging import Publish, Published, Stage, Staged, StagedState
from shmq.protocol.messages.table import TableRequest
from shmq.protocol.opcodes import ASIDE, FOREVER, RIGHTS, Right, Status, Type
from shmq.protocol.status import Refusal, refusal_of, status_of
from shmq.server.config.settings import Limits
from shmq.server.config.tokens import AccessList
from shmq.server.connection.peer import Peer, RateLimitedLog
from shmq.server.handlers.audit import Audit, login_failed
from shmq.server.handlers.definitions import ExchangeHandler, schema_answer
from shmq.server.handlers.named_lease import NamedLeaseHandler
from shmq.server.handlers.refusals import QuotaRequest, Quotas, scarce, well_formed
from shmq.server.handlers.side_threads import SideThreads
from shmq.server.handlers.stream import Streams
from shmq.server.handlers.table import TableHandler
from shmq.server.handlers.temporary_queues import TemporaryQueues
from shmq.version import VERSION

log = logging.getLogger("shmq.server")

_COUNT: Final = struct.Struct("!Q")

#: A PEEK ends with the message at which its bodies reach so many bytes.
_PEEKED: Final = 1 << 20

#: The most messages of one answer to a LEASES.
_LEASES: Final = 5000

_ALLOWED: Final = {
    Right.PRODUCE: "produce to",
    Right.CONSUME: "consume from",
    Right.ADMIN: "administer",
}

#: The most refused logins whose answers are delayed at a time; others are answered at once.
_MOST_DELAYED: Final = 1024
#: How long such an answer may be delayed, as a part of the handshake's limit.
_OF_HANDSHAKE: Final = 0.8

#: About how many rows one PUBLISH puts, which bounds how long other requests wait for it.
_PUBLISHED: Final = 10_000

#: How soon a lock that timed out is tried again, in seconds; doubled each time.
_SOON: Final = 0.005
_LATEST: Final = 0.05
#: How long a request waits for such a lock, in seconds, until it is refused.
_PUT_BACK_FOR: Final = 0.1

#: None: the answer follows later.
Payload = bytes | list[Message] | None
Answer = tuple[int, Payload]
#: Carries out a request whose form and right have been checked: its session, name and payload.
_Handler = Callable[[Session, str, Any], Payload]


class _LockRetry(NamedTuple):
    """A name whose lock timed out, with its answer: it is not tried again before ``until``."""

    until: float
    pause: float
    answer: Answer

    @classmethod
    def after(cls, before: _LockRetry | None, answer: Answer) -> _LockRetry:
        pause = _SOON if before is None else min(2 * before.pause, _LATEST)
        return cls(time.monotonic() + pause, pause, answer)


class Control:
    """Carries out control requests, and attaches to queues for the engine.

    The engine calls the public methods, see :class:`shmq.native._core.Engine`.
    """

    def __init__(
        self,
        broker: LocalBroker,
        access_list: AccessList,
        wait: Callable[[LocalQueue], None],
        wait_filtered: Callable[[LocalQueue], None],
        confirm: Callable[[LocalQueue], None],
        on_output_pending: Callable[[Session], None],
        sooner: Callable[[], None],
        side_threads: SideThreads,
        limits: Limits,
    ) -> None:
        self.access_list = access_list
        self.quotas = Quotas(broker, limits)
        self.wait = wait
        self.wait_filtered = wait_filtered
        self.confirm = confirm
        self.on_output_pending = on_output_pending
        self.sooner = sooner
        #: Called with the name of a queue, its handle or None, and the status.
        self.attached: Callable[[str, LocalQueue | None, int], None]
        self._side_threads = side_threads
        #: The names whose lock timed out.
        self._held: dict[str, _LockRetry] = {}
        #: Since when each session with a request that was put back waits, on the monotonic clock.
        self._put_back: dict[Session, float] = {}
        self._broker = broker
        self._exchanging = ExchangeHandler(broker)
        self._tables = TableHandler(broker, self.quotas)
        self._limited_log = RateLimitedLog(log)
        self.streams = Streams(broker, self.stream_rights, self.quotas, side_threads)
        self._temporary = TemporaryQueues(broker, side_threads)
        self._audit = Audit(self._can_see)
        self._login_failures = LoginFailures()
        self._delayed = 0  # refused logins that wait for their answer
        #: Called for each failed login.
        self.login_failed: Callable[[], None] = lambda: None
        self._answers: dict[int, Callable[[Session, str, bytes], Payload]] = {
            **{
                of: functools.partial(self._check, of, *row)
                for of, row in self._build_operations().items()
            },
            Type.ROUTE: self._route,
            **self.streams.answers,
        }

    def _build_operations(self) -> dict[Type, tuple[Callable[[bytes], Any], _Handler]]:
        """How the payload of each request about a queue is read, and what carries it out."""
        return {
            Type.HELLO: (Hello.unpack, self._greet),
            Type.CREATE: (Create.unpack, self._create),
            Type.ALTER: (unpack_map, self._alter),
            Type.DELETE: (_read_delete, self._delete),
            Type.LIST: (List.unpack, self._list),
            Type.STATS: (check_empty, self._read_stats),
            Type.PURGE: (check_empty, self._purge),
            Type.PEEK: (Select.unpack, self._peek),
            Type.LEASES: (Leases.unpack, self._list_leases),
            Type.REDRIVE: (Select.unpack, self._redrive),
            Type.MOVE: (Move.unpack, self._move),
            Type.STAGE: (Stage.unpack_with_rows, self._stage),
            Type.PUBLISH: (Publish.unpack, self._publish),
            Type.STAGED: (Staged.unpack, self._change_staged),
            Type.SCHEMA: (SchemaRequest.unpack, self._change_schema),
            Type.EXCHANGE: (ExchangeRequest.unpack, self._exchange),
            Type.EXCHANGES: (Exchanges.unpack, self._list_exchanges),
            Type.TABLE: (TableRequest.unpack, self._answer_table),
            Type.NAMED_LEASE: (NamedLease.unpack, self._change_named_lease),
        }

    def attach(self, name: str) -> None:
        """Attach to the queue in a side thread, then call `attached`."""
        self._side_threads.do(lambda: self._open(name), lambda done: self._on_opened(name, done))

    def _open(self, name: str) -> LocalQueue:
        """Attach to the queue. Raises NoSuchQueue, NoSpace, SegmentError, LockTimeout.

        It may be exclusive to another client: see `_open_for`.
        """
        try:
            with scarce(f"queue {name!r}"):
                return self._broker.put_target(name)
        except NoSpace as error:
            self._limited_log.warning("%s", error)
            raise

    def _open_for(self, session: Session, name: str) -> LocalQueue:
        """The same, for more than puts and statistics. Raises Forbidden, too."""
        queue = self._open(name)
        try:
            self._temporary.check_owner(session, queue)
        except BaseException:
            queue.close()
            raise
        return queue

    def consume(self, session: Session, queue: LocalQueue) -> None:
        """Count the session as a consumer of the temporary queue."""
        self._temporary.consume(session, queue)

    def _on_opened(self, name: str, done: Future[LocalQueue]) -> None:
        error = done.exception()
        if error is None:
            self.attached(name, done.result(), Status.OK)
            return
        status = status_of(error) if isinstance(error, Exception) else Status.INTERNAL
        if status == Status.INTERNAL:
            self.failed(error)
        self.attached(name, None, status)

    def detach(self, queue: LocalQueue) -> None:
        """Close the queue's handle in a side thread."""
        self._side_threads.owe(f"queue {queue.name}: leaving it", queue.leave)

    def compile(self, where: str) -> Filter:
        """The filter of a client's expression. Raises InvalidOption."""
        return compile_filter(where, MOST_REMOTE)

    def rights(self, session: Session, name: str) -> int:
        """The session's rights to the queue of that name, whether it exists or not."""
        peer: Peer = session.context
        return peer.rights(self.access_list, name)

    def stream_rights(self, session: Session, name: str, group: str | None = None) -> int:
        """The session's rights to a stream, or to a group of it."""
        peer: Peer = session.context
        return peer.stream_rights(self.access_list, name, group)

    def refused(self, session: Session, kind: int, name: str, right: int) -> None:
        """Record that the engine has refused a request for lack of that right."""
        self._audit.refused(session, kind, name, right)

    def _can_see(self, session: Session, name: str) -> bool:
        """Whether the session has any right to a queue or a stream of that name."""
        return bool(self.rights(session, name) or self.stream_rights(session, name))

    def answer(self, session: Session, kind: int, name: str, rest: bytes) -> Answer:
        """Carry out a request: the status, and the payload of the answer.

        A request that may take long runs in a side thread, and delays only its own connection.
        """
        if kind not in ASIDE:
            return self._answer_here(session, kind, name, rest)
        if kind == Type.TABLE:
            payload = self._tables.ask_at_once(self._bind_rights(session), name, rest)
            if payload is not None:
                return Status.OK, payload
        held = self._held.get(name)
        if held is not None and held.until > time.monotonic():
            self._audit.answered(session, kind, name, rest, *held.answer)
            return held.answer
        asked = session.asked
        session.park()
        self._side_threads.do(
            lambda: self._carry_out(session, kind, name, rest),
            lambda done: self._on_answer(session, (asked, kind, name, rest), done),
        )
        return Status.OK, None

    def _on_answer(
        self, session: Session, request: tuple[int, int, str, bytes], done: Future[Answer]
    ) -> None:
        asked, kind, name, rest = request
        error = done.exception()
        if error is not None:
            self.failed(error)
        status, payload = (Status.INTERNAL, b"") if error is not None else done.result()
        self._audit.answered(session, kind, name, rest, status, payload)
        if status == Status.BUSY:
            self._held[name] = _LockRetry.after(self._held.get(name), (status, payload))
        else:
            self._held.pop(name, None)
        if session.closed:
            self._temporary.left(session)  # queues that were created for it in the meantime
        session.unpark(asked, kind, status, payload)

    def _answer_here(self, session: Session, kind: int, name: str, rest: bytes) -> Answer:
        """Carry it out now; while a lock that it needs is held, try again in a moment."""
        now = time.monotonic()
        held = self._held.get(name)
        if held is None or held.until <= now:
            answer = self._carry_out(session, kind, name, rest)
            if answer[0] != Status.BUSY:
                self._held.pop(name, None)
                self._put_back.pop(session, None)
                self._audit.answered(session, kind, name, rest, *answer)
                return answer
            held = self._held[name] = _LockRetry.after(held, answer)
        since = self._put_back.setdefault(session, now)
        if now - since >= _PUT_BACK_FOR:
            del self._put_back[session]
            self._audit.answered(session, kind, name, rest, *held.answer)
            return held.answer
        session.put_back()
        self._side_threads.later(held.pause, session.resume)
        return Status.OK, None

    def _carry_out(self, session: Session, kind: int, name: str, rest: bytes) -> Answer:
        try:
            with scarce(f"{name!r}"):
                return Status.OK, self._answer_of(kind)(session, name, rest)
        except Refusal as refusal:
            return refusal.status, refusal.payload
        except ShmqError as error:
            status, payload = refusal_of(error)
            if status == Status.INTERNAL:
                log.error("%s, %s of %s: %s", session.context, Type(kind).name, name, error)
            return status, payload

    def _answer_of(self, kind: int) -> Callable[[Session, str, bytes], Payload]:
        """The handler of a request type. The engine has checked the request's form."""
        answer = self._answers.get(kind)
        if answer is None:
            raise Refusal(Status.UNSUPPORTED, "this server does not support requests of this type")
        return answer

    def _check(
        self,
        kind: Type,
        unpack: Callable[[bytes], Any],
        carry_out: _Handler,
        session: Session,
        name: str,
        rest: bytes,
    ) -> Payload:
        """Check the request's form, its queue, and the right in the table; then carry it out."""
        asked = unpack(rest)
        right = RIGHTS.get(kind)
        if right is not None and not self.rights(session, name) & right:
            if kind == Type.DELETE:
                self._check_exists(name)  # a damaged queue can be deleted, but not opened
            elif kind != Type.CREATE:
                self._open(name).close()
            self._require(session, name, right)
        return carry_out(session, name, asked)

    def _check_exists(self, name: str) -> None:
        if not self._broker.has_queue(name):
            raise NoSuchQueue.of(name, "here")

    def failed(self, error: BaseException) -> None:
        """Log why a request was answered with INTERNAL, or a queue could not be used."""
        if isinstance(error, ShmqError):
            log.error("%s", error)
        else:
            log.error("internal error", exc_info=error)

    # ---- one request each ----

    def _greet(self, session: Session, _: str, asked: Hello) -> bytes | None:
        peer: Peer = session.context
        peer.client = asked.client[:100]
        if self.access_list.ask:
            peer.token = self.access_list.find(asked.token or "")
            if peer.token is None:
                self._reject_login(session, asked)
                return None
            self._login_failures.succeeded(peer.source)
            log.debug("%s: authenticated with token %r", peer, peer.token.name)
        session.supervise(asked.supervised)
        return Greeting(f"shmq/{VERSION}", session.engine.max_frame, self._broker.namespace).pack()

    def _reject_login(self, session: Session, asked: Hello) -> None:
        """Refuse a token: the later, the more of them the client's source has shown before."""
        peer: Peer = session.context
        self.login_failed()
        details = self._login_failures.failed(peer.source)
        if details is not None:
            reason = "unknown token" if asked.token else "no token"
            login_failed(session, reason, source=peer.source, **details)
        why = "no token, or an unknown one: show one that the server has"
        if self._delayed >= _MOST_DELAYED:
            raise Refusal(Status.UNAUTHORIZED, why)
        number = session.asked

        def answer() -> None:
            self._delayed -= 1
            session.unpark(number, Type.HELLO, Status.UNAUTHORIZED, why.encode())

        self._delayed += 1
        session.park()
        longest = _OF_HANDSHAKE * self.quotas.limits.handshake
        delay = min(self._login_failures.delay(peer.source), longest)
        self._side_threads.later(delay, answer)

    def _create(self, session: Session, name: str, asked: Create) -> bytes:
        given = asked.options
        try:
            wanted = QueueOptions.for_queue(name, without_sharing(given))
        except TypeError as error:
            raise Refusal(Status.BAD_REQUEST, str(error)) from error
        if not self._can_dead_letter(session, name, wanted.dead_letter):
            raise Refusal(
                Status.FORBIDDEN,
                f"dead_letter={wanted.dead_letter!r}: the token has no right to administer that",
            )
        with self.quotas.room_for(session, lambda: self._request_quota(name, wanted)):
            if asked.own:
                self._create_own(session, name, given)
            else:
                self._create_queue(session, name, given)
        return b""

    def _request_quota(self, name: str, wanted: QueueOptions) -> QuotaRequest | None:
        """The queues that a CREATE makes; None: the queue exists."""
        if self._broker.has_queue(name):
            return None
        sizes = {name: _core.segment_bytes(wanted.as_dict())}
        dead_letter_queue = wanted.dead_letter
        if dead_letter_queue is not None and not self._broker.has_queue(dead_letter_queue):
            sizes[dead_letter_queue] = _core.segment_bytes(wanted.for_dead_letters().as_dict())
        return QuotaRequest("queues", sizes, sum(sizes.values()))

    def _alter(self, session: Session, name: str, given: dict[str, Any]) -> bytes:
        with self._open_for(session, name) as queue:
            options = queue.options
        dead_letter = options.dead_letter
        if "dead_letter" in given and not self._can_see_dead_letters(session, name, dead_letter):
            raise Refusal(Status.FORBIDDEN, "dead_letter: the token has no right to that queue")
        with well_formed():
            options.altered(name, given)  # a key need not be a keyword
            with self.quotas.room_for(session, lambda: self._growth(session, name, given)):
                options = self._broker.alter_queue(name, **given)
        if not self._can_see_dead_letters(session, name, options.dead_letter):
            options = dataclasses.replace(options, dead_letter=None)
        return pack_map(options)

    def _growth(self, session: Session, name: str, given: dict[str, Any]) -> QuotaRequest | None:
        """The bytes that an ALTER adds; None: none."""
        with self._open_for(session, name) as queue:
            options = queue.options
        both = (options, options.altered(name, given))
        before, wanted = (_core.segment_bytes(one.as_dict()) for one in both)
        return QuotaRequest("queues", (), wanted - before) if wanted > before else None

    def _create_queue(self, session: Session, name: str, given: dict[str, Any]) -> None:
        try:
            made = self._broker.create_queue(name, **given)
        except QueueExists:
            with self._open_for(session, name) as queue:
                found = queue.options.dead_letter
            if self._can_see_dead_letters(session, name, found):
                raise
            raise Refusal(
                Status.QUEUE_EXISTS, f"queue {name!r} exists with other options"
            ) from None
        with made:
            if made.segment.is_exclusive:
                self._temporary.own(session, made)

    def _create_own(self, session: Session, name: str, given: dict[str, Any]) -> None:
        """Create an exclusive queue whose name is a reply queue's."""
        with well_formed(), self._broker.create_own_queue(name, **given) as made:
            self._temporary.own(session, made)

    def left(self, session: Session) -> None:
        """Remove the own queues of a session that has ended, and end its waits."""
        self._put_back.pop(session, None)
        self._audit.left(session)
        self.streams.left(session)
        self._temporary.left(session)

    def _delete(self, session: Session, name: str, with_dead_letters: bool) -> bytes:
        self._check_exists(name)
        dead_letters = own_dead_letters(name)
        self._broker.remove_queue(
            name, with_dead_letters and bool(self.rights(session, dead_letters) & Right.ADMIN)
        )
        return b""

    def _purge(self, session: Session, name: str, _: None) -> bytes:
        with self._open_for(session, name) as queue:
            return _COUNT.pack(queue.purge())

    def _list(self, session: Session, _: str, asked: List) -> bytes:
        if asked.tables:
            return List.pack_names(self._tables.names(self._bind_rights(session)))
        names = [
            name for name in self._broker.collection("queue").names() if self.rights(session, name)
        ]
        if asked.only_names:
            return List.pack_names(names)
        return QUEUES.pack(filter(None, map(self._broker.summary, names)))

    def _read_stats(self, session: Session, name: str, _: None) -> bytes:
        with self._open(name) as queue:
            options, attachments = queue.options, queue.attachments()
            stats, identity, unwritten = queue.stats(), queue.identity, queue.unwritten
            owner = self._temporary.owner_of(session, queue)
        if not self._can_see_dead_letters(session, name, options.dead_letter):
            options = dataclasses.replace(options, dead_letter=None)
        return QueueState(stats, options, attachments, identity, unwritten, owner).pack()

    def _redrive(self, session: Session, name: str, asked: Select) -> bytes:
        with self._open_for(session, name) as queue:
            if asked.where is not None:
                self._require(
                    session, name, Right.CONSUME
                )  # a filter reveals what messages contain
            moved = queue.redrive_some(
                None if asked.limit == FOREVER else asked.limit,
                asked.where,
                lambda origin: bool(self.rights(session, origin) & Right.ADMIN),
            )
        return _COUNT.pack(moved)

    def _move(self, session: Session, name: str, asked: Move) -> bytes:
        with well_formed():
            check_move(name, asked.to)
        self._require(session, asked.to, Right.PRODUCE)
        with self._open_for(session, name) as queue, well_formed():
            return _COUNT.pack(queue.move_to(asked.to, asked.most, where=asked.where))

    def _peek(self, session: Session, name: str, asked: Select) -> list[Message]:
        with self._open_for(session, name) as queue:
            return _select_some(queue.peeked(asked.limit, asked.where))

    def _list_leases(self, session: Session, name: str, asked: Leases) -> bytes:
        with self._open_for(session, name) as queue:
            found = queue.leases(min(asked.most, _LEASES), after=asked.after)
        return LeasesState(found, len(found) == _LEASES < asked.most).pack()

    def _change_named_lease(self, session: Session, name: str, asked: NamedLease) -> bytes:
        with self._open_for(session, name) as queue, well_formed():
            return NamedLeaseHandler(self.quotas.limits).ask(queue, asked).pack()

    def _stage(self, session: Session, name: str, stage: tuple[Stage, Rows]) -> bytes:
        asked, rows = stage
        with self._open(name) as queue, well_formed():

            def wished() -> QuotaRequest | None:
                staging = staging_name(name, asked.publisher)
                has = self._broker.has_queue(staging)
                return None if has else QuotaRequest("queues", [staging], asked.staging_bytes)

            with self.quotas.room_for(session, wished):
                queue.staged_publisher(asked.publisher).stage(
                    asked.batch, asked.part, rows, staging_bytes=asked.staging_bytes
                )
        return b""

    def _publish(self, _: Session, name: str, asked: Publish) -> bytes:
        with self._open(name) as queue, well_formed():
            publisher = queue.staged_publisher(asked.publisher)
            done = publisher.commit_some(asked.batch, asked.parts, _PUBLISHED)
        return Published(*done).pack()

    def _change_staged(self, _: Session, name: str, asked: Staged) -> bytes:
        with self._open(name) as queue, well_formed():
            publisher = queue.staged_publisher(asked.publisher)
            removed = 0
            if asked.action == "sweep":
                removed = publisher.sweep(asked.keep)
            elif asked.action == "discard":
                publisher.discard()
            return StagedState(publisher.sealed(), removed).pack()

    def _change_schema(self, session: Session, name: str, asked: SchemaRequest) -> bytes:
        if asked.action == "set":
            self._require(session, name, Right.ADMIN)
        with well_formed():
            return schema_answer(self._broker, name, asked).pack()

    def _exchange(self, session: Session, name: str, asked: ExchangeRequest) -> bytes:
        with well_formed():
            return self._exchanging.ask(self._bind_rights(session), name, asked)

    def _list_exchanges(self, session: Session, _: str, __: Exchanges) -> bytes:
        return EXCHANGES.pack(self._exchanging.summaries(self._bind_rights(session)))

    def _answer_table(self, session: Session, name: str, asked: TableRequest) -> bytes:
        with well_formed():
            return self._tables.ask(session, self._bind_rights(session), name, asked)

    def _route(self, session: Session, name: str, rest: bytes) -> bytes:
        with well_formed():
            return self._exchanging.route(self._bind_rights(session), name, rest).pack()

    # ---- rights ----

    def _bind_rights(self, session: Session) -> Callable[[str], int]:
        return functools.partial(self.rights, session)

    def _require(self, session: Session, name: str, right: Right) -> None:
        if not self.rights(session, name) & right:
            raise Refusal(Status.FORBIDDEN, f"the token has no right to {_ALLOWED[right]} {name!r}")

    def _can_dead_letter(self, session: Session, name: str, dead_letter: str | None) -> bool:
        """Whether the session may use, and so create, that dead-letter queue."""
        if dead_letter is None or dead_letter == own_dead_letters(name):
            return True
        return bool(self.rights(session, dead_letter) & Right.ADMIN)

    def _can_see_dead_letters(self, session: Session, name: str, dead_letter: str | None) -> bool:
        """Whether the session may know of the queue's dead-letter queue."""
        if dead_letter is None or dead_letter == own_dead_letters(name):
            return True
        return bool(self.rights(session, dead_letter))


def _read_delete(rest: bytes) -> bool:
    """Whether the empty dead-letter queue is to go, too. Raises Refusal."""
    if rest not in {b"", b"\1"}:
        raise Refusal.bad("behind the name is nothing, or u8 1")
    return bool(rest)


def _select_some(copies: Iterator[Message]) -> list[Message]:
    """The first messages, at least one, until their bodies reach `_PEEKED`."""
    found: list[Message] = []
    size = 0
    for copy in copies:
        found.append(copy)
        size += copy.view.nbytes
        if size >= _PEEKED:
            break
    return found
