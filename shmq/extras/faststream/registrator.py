"""Declares subscribers and publishers, of brokers and of routers; and the routers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack, cast

from fast_depends.dependencies import Dependant
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.middlewares import AckPolicy

import shmq
from shmq.api.options import check_whole
from shmq.errors import InvalidOption
from shmq.extras.faststream.command import PutOptions
from shmq.extras.faststream.config import (
    ShmqBrokerConfig,
    ShmqPublisherConfig,
    ShmqPublisherSpecificationConfig,
    ShmqQueue,
    ShmqSubscriberConfig,
    ShmqSubscriberSpecificationConfig,
)
from shmq.extras.faststream.publisher import ShmqPublisher
from shmq.extras.faststream.specification import (
    ShmqPublisherSpecification,
    ShmqSubscriberSpecification,
)
from shmq.extras.faststream.subscriber import ShmqSubscriber


class ShmqRegistrator(Registrator[shmq.Message, ShmqBrokerConfig]):
    """What a broker and a router have in common."""

    def subscriber(  # type: ignore[override]
        self,
        queue: ShmqQueue | str,
        *,
        max_workers: int = 1,
        prefetch: int | None = None,
        where: str | None = None,
        batch: bool = False,
        max_records: int = 100,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> ShmqSubscriber:
        """Subscribe a handler to a queue.

        ``max_workers`` messages are handled at a time, and ``prefetch`` are leased ahead (None: as
        many as workers). ``where`` chooses messages, as for :meth:`shmq.Queue.get`. With ``batch``
        the handler gets a list of up to ``max_records`` messages that are there. A handler that
        raises rejects its message, unless ``ack_policy`` says otherwise. The other arguments are
        FastStream's. Raises :class:`~shmq.InvalidOption` and :class:`~shmq.InvalidName`.
        """
        _check_numbers(max_workers, prefetch, max_records if batch else None)
        named = ShmqQueue.of(queue)
        config = ShmqSubscriberConfig(
            queue=named,
            prefetch=1 if batch else (prefetch or max_workers),
            max_workers=max_workers,
            where=where,
            batch=max_records if batch else None,
            no_reply=no_reply,
            _outer_config=cast("ShmqBrokerConfig", self.config),
            _ack_policy=ack_policy,
        )
        calls = CallsCollection[Any]()
        specification = ShmqSubscriberSpecification(
            cast("ShmqBrokerConfig", self.config),
            ShmqSubscriberSpecificationConfig(
                queue=named,
                title_=title,
                description_=description,
                include_in_schema=include_in_schema,
            ),
            calls,
        )
        made = ShmqSubscriber(config, specification, calls)
        super().subscriber(made, persistent=persistent)
        return made.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        queue: ShmqQueue | str,
        *,
        headers: Mapping[str, Any] | None = None,
        reply_to: str = "",
        batch: bool = False,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
        **options: Unpack[PutOptions],
    ) -> ShmqPublisher:
        """Publish to a queue: what a handler returns, or ``publish`` of the publisher.

        ``headers`` and the properties of a put are those of each message. With ``batch`` a list
        that a handler returns is as many messages. The other arguments are FastStream's.
        """
        named = ShmqQueue.of(queue)
        config = ShmqPublisherConfig(
            queue=named,
            headers=headers or {},
            reply_to=reply_to,
            batch=batch,
            options=cast("Mapping[str, Any]", options),
            _outer_config=cast("ShmqBrokerConfig", self.config),
        )
        specification = ShmqPublisherSpecification(
            _outer_config=cast("ShmqBrokerConfig", self.config),
            specification_config=ShmqPublisherSpecificationConfig(
                queue=named,
                schema_=schema,
                title_=title,
                description_=description,
                include_in_schema=include_in_schema,
            ),
        )
        made = ShmqPublisher(config, specification)
        super().publisher(made, persistent=persistent)
        return made

    def include_router(
        self,
        router: Registrator[Any, Any],
        *,
        prefix: str = "",
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any]] = (),
        include_in_schema: bool | None = None,
    ) -> None:
        """Take over what the router declares. Raises TypeError for one of another broker."""
        if not isinstance(router, ShmqRegistrator):
            raise TypeError(f"a router of shmq is a ShmqRouter, not {type(router).__name__}")
        super().include_router(
            router,
            prefix=prefix,
            dependencies=dependencies,
            middlewares=middlewares,
            include_in_schema=include_in_schema,
        )


def _check_numbers(max_workers: int, prefetch: int | None, max_records: int | None) -> None:
    check_whole("max_workers", max_workers, 1)
    if prefetch is not None:
        check_whole("prefetch", prefetch, 1)
    if max_records is not None:
        check_whole("max_records", max_records, 1)
        if prefetch not in (None, 1):
            raise InvalidOption(f"prefetch={prefetch} is not for batches: use max_records")


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
