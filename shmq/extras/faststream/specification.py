"""What the AsyncAPI page says of subscribers and publishers.

AsyncAPI knows bindings of its own protocols alone: the address is the queue's name.
"""

from __future__ import annotations

from faststream._internal.endpoint.publisher import PublisherSpecification
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec, SubscriberSpec

from shmq.extras.faststream.config import (
    ShmqBrokerConfig,
    ShmqPublisherSpecificationConfig,
    ShmqSubscriberSpecificationConfig,
)


class ShmqSubscriberSpecification(
    SubscriberSpecification[ShmqBrokerConfig, ShmqSubscriberSpecificationConfig]
):
    """A channel that is read."""

    @property
    def address(self) -> str:
        """The queue's name, with the prefixes of its routers."""
        return f"{self._outer_config.prefix}{self.config.queue.name}"

    @property
    def channel_labels(self) -> list[str]:
        """What the channel's name is made of."""
        return [self.address]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """The channel with its messages."""
        message = Message(
            title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads())
        )
        return {
            self.name: SubscriberSpec(
                address=self.address,
                description=self.description,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }


class ShmqPublisherSpecification(
    PublisherSpecification[ShmqBrokerConfig, ShmqPublisherSpecificationConfig]
):
    """A channel that is written."""

    @property
    def address(self) -> str:
        """The queue's name, with the prefixes of its routers."""
        return f"{self._outer_config.prefix}{self.config.queue.name}"

    @property
    def name(self) -> str:
        """The channel's name."""
        return self.config.title_ or f"{self.address}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """The channel with its messages."""
        message = Message(
            title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads(), "Publisher")
        )
        return {
            self.name: PublisherSpec(
                address=self.address,
                description=self.config.description_,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }
