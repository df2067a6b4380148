"""The port of an exchange: what a transport does for the handle that keeps the contract."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Literal

from shmq import api


class ExchangePort(abc.ABC):
    """An exchange of a transport, besides its name, kind and alternate.

    Arguments were checked and have no defaults. All methods raise NoSuchExchange if it was deleted.
    A transport's class inherits :class:`~shmq.client.handles.exchange.ExchangeHandle`, and
    implements the port, and ``bindings`` and ``stats`` of the contract.
    """

    @abc.abstractmethod
    def change_binding(
        self, action: Literal["bind", "unbind"], binding: list[Any], given: Mapping[str, Any]
    ) -> bool:
        """Bind or unbind, and return whether that changed anything.

        ``binding`` is as in an operation of :mod:`shmq.model.routing.table`, ``given`` the
        arguments of ``Exchange.bind``. Raises NoSuchQueue, NoSuchStream and NoSuchExchange if there
        is not a target to bind.
        """

    @abc.abstractmethod
    def route(
        self,
        bodies: list[Any],
        key: str,
        block: bool | None,
        until: float | None,
        confirm: Any,
        mandatory: bool,
        properties: Mapping[str, Any],
    ) -> api.Published:
        """Put copies of the bodies, in order, into the queues and streams that the key leads to.

        ``block`` None: wait where the queue does, or if there is an ``until`` (monotonic). Raises
        what a put raises that can never succeed, PublishRefused, and if ``mandatory`` Unroutable.
        """
