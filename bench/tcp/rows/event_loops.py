"""Round trips between two event loops, each in a process of its own."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import importlib
import importlib.util
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import shmq
from bench import bodies
from bench.machine import now, two_cores
from bench.row import Contestant, Role, Row, Turn, beside, within
from bench.scratch import delete_all, unique_name
from bench.stage import Cast, Side, Stage
from bench.tcp import servers
from bench.trip import LEAST, MEDIAN, MOST, WARM, figures

SIZE = 64
#: Puts a body; gets one.
_Put = Callable[[bytes], Awaitable[object]]
_Get = Callable[[], Awaitable[bytes]]
_Ends = contextlib.AbstractAsyncContextManager[tuple[_Put, _Get]]


class LoopWay(abc.ABC):
    """A way to pass bodies to and fro between two loops. It is made in one process, used in two."""

    label: str
    role: Role = "peer"
    note = ""

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be measured here; None if it can."""
        return None

    @abc.abstractmethod
    def ends(self, side: int) -> _Ends:
        """What puts and gets on side 0 or 1, in that side's loop."""

    @abc.abstractmethod
    def remove(self) -> None:
        """Remove what it made."""


class Queues(LoopWay):
    """aput and aget."""

    label = "shmq aput, aget"
    role: Role = "shmq"

    def __init__(self) -> None:
        self.name = unique_name()
        with shmq.connect(self.name) as broker:
            for side in range(2):
                broker.create_queue(str(side), dead_letter=None)

    @contextlib.asynccontextmanager
    async def ends(self, side: int) -> AsyncIterator[tuple[_Put, _Get]]:
        """See :class:`LoopWay`."""
        with shmq.connect(self.name) as broker:
            get_from, put_to = broker.queue(str(side)), broker.queue(str(1 - side))

            async def get() -> bytes:
                message = await get_from.aget()
                body: bytes = message.body
                message.ack()
                return body

            yield put_to.aput, get

    def remove(self) -> None:
        """See :class:`LoopWay`."""
        delete_all(self.name)


class Streams(LoopWay):
    """A UNIX socket and the streams of asyncio."""

    label = "UNIX socket, asyncio streams"

    def __init__(self) -> None:
        self.sockets = socket.socketpair()

    @contextlib.asynccontextmanager
    async def ends(self, side: int) -> AsyncIterator[tuple[_Put, _Get]]:
        """See :class:`LoopWay`."""
        reader, writer = await asyncio.open_unix_connection(sock=self.sockets[side].dup())

        async def put(body: bytes) -> None:
            writer.write(body)

        yield put, lambda: reader.readexactly(SIZE)
        writer.close()

    def remove(self) -> None:
        """See :class:`LoopWay`."""
        for end in self.sockets:
            end.close()


class Lists(LoopWay):
    """LPUSH and BRPOP of redis.asyncio."""

    label = "redis.asyncio LPUSH, BRPOP"

    def __init__(self) -> None:
        self.server = servers.Redis()
        self.server.start()
        self.port = self.server.port

    def __getstate__(self) -> dict[str, int]:
        return {"port": self.port}

    @classmethod
    def missing(cls) -> str | None:
        """See :class:`LoopWay`."""
        if importlib.util.find_spec("redis") is None:
            return "redis is not installed"
        return servers.Redis.missing()

    @contextlib.asynccontextmanager
    async def ends(self, side: int) -> AsyncIterator[tuple[_Put, _Get]]:
        """See :class:`LoopWay`."""
        from redis.asyncio import Redis

        async with Redis(port=self.port) as client:

            async def put(body: bytes) -> None:
                await client.lpush(str(1 - side), body)

            async def get() -> bytes:
                found: Any = await client.brpop([str(side)])
                return bytes(found[1])

            yield put, get

    def remove(self) -> None:
        """See :class:`LoopWay`."""
        self.server.end()


class LoopTrip(Contestant):
    """The round trips of a way. A body that comes back changed ends the measurement."""

    least, most = LEAST, MOST

    def __init__(self, kind: type[LoopWay], loop: str, cores: tuple[int, int]) -> None:
        self.kind = kind
        self.loop = loop
        self.cores = cores
        self.label = kind.label
        self.role = kind.role

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        if importlib.util.find_spec(self.loop) is None:
            return f"{self.loop} is not installed"
        return self.kind.missing()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        way = self.kind()
        try:
            sides = [
                Side(act, way, self.loop, core=core)
                for act, core in zip((_serve, _play_back), self.cores, strict=True)
            ]
            with Cast(sides) as cast:
                yield lambda trips: figures(cast.turn(trips)[0])
        finally:
            way.remove()


def _serve(stage: Stage, way: LoopWay, loop: str) -> None:
    sent = bodies.make(SIZE)

    async def send(put: _Put, get: _Get, trips: int) -> list[int]:
        taken = []
        for trip in range(WARM + trips):
            body = sent[trip % len(sent)]
            begun = now()
            await put(body)
            found = await get()
            taken.append(now() - begun)
            if found != body:
                bodies.check([found], [body])
        return taken[WARM:]

    _act(stage, way, loop, 0, send)


def _play_back(stage: Stage, way: LoopWay, loop: str) -> None:
    async def send_back(put: _Put, get: _Get, trips: int) -> list[int]:
        for _ in range(WARM + trips):
            await put(await get())
        return []

    _act(stage, way, loop, 1, send_back)


def _act(
    stage: Stage,
    way: LoopWay,
    loop: str,
    side: int,
    play: Callable[[_Put, _Get, int], Awaitable[list[int]]],
) -> None:
    factory: Any = importlib.import_module(loop).new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        ends = way.ends(side)
        put, get = runner.run(ends.__aenter__())
        stage.meet()
        for trips in stage.turns():

            async def turn(trips: int = trips) -> list[int]:
                return await play(put, get, trips)

            stage.tell(runner.run(turn()))
        runner.run(_end(ends))


async def _end(ends: _Ends) -> None:
    await ends.__aexit__(None, None, None)


def _row(loop: str, where: str, cores: tuple[int, int]) -> Row:
    bars = [within(Queues.label, Lists.label, 1.0, MEDIAN.key)]
    if (loop, where) != ("uvloop", "one core"):
        bars.append(within(Queues.label, Streams.label, 1.0, MEDIAN.key))
    else:
        bars.append(beside(Queues.label, [Streams.label], MEDIAN.key))
    return Row(
        key=f"{loop}-{where.replace(' ', '-')}",
        title=f"Round trip between two loops of {loop}, 64 B, {where}",
        contestants=[LoopTrip(kind, loop, cores) for kind in (Queues, Streams, Lists)],
        figures=[MEDIAN],
        bars=bars,
        limit="the loop: a poll, a callback and a step of a task on each side",
    )


def asyncio_one_core_row() -> Row:
    """Asyncio's own loop; both sides on one core."""
    here, _ = two_cores()
    return _row("asyncio", "one core", (here, here))


def asyncio_two_cores_row() -> Row:
    """Asyncio's own loop."""
    return _row("asyncio", "two cores", two_cores())


def uvloop_one_core_row() -> Row:
    """uvloop; both sides on one core."""
    here, _ = two_cores()
    return _row("uvloop", "one core", (here, here))


def uvloop_two_cores_row() -> Row:
    """Uvloop."""
    return _row("uvloop", "two cores", two_cores())
