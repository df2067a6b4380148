"""redis-py, a stream with a group: XADD; XREADGROUP; XACK."""

from __future__ import annotations

from typing import Any

from bench.tcp.cycle import BATCH, Client, batches
from bench.tcp.server import HOST
from bench.tcp.servers import Redis

GROUP = "group"


class OneByOne(Client):
    """A command for each step."""

    label = "redis-py, XADD, XREADGROUP, XACK"
    server = Redis
    needs = "redis"

    def open(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        import redis

        self.client: Any = redis.Redis(host=HOST, port=self.port)
        self.client.xgroup_create(self.name, GROUP, mkstream=True)
        self.streams = {self.name: ">"}

    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`bench.tcp.cycle.Client`."""
        client, name, streams = self.client, self.name, self.streams
        received: list[bytes] = []
        for body in sent:
            client.xadd(name, {"b": body})
            ((_, ((number, fields),)),) = client.xreadgroup(GROUP, "one", streams, count=1)
            received.append(fields[b"b"])
            if client.xack(name, GROUP, number) != 1:
                raise AssertionError("a message was lost")
        client.xtrim(name, maxlen=0)
        return received

    def close(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.client.delete(self.name)
        self.client.close()


class Batches(OneByOne):
    """A pipeline of 64 XADD, one XREADGROUP, one XACK: the largest batches that Redis offers."""

    label = f"redis-py, XADD in pipelines, XREADGROUP and XACK of {BATCH}"

    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`bench.tcp.cycle.Client`."""
        client, name = self.client, self.name
        received: list[bytes] = []
        for batch in batches(sent):
            putting = client.pipeline(transaction=False)
            for body in batch:
                putting.xadd(name, {"b": body})
            putting.execute()
            ((_, found),) = client.xreadgroup(GROUP, "one", self.streams, count=len(batch))
            received += [fields[b"b"] for _, fields in found]
            if client.xack(name, GROUP, *[number for number, _ in found]) != len(batch):
                raise AssertionError("a message was lost")
        client.xtrim(name, maxlen=0)
        return received
