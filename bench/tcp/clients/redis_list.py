"""redis-py, a list as a queue: LPUSH; LMOVE to a list of leased messages; LREM from that."""

from __future__ import annotations

from typing import Any

from bench.tcp.cycle import BATCH, Client, batches
from bench.tcp.server import HOST
from bench.tcp.servers import Redis


class OneByOne(Client):
    """A command for each step."""

    label = "redis-py, LPUSH, LMOVE, LREM"
    server = Redis
    needs = "redis"

    def open(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        import redis

        self.client: Any = redis.Redis(host=HOST, port=self.port)
        self.held = f"{self.name}.held"

    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`bench.tcp.cycle.Client`."""
        name, held = self.name, self.held
        lpush, lmove, lrem = self.client.lpush, self.client.lmove, self.client.lrem
        received: list[bytes] = []
        for body in sent:
            lpush(name, body)
            found = lmove(name, held, "RIGHT", "LEFT")
            received.append(found)
            if lrem(held, -1, found) != 1:
                raise AssertionError("a message was lost")
        return received

    def close(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.client.delete(self.name, self.held)
        self.client.close()


class Pipelined(OneByOne):
    """Pipelines of 64 commands: all puts, then all moves, then all removals."""

    label = "redis-py, LPUSH, LMOVE, LREM in pipelines of 64"

    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`bench.tcp.cycle.Client`."""
        received: list[bytes] = []
        for batch in batches(sent):
            self.put(batch)
            taking = self.client.pipeline(transaction=False)
            for _ in batch:
                taking.lmove(self.name, self.held, "RIGHT", "LEFT")
            found = taking.execute()
            received += found
            removing = self.client.pipeline(transaction=False)
            for body in found:
                removing.lrem(self.held, -1, body)
            if sum(removing.execute()) != len(batch):
                raise AssertionError("a message was lost")
        return received

    def put(self, batch: list[bytes]) -> None:
        """Put them in one pipeline."""
        putting = self.client.pipeline(transaction=False)
        for body in batch:
            putting.lpush(self.name, body)
        if len(putting.execute()) != len(batch):
            raise AssertionError("a put was not answered")


class Batched(Pipelined):
    """One LPUSH of 64 bodies; LMOVE moves only one."""

    label = f"redis-py, LPUSH of {BATCH}, LMOVE and LREM in pipelines"

    def put(self, batch: list[bytes]) -> None:
        """See :class:`Pipelined`."""
        self.client.lpush(self.name, *batch)
