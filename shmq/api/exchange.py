"""The contract of an exchange: one message, a copy of it into each queue that is bound."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from shmq.api.closing import Closing

if TYPE_CHECKING:
    from shmq.api.message import Body

#: How an exchange chooses among its bindings.
ExchangeKind = Literal["direct", "topic", "fanout", "headers"]

#: What a binding can lead to.
TargetKind = Literal["queue", "stream", "exchange"]

#: How many of a binding's headers a message must have.
Match = Literal["all", "any"]


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """What became of one publish."""

    #: How many new messages there are: of each body, one in each queue that was reached.
    delivered: int
    #: How many of them queues knew already, by their ``dedupe_id``, and did not take again.
    duplicates: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """What an exchange passes on, and to whom."""

    #: The name of the queue, stream or exchange.
    target: str
    #: Which of these it is.
    kind: TargetKind = "queue"
    #: Direct: the key; topic: the pattern; else empty.
    key: str = ""
    #: Of a headers exchange: the headers a message must have; a value of None is any value.
    headers: Mapping[str, Any] | None = None
    #: Of a headers exchange: whether it must have all of them, or one.
    match: Match = "all"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSummary:
    """An exchange's line in the list."""

    #: Its name.
    name: str
    #: How it chooses among its bindings.
    kind: ExchangeKind
    #: The exchange that gets what this one's bindings do not take; None: nobody does.
    alternate: str | None
    #: How many bindings it has.
    bindings: int


class Exchange(Closing):
    """Puts a copy of what is published into each queue and stream whose binding matches.

    A ``direct`` exchange passes on what has the binding's key; a ``topic`` exchange what its
    pattern matches, where ``*`` stands for one word and ``#`` for any number, none included,
    and words are separated by dots; a ``fanout`` exchange everything; a ``headers`` exchange
    what has the binding's headers. It keeps nothing itself. Every method raises
    :class:`~shmq.NoSuchExchange` once it is deleted, and :class:`~shmq.ShmqError` once the
    broker is closed. Threads may share it.
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
        """The exchange that gets what none of the bindings takes; None: nobody does."""

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
        """Pass on to the queue ``target``, or to the stream or exchange that ``kind`` says.

        ``headers`` and ``match`` are for a headers exchange: a message must have ``all`` of
        them with these values, or ``any`` one; a value of None stands for any. Returns False
        if it is bound so already. The binding lasts until it is unbound, or either of the two
        is deleted. Raises :class:`~shmq.NoSuchQueue`, :class:`~shmq.NoSuchStream` or
        :class:`~shmq.NoSuchExchange` if the target is not there,
        :class:`~shmq.InvalidOption` for what an exchange of this kind does not take,
        :class:`~shmq.NoSpace`, and TypeError.
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
        """Undo a ``bind`` of the same arguments; returns False if there was none."""

    @abc.abstractmethod
    def bindings(self) -> list[Binding]:
        """What it is bound to, sorted by target and key."""

    @abc.abstractmethod
    def publish(
        self,
        body: Body,
        key: str = "",
        block: bool | None = None,
        timeout: float | None = None,
        **properties: Any,
    ) -> Published:
        """Put one copy into each queue that the key, or the headers, lead to.

        The properties are those of :meth:`Queue.put <shmq.Queue.put>`, ``confirm`` included. A
        queue gets one copy, however many ways lead to it. To a stream one record is appended,
        with the key, the headers and the codec; the other properties mean nothing there. In
        what follows a stream is as a queue, and is called ``stream/NAME`` where it refuses.
        Where none of an exchange's bindings matches, its ``alternate`` gets the message.

        Raises :class:`~shmq.Unroutable` if it reaches no queue, and nothing is put. What no
        put of this message could do (a property out of range, a body too large for one of the
        queues) raises what ``put`` raises, and nothing is put either. Queues that are full
        hold back no others: those with room have their copy at once, then the full ones are
        waited for, as ``put`` waits with ``block`` and ``timeout``. If some queue did not take
        its copy then, :class:`~shmq.PublishRefused` says how many have it, and which refused
        and why. A publisher that dies on the way leaves some queues with a copy and others
        without: a ``dedupe_id`` makes it safe to publish again.
        """

    @abc.abstractmethod
    def publish_many(
        self,
        bodies: Iterable[Body],
        key: str = "",
        block: bool | None = None,
        timeout: float | None = None,
        **properties: Any,
    ) -> Published:
        """``publish`` of each of the ``bodies`` with the same key and properties, in order.

        The properties are those of :meth:`Queue.put_many <shmq.Queue.put_many>`; the timeout
        is for all of it. In :class:`~shmq.PublishRefused`, a queue that took only the first
        few says how many.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Detach from the queues it has put into. May be called again."""
