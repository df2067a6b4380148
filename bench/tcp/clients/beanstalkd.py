"""greenstalk: put, reserve, delete. It has no pipeline, and beanstalkd has no batches."""

from __future__ import annotations

from typing import Any

from bench.tcp.cycle import Client
from bench.tcp.server import HOST
from bench.tcp.servers import Beanstalkd


class OneByOne(Client):
    """A command for each step."""

    label = "greenstalk, put, reserve, delete"
    server = Beanstalkd
    needs = "greenstalk"

    def open(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        import greenstalk

        address = HOST, self.port
        self.client: Any = greenstalk.Client(address, encoding=None, use=self.name, watch=self.name)

    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`bench.tcp.cycle.Client`."""
        put, reserve, delete = self.client.put, self.client.reserve, self.client.delete
        received: list[bytes] = []
        for body in sent:
            put(body)
            job = reserve(0)
            received.append(job.body)
            delete(job)
        return received

    def close(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.client.close()
