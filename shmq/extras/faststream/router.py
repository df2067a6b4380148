"""Subscribers and publishers that a broker includes, under a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fast_depends.dependencies import Dependant
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.middlewares import AckPolicy

import shmq
from shmq.extras.faststream.config import ShmqBrokerConfig
from shmq.extras.faststream.queue import ShmqQueue
from shmq.extras.faststream.registrator import ShmqRegistrator


class ShmqRoutePublisher(ArgsContainer):
    """The arguments of ``publisher``, for a :class:`ShmqRoute`."""

    def __init__(self, queue: ShmqQueue | str, **how: Any) -> None:
        super().__init__(queue, **how)


class ShmqRoute(SubscriberRoute):
    """A handler with the arguments of ``subscriber``, for a router that is made with it."""

    def __init__(
        self,
        call: Callable[..., Any],
        queue: ShmqQueue | str,
        *,
        publishers: Iterable[ShmqRoutePublisher] = (),
        **how: Any,
    ) -> None:
        super().__init__(call, queue, publishers=publishers, **how)


class ShmqRouter(ShmqRegistrator, BrokerRouter[shmq.Message, ShmqBrokerConfig]):
    """Declares subscribers and publishers; the names of their queues begin with ``prefix``."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[ShmqRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any]] = (),
        routers: Iterable[ShmqRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        super().__init__(
            handlers=handlers,
            config=ShmqBrokerConfig(
                prefix=prefix,
                ack_policy=ack_policy,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                include_in_schema=include_in_schema,
            ),
            routers=routers,
        )
