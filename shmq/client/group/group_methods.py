"""The methods of a stream of this host that are about its groups."""

from __future__ import annotations

import functools
from typing import Any, cast

from shmq import api
from shmq.client.group.dead_letters import DeadLetterQueues
from shmq.client.group.group import LocalGroup, open_group, summaries
from shmq.client.group.group_context import GroupContext
from shmq.client.group.share import LocalShare, open_share
from shmq.client.shared.openers import attach
from shmq.errors import NoSuchGroup, ShmqError, StreamDeleted
from shmq.namespace import group_files
from shmq.namespace.namespace import Namespace

__all__ = ["GroupMethods"]


class GroupMethods:
    """What a stream inherits that knows its ``_namespace``."""

    _namespace: Namespace

    def check_there(self) -> None:
        """Raises StreamDeleted, and ShmqError if this handle is closed."""
        stream: Any = self
        if stream.closed:
            raise ShmqError(f"this handle of stream {stream.name!r} is closed")
        if stream.is_gone:
            raise StreamDeleted(f"stream {stream.name!r} was deleted")

    def group(
        self,
        name: str,
        assignment: api.Assignment | None = None,
        *,
        session_timeout: float | None = None,
        start: api.GroupStart = "earliest",
    ) -> LocalGroup:
        """See :class:`shmq.api.Stream`."""
        self.check_there()
        return open_group(
            self._namespace,
            cast("Any", self),
            name,
            assignment=assignment,
            session_timeout=session_timeout,
            start=start,
        )

    def share(self, name: str, **options: Any) -> LocalShare:
        """See :class:`shmq.api.Stream`."""
        self.check_there()
        stream = cast("Any", self)
        return open_share(self._namespace, stream, name, _dead_letter_queues(self), **options)

    def groups(self) -> list[api.GroupSummary]:
        """See :class:`shmq.api.Stream`."""
        self.check_there()
        return summaries(self._namespace, cast("api.Stream", self))

    def delete_group(self, name: str) -> None:
        """See :class:`shmq.api.Stream`."""
        self.check_there()
        stream = cast("api.Stream", self)
        group_state = group_files.look_at(self._namespace, stream.identity, name)
        if group_state is not None:
            GroupContext(self._namespace, stream, name, group_state).let_go()
        if not group_files.remove(self._namespace, stream.identity, name):
            raise NoSuchGroup(
                f"the stream {stream.name!r} has no group {name!r}: see `shmq stream groups`"
            )


def _dead_letter_queues(stream: GroupMethods) -> DeadLetterQueues:
    return DeadLetterQueues(functools.partial(attach, "queue", stream._namespace))
