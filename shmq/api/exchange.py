"""The contract of an exchange, which puts a copy of a message into each bound queue."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from shmq.api.contract import Closing
from shmq.api.options import Match, Options, TargetKind, option

if TYPE_CHECKING:
    from shmq.api.keywords import PutKeywords, PutManyKeywords
    from shmq.api.message import Body

#: How an exchange chooses among its bindings.
ExchangeKind = Literal["direct", "topic", "fanout", "headers"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOptions(Options):
    """The options that an exchange was created with."""

    kind: ExchangeKind = option(
        "direct",
        "choice",
        "How it chooses among its bindings: by equal key, by key pattern, all, or by headers",
        choices=get_args(ExchangeKind),
    )
    alternate: str | None = option(
        None,
        "name",
        "The exchange that gets the messages that no binding matches; it may be created later",
        none="such a message is unrouted: see `mandatory` of `publish`",
        noun="exchange",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """The result of one publish."""

    #: How many new messages there are: one for each body and each queue that it reached.
    delivered: int
    #: How many copies were not put because the queue already knew their ``dedupe_id``.
    duplicates: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """One binding: which messages an exchange passes on, and to which target."""

    #: The name of the queue, stream or exchange.
    target: str
    #: The kind of the target.
    kind: TargetKind = "queue"
    #: For a direct exchange the key; for a topic exchange the pattern; otherwise empty.
    key: str = ""
    #: For a headers exchange: the headers a message must have; None stands for any value.
    headers: Mapping[str, Any] | None = None
    #: For a headers exchange: whether a message must have all of them, or any one.
    match: Match = "all"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeStats:
    """What was published to an exchange since it was created, by all processes together.

    The numbers are in shared memory: they are 0 again after a restart of the host. None: they are
    not counted, as in a NATS cluster, or because shared memory was full.
    """

    #: Messages that were published to it, without those that another exchange passed on to it.
    published: int | None = None
    #: How many of them reached no queue or stream, whether or not the publish raised `Unroutable`.
    unrouted: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSummary:
    """One entry of the list of exchanges."""

    #: Its name.
    name: str
    #: How it chooses among its bindings.
    kind: ExchangeKind
    #: The exchange that gets the messages that match no binding of this one; None: there is none.
    alternate: str | None
    #: How many bindings it has.
    bindings: int
    #: Messages that were published to it; see :class:`ExchangeStats`.
    published: int | None = None
    #: How many of them reached no queue or stream.
    unrouted: int | None = None


class Exchange(Closing):
    """Puts a copy of each published message into each queue and stream whose binding matches.

    A ``direct`` exchange matches messages that have the binding's key; a ``topic`` exchange those
    whose key matches the binding's pattern, where words are separated by dots, ``*`` stands for one
    word and ``#`` for any number of words, including none; a ``fanout`` exchange all; a ``headers``
    exchange those that have the binding's headers. An exchange stores no messages. Every method
    raises :class:`~shmq.NoSuchExchange` once the exchange is deleted, and :class:`~shmq.ShmqError`
    once the broker is closed. Threads may share it.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The exchange's name."""

    @property
    @abc.abstractmethod
    def kind(self) -> ExchangeKind:
        """How it chooses among its bindings."""

    @property
    @abc.abstractmethod
    def alternate(self) -> str | None:
        """The exchange that gets the messages that match no binding; None: there is none."""

    @abc.abstractmethod
    def bind(
        self,
        target: str,
        key: str = "",
        *,
        kind: TargetKind = "queue",
        headers: Mapping[str, Any] | None = None,
        match: Match = "all",
    ) -> bool:
        """Pass matching messages on to ``target``: a queue, or a stream or exchange by ``kind``.

        ``headers`` and ``match`` are for a headers exchange: a message must have ``all`` of the
        headers with these values, or ``any`` one; None stands for any value. Returns False if the
        binding already exists. It lasts until it is removed, or the exchange or the target is
        deleted. Raises :class:`~shmq.NoSuchQueue`, :class:`~shmq.NoSuchStream` or
        :class:`~shmq.NoSuchExchange` if the target does not exist, :class:`~shmq.InvalidOption` for
        an argument that this kind of exchange does not take, :class:`~shmq.NoSpace`, and TypeError.
        """

    @abc.abstractmethod
    def unbind(
        self,
        target: str,
        key: str = "",
        *,
        kind: TargetKind = "queue",
        headers: Mapping[str, Any] | None = None,
        match: Match = "all",
    ) -> bool:
        """Remove the binding with these arguments; returns False if there was none."""

    @abc.abstractmethod
    def bindings(self) -> list[Binding]:
        """The bindings of the exchange, sorted by target and key."""

    @abc.abstractmethod
    def publish(
        self,
        body: Body,
        key: str = "",
        block: bool | None = None,
        timeout: float | None = None,
        *,
        mandatory: bool | None = None,
        **properties: Unpack[PutKeywords],
    ) -> Published:
        """Put one copy into each queue that the key or the headers route to.

        The properties are those of :meth:`Queue.put <shmq.Queue.put>`, including ``confirm``. A
        queue gets one copy, however many bindings lead to it. To a stream one record is appended,
        with the key, the headers and the codec; the other properties do not apply there. What
        follows holds for streams as for queues; errors call a stream ``stream/NAME``. If no binding
        of an exchange matches, its ``alternate`` gets the message.

        A message that reaches no queue or stream is unrouted: nothing is put, and it is counted in
        :meth:`stats`. With ``mandatory=True`` :class:`~shmq.Unroutable` is raised, with
        ``mandatory=False`` the call returns with ``delivered=0``. None: as True for a direct or
        headers exchange, as False for a topic or fanout exchange. An
        error that any put of this message would raise (a property out of range, a body too large
        for one of the queues) is raised before anything is put. Full queues do not hold up others:
        queues with room get their copy at once, then the call waits for the full ones, as ``put``
        waits with ``block`` and ``timeout``. If some queue still did not take its copy,
        :class:`~shmq.PublishRefused` says how many queues have it, and which refused it and why. A
        publisher that dies in between leaves some queues with a copy and others without: with a
        ``dedupe_id`` it is safe to publish again to queues with a ``dedupe_window``; queues without
        one ignore it.
        """

    @abc.abstractmethod
    def publish_many(
        self,
        bodies: Iterable[Body],
        key: str = "",
        block: bool | None = None,
        timeout: float | None = None,
        *,
        mandatory: bool | None = None,
        **properties: Unpack[PutManyKeywords],
    ) -> Published:
        """``publish`` each of the ``bodies`` with the same key and properties, in order.

        The properties are those of :meth:`Queue.put_many <shmq.Queue.put_many>`; the timeout covers
        the whole call. :class:`~shmq.PublishRefused` says for each queue that took only the first
        bodies how many it took.
        """

    @abc.abstractmethod
    def stats(self) -> ExchangeStats:
        """Return how many messages were published to the exchange, and how many were unrouted."""

    @abc.abstractmethod
    def close(self) -> None:
        """Detach from the queues that it has put into. May be called again."""
