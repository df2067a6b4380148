"""Producers and consumers over TCP, each to be killed at any moment, as are their servers.

A consumer writes a journal of its own for each connection: with a connection end its leases,
at the moment when the process at its other end was killed. ``NUMBER.host`` says which that is.
"""

from __future__ import annotations

import contextlib
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from shmq.extras.stress.journal import ACKED, ACKING, GOT, INTENT, PUT, RETURNED, Journal
from tests.prove.soak.workers import BATCH, body_of, number_of, properties, write_all
from tests.system.wire import frames
from tests.system.wire.client import Wire
from tests.system.wire.frames import Delivery, Frame, S, T, frame

#: The connections of worker n have the numbers from (n << CONNECTION_BITS) + 1 on.
CONNECTION_BITS = 16

WINDOW = 32
#: The flag of a PRODUCE that is answered once the disk has it.
TO_DISK = 0x02
QUEUE = "work"

_PACKED = struct.Struct("<II")


def connect(port: int) -> Wire:
    """A connection that the server has taken; it waits until there is a server."""
    while True:
        with contextlib.suppress(ConnectionError, EOFError):
            wire = Wire(("127.0.0.1", port))
            wire.still_answers()
            return wire
        time.sleep(0.02)


# --- producers -------------------------------------------------------------------------


def produce_to_disk(namespace: str, directory: Path, port: int, worker: int) -> None:
    """The same, each confirmed by the disk."""
    produce(namespace, directory, port, worker, TO_DISK)


def produce(_: str, directory: Path, port: int, worker: int, flags: int = 0) -> None:
    """Put messages until killed, many in flight; what was not answered is sent again."""
    journal, chance = Journal(directory, worker), random.Random(worker)
    waiting: list[bytes] = []
    first = (worker << 32) + 1
    while True:
        with contextlib.suppress(ConnectionError, EOFError), connect(port) as wire:
            while True:
                while len(waiting) < WINDOW:
                    number = first + len(waiting)
                    journal.write(INTENT, number)
                    waiting.append(request(number, chance))
                done = send_window(wire, waiting, chance, flags)
                journal.write(PUT, *range(first, first + done))
                first += done
                del waiting[:done]


def request(number: int, chance: random.Random) -> bytes:
    """A PRODUCE that may be sent again and puts one message."""
    found = properties(chance) | {"dedupe": str(number)}
    if "priority" in found:
        found["pri"] = found.pop("priority")
    if "delay" in found:
        found["delay"] = int(found["delay"] * 1000)
    return frames.message(body_of(number, chance), found)


def send_window(wire: Wire, waiting: list[bytes], chance: random.Random, flags: int) -> int:
    """Send what waits, in one of two ways: how many of them were taken, from the front on."""
    name = frames.name(QUEUE)
    refusals = {S.QUEUE_FULL, S.BUSY} | ({S.NO_SPACE} if flags else set())
    if chance.random() < 0.2:
        items = [split_item(each) for each in waiting[:BATCH]]
        answer = wire.ask(T.PRODUCE_BATCH, frames.batch(QUEUE, *items, flags=flags))
        check(answer, S.OK, *refusals)
        return int.from_bytes(answer.payload[:4], "big")
    whole = (bytes([each[0] | flags]) + each[1:] for each in waiting)
    wire.send(*(frame(T.PRODUCE, name + each, n + 1) for n, each in enumerate(whole)))
    answers = [wire.receive() for _ in waiting]
    for n, answer in enumerate(answers):
        assert answer.id == n + 1
        check(answer, S.OK, S.DUPLICATE, *refusals)
    taken = [answer.status not in refusals for answer in answers]
    done = taken.index(False) if False in taken else len(taken)
    if done < len(taken):
        time.sleep(0.002)
    return done


def split_item(message: bytes) -> bytes:
    """The message of a PRODUCE as one of a batch: the body has a length."""
    head = 5 + int.from_bytes(message[1:5], "big")
    return message[:head] + frames.u32(len(message) - head) + message[head:]


def check(answer: Frame, *statuses: S) -> None:
    """Raise EOFError if the server ends, AssertionError if that is not an answer of these."""
    if answer.status == S.SHUTTING_DOWN:
        raise EOFError
    assert answer.status in statuses, answer


# --- consumers -------------------------------------------------------------------------


class Link(Wire):
    """A consumer's connection, with its journal and what was delivered before its turn."""

    def __init__(self, wire: Wire, journal: Journal) -> None:
        self.__dict__ |= wire.__dict__
        self.journal = journal
        self.early: list[Frame] = []


def consume(_: str, directory: Path, port: int, worker: int) -> None:
    """Take messages until killed: by subscription, or by one request after another."""
    chance = random.Random(worker)
    number = worker << CONNECTION_BITS
    while True:
        number += 1
        journal = Journal(directory, number)
        with contextlib.suppress(OSError, EOFError), connect(port) as wire:
            if note_host(directory, number, port, wire):
                link = Link(wire, journal)
                take = subscribed if chance.random() < 0.5 else asked
                for some in take(link, chance):
                    settle(link, some, chance)
        journal.close()


def note_host(directory: Path, number: int, port: int, wire: Wire) -> bool:
    """Write down which process is at the other end; False if that cannot be found."""
    mine = wire.socket.getsockname()[1]
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error, OSError):
            for each in process.net_connections("tcp"):
                if each.raddr and each.laddr.port == port and each.raddr.port == mine:
                    (directory / f"{number}.host").write_text(str(process.pid))
                    return True
    return False


def subscribed(link: Link, chance: random.Random) -> Iterator[list[Delivery]]:
    subscription = link.post(T.SUBSCRIBE, frames.subscribe(QUEUE, chance.randrange(1, 64)))
    answer = link.receive()
    check(answer, S.OK, S.BUSY)
    for _ in range(0 if answer.status == S.BUSY else 200):
        answer = link.early.pop(0) if link.early else link.receive()
        if answer.kind == T.REPLY:
            check(answer)
        assert answer.id == subscription
        yield [frames.read_delivery(answer.payload)]


def asked(link: Link, chance: random.Random) -> Iterator[list[Delivery]]:
    for _ in range(100):
        link.post(T.CONSUME, frames.consume(QUEUE, chance.randrange(1, BATCH), 500))
        some: list[Delivery] = []
        status = frames.MORE
        while status == frames.MORE:
            answer = link.receive()
            status = answer.status
            if answer.kind == T.DELIVER:
                some.append(frames.read_delivery(answer.payload))
            else:
                check(answer, S.QUEUE_EMPTY, S.BUSY)
        yield some


def settle(link: Link, some: list[Delivery], chance: random.Random) -> None:
    """Acknowledge them; now and then give them back."""
    numbers = [number for each in some for number in numbers_in(each)]
    receipts = [each.receipt for each in some]
    write_all(link.journal, GOT, numbers)
    back = chance.random() < 0.02
    write_all(link.journal, RETURNED if back else ACKING, numbers)
    kind = T.NACK if back else T.ACK
    payload = frames.timed(QUEUE, 0, *receipts) if back else frames.receipts(QUEUE, *receipts)
    while (answer := settled(link, frame(kind, payload, 0xFFFFFFFF))).status == S.BUSY:
        time.sleep(0.002)
    check(answer, S.OK)
    if not back:
        write_all(link.journal, ACKED, numbers)


def settled(link: Link, request: bytes) -> Frame:
    """The answer to a request of the last message id; what comes before it is early."""
    link.send(request)
    while (answer := link.receive()).id != 0xFFFFFFFF:
        link.early.append(answer)
    return answer


def numbers_in(delivery: Delivery) -> list[int]:
    """The numbers of a message, of which a packed batch has many. Raises ValueError."""
    if (delivery.properties or {}).get("codec") != "packed":
        return [number_of(delivery.body)]
    count, size = _PACKED.unpack(delivery.body[-_PACKED.size :])
    assert size == 8
    return [int.from_bytes(delivery.body[8 * n : 8 * n + 8], "big") for n in range(count)]
