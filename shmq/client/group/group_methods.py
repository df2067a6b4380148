"""The methods of a stream of this host that are about its groups."""

from __future__ import annotations

import functools
from typing import Any, cast

from shmq import contract
from shmq.client.groups import files
from shmq.client.groups.burial import Graves
from shmq.client.groups.group import LocalGroup, open_group, summaries
from shmq.client.groups.place import Place
from shmq.client.groups.share import LocalShare, open_share
from shmq.client.openers import attach
from shmq.errors import NoSuchGroup, ShmqError, StreamDeleted
from shmq.registry import Namespace

__all__ = ["Grouping"]


class Grouping:
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
        assignment: contract.Assignment | None = None,
        *,
        session_timeout: float | None = None,
        start: contract.GroupStart = "earliest",
    ) -> LocalGroup:
        """See :class:`shmq.contract.Stream`."""
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
        """See :class:`shmq.contract.Stream`."""
        self.check_there()
        stream = cast("Any", self)
        return open_share(self._namespace, stream, name, _graves(self), **options)

    def groups(self) -> list[contract.GroupSummary]:
        """See :class:`shmq.contract.Stream`."""
        self.check_there()
        return summaries(self._namespace, cast("contract.Stream", self))

    def delete_group(self, name: str) -> None:
        """See :class:`shmq.contract.Stream`."""
        self.check_there()
        stream = cast("contract.Stream", self)
        roster = files.look_at(self._namespace, stream.identity, name)
        if roster is not None:
            Place(self._namespace, stream, name, roster).let_go()
        if not files.remove(self._namespace, stream.identity, name):
            raise NoSuchGroup(
                f"the stream {stream.name!r} has no group {name!r}: see `shmq stream groups`"
            )


def _graves(stream: Grouping) -> Graves:
    return Graves(functools.partial(attach, "queue", stream._namespace))
