"""What a publish carries: the body, the queue, and the properties of a put."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, TypedDict, cast

from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand, Response

from shmq.api.options import Confirm, Level


class PutOptions(TypedDict, total=False):
    """The properties of a put that FastStream has no name for; see :meth:`shmq.Queue.put`."""

    # properties that FastStream does not name: made by tools/options.py
    priority: int | Level | None
    group: str | None
    delay: float | dt.timedelta | None
    deliver_at: float | dt.datetime | None
    ttl: float | dt.timedelta | None
    dedupe_id: str | None
    confirm: Confirm | None
    # end


class ShmqPublishCommand(BatchPublishCommand):
    """One message, or several of a batch, on their way to a queue."""

    def __init__(
        self,
        body: Any,
        /,
        *bodies: Any,
        _publish_type: PublishType,
        queue: str = "",
        correlation_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
        reply_to: str = "",
        timeout: float | None = None,
        options: PutOptions | None = None,
    ) -> None:
        super().__init__(
            body,
            *bodies,
            _publish_type=_publish_type,
            reply_to=reply_to,
            destination=queue,
            correlation_id=correlation_id,
            headers=dict(headers or {}),
        )
        #: How long a put waits for room, or a request for its reply, in seconds.
        self.timeout = timeout
        #: The properties of the put.
        self.options: PutOptions = options or {}
        #: By which the asker of a request knows the reply.
        self.asked_as: str | None = None
        #: The options that the queue is made with.
        self.queue_options: Mapping[str, Any] = {}

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> ShmqPublishCommand:
        """The command, if it is one of shmq; another as one."""
        if isinstance(cmd, ShmqPublishCommand):
            return cmd
        body, bodies = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *bodies,
            queue=cmd.destination,
            correlation_id=cmd.correlation_id,
            headers=cmd.headers,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )


class ShmqResponse(Response):
    """What a handler returns to set headers and properties of the message that is published."""

    def __init__(
        self,
        body: Any = None,
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(body, headers=dict(headers or {}), correlation_id=correlation_id)
        self._options = cast("PutOptions", options)

    def as_publish_command(self) -> ShmqPublishCommand:
        """The command that publishes it; the publisher sets the queue."""
        return ShmqPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            options=self._options,
            _publish_type=PublishType.PUBLISH,
        )
