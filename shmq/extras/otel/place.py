"""What spans and metrics say of the destination of an operation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from shmq.api.names import is_reply_name

GROUP: Final = "messaging.consumer.group.name"
_NAME: Final = "messaging.destination.name"
_TEMPLATE: Final = "messaging.destination.template"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A queue, stream or exchange of one broker, as attributes. It can be pickled."""

    attributes: Mapping[str, Any]

    @classmethod
    def of(cls, url: str | None) -> Place:
        """The broker alone, of the server at ``url`` or of this host."""
        attributes: dict[str, Any] = {"messaging.system": "shmq"}
        if url is not None:
            parts = urlsplit(url)
            attributes |= {"server.address": parts.hostname or "", "server.port": parts.port or 0}
        return cls(attributes)

    def at(self, name: str) -> Place:
        """The destination ``name`` of the same broker. Reply queues have their names by chance."""
        more: dict[str, Any] = {_NAME: name}
        if is_reply_name(name):
            more |= {
                _TEMPLATE: "(reply)",
                "messaging.destination.anonymous": True,
                "messaging.destination.temporary": True,
            }
        return Place({**self.attributes, **more})

    def within(self, group: str) -> Place:
        """The same destination, consumed by the members of a group."""
        return Place({**self.attributes, GROUP: group})

    @property
    def label(self) -> str:
        """The destination in the names of spans."""
        return str(self.attributes.get(_TEMPLATE) or self.attributes.get(_NAME, ""))

    @property
    def dimensions(self) -> dict[str, Any]:
        """The attributes of metrics: those with few values."""
        dropped = _NAME if _TEMPLATE in self.attributes else None
        return {name: value for name, value in self.attributes.items() if name != dropped}
