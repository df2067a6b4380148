"""Queues as subscribers name them, and what a broker, its routers and subscribers share."""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY
from faststream._internal.context import ContextRepo
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import DefaultCodec
from faststream.exceptions import IncorrectState
from faststream.middlewares import AckPolicy

import shmq
from shmq.api.contract import unwrapped
from shmq.api.names import given_name, with_dead_letter
from shmq.api.options import QueueOptions
from shmq.client.local.broker import LocalBroker
from shmq.client.shared.blocking_calls import run_blocking

if TYPE_CHECKING:
    from typing import Unpack

    from shmq.api.keywords import QueueKeywords


@dataclasses.dataclass(frozen=True, init=False)
class ShmqQueue:
    """A queue by its name, and the options that it is made with if it does not exist.

    The name is any text of 1 to 1,024 bytes. Raises :class:`~shmq.InvalidName`, and
    :class:`~shmq.InvalidOption` for an unknown option or a value out of range.
    """

    #: The queue's name, without the prefix of a router.
    name: str
    #: The options by name: the fields of :class:`shmq.QueueOptions`.
    options: Mapping[str, Any]

    def __init__(self, name: str, **options: Unpack[QueueKeywords]) -> None:
        shared = given_name(name)
        QueueOptions.for_queue(shared, with_dead_letter(shared, options))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", dict(options))

    @property
    def shared_name(self) -> str:
        """The queue's name in shmq: a text that is not a name, or too long for one, is escaped."""
        return given_name(self.name)

    @classmethod
    def of(cls, queue: ShmqQueue | str) -> ShmqQueue:
        """The queue, or that of the name."""
        return queue if isinstance(queue, ShmqQueue) else cls(queue)

    def named(self, prefix: str) -> ShmqQueue:
        """The queue with a router's prefix before its name."""
        return ShmqQueue(prefix + self.name, **self.options) if prefix else self

    def __hash__(self) -> int:
        return hash(self.name)


#: How many queues a broker keeps open to put into them.
_KEPT: Final = 256


class Queues:
    """The queues that a broker puts into, each opened once; the least recently used ones go."""

    def __init__(self, broker: shmq.Broker, options: Mapping[str, Any]) -> None:
        self._broker = broker
        self._options = options
        self._open: OrderedDict[str, shmq.Queue] = OrderedDict()

    async def of(self, queue: ShmqQueue, *, make: bool) -> shmq.Queue:
        """The queue, which is made if it does not exist and ``make`` is true.

        Raises :class:`~shmq.NoSuchQueue`, and what ``Broker.ensure_queue`` raises.
        """
        name = queue.shared_name
        found = self._open.get(name)
        if found is None:
            found = await run_blocking(self.open, queue, make=make)
            self._open[name] = found
            if len(self._open) > _KEPT:
                self._open.popitem(last=False)  # its last user closes it, by letting it go
        else:
            self._open.move_to_end(name)
        return found

    def open(self, queue: ShmqQueue, *, make: bool) -> shmq.Queue:
        """A handle of the queue that is the caller's own."""
        name = queue.shared_name
        if not make:
            return self._broker.put_target(name)
        options = with_dead_letter(name, {**self._options, **queue.options})
        return self._broker.ensure_queue(name, **options)

    def forget(self, queue: ShmqQueue) -> None:
        """Open the queue again the next time: it was deleted."""
        self._open.pop(queue.shared_name, None)


@dataclasses.dataclass(kw_only=True)
class ShmqBrokerConfig(BrokerConfig):
    """The configuration of a broker or a router, with the connection of the broker."""

    #: The options of queues that are made, where a queue says nothing else.
    queue_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    _client: shmq.Broker | None = dataclasses.field(default=None, init=False, repr=False)
    _queues: Queues | None = dataclasses.field(default=None, init=False, repr=False)
    #: Whether subscribers read queues; false in tests in memory.
    reads: bool = dataclasses.field(default=True, init=False, repr=False)
    #: Whether settlements wait for a server.
    waits: bool = dataclasses.field(default=False, init=False, repr=False)

    @property
    def client(self) -> shmq.Broker:
        """The connection. Raises IncorrectState if the broker is not connected."""
        if self._client is None:
            raise IncorrectState("the broker is not connected: call connect() or start() first")
        return self._client

    @property
    def queues(self) -> Queues:
        """The queues to put into. Raises IncorrectState if the broker is not connected."""
        if self._queues is None:
            raise IncorrectState("the broker is not connected: call connect() or start() first")
        return self._queues

    def connect(self, client: shmq.Broker) -> None:
        """Use this connection from now on."""
        self._client = client
        self._queues = Queues(client, self.queue_options)
        self.waits = not isinstance(unwrapped(client), LocalBroker)
        self.producer.connect(self, self.broker_codec or DefaultCodec())  # type: ignore[attr-defined]

    def disconnect(self) -> None:
        """Use no connection any more."""
        self._client = self._queues = None


@dataclasses.dataclass(kw_only=True)
class ShmqSubscriberConfig(SubscriberUsecaseConfig):
    """What a subscriber reads, and how."""

    _outer_config: ShmqBrokerConfig = dataclasses.field(default_factory=ShmqBrokerConfig)
    queue: ShmqQueue
    prefetch: int
    max_workers: int
    where: str | None
    #: The most messages of a batch; None: messages are handled one by one.
    batch: int | None

    @property
    def ack_policy(self) -> AckPolicy:
        """The subscriber's own policy, or the broker's, or FastStream's usual one."""
        if self._ack_policy is not EMPTY:
            return self._ack_policy
        outer = self._outer_config.ack_policy
        return AckPolicy.REJECT_ON_ERROR if outer is EMPTY else outer


@dataclasses.dataclass(kw_only=True)
class ShmqSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """What the AsyncAPI page says of a subscriber."""

    queue: ShmqQueue


@dataclasses.dataclass(kw_only=True)
class ShmqPublisherConfig(PublisherUsecaseConfig):
    """Where a publisher puts its messages, and with which properties."""

    _outer_config: ShmqBrokerConfig = dataclasses.field(default_factory=ShmqBrokerConfig)
    queue: ShmqQueue
    headers: Mapping[str, Any]
    reply_to: str
    batch: bool
    options: Mapping[str, Any]


@dataclasses.dataclass(kw_only=True)
class ShmqPublisherSpecificationConfig(PublisherSpecificationConfig):
    """What the AsyncAPI page says of a publisher."""

    queue: ShmqQueue


class _LoggerStorage(DefaultLoggerStorage):
    """Makes the logger of a broker, with a column as wide as the longest name of a queue."""

    def __init__(self) -> None:
        super().__init__()
        self._widest = 4
        self._level = logging.INFO

    def set_level(self, level: int) -> None:
        self._level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        self._widest = max(self._widest, len(params.get("queue", "")))

    def get_logger(self, *, context: ContextRepo) -> Any:
        logger = self._get_logger_ref()
        if logger is None:
            logger = get_broker_logger(
                name="shmq",
                default_context={"queue": ""},
                message_id_ln=10,
                fmt=(
                    f"%(asctime)s %(levelname)-8s - %(queue)-{self._widest}s | "
                    "%(message_id)-10s - %(message)s"
                ),
                context=context,
                log_level=self._level,
            )
            self._logger_ref.add(logger)
        return logger


logger_state = partial(make_logger_state, default_storage_cls=_LoggerStorage)
