"""A small store of names that keeps what it promises, and can be told to leave steps out.

It is here so that the trial itself is tried: a trial that finds nothing wrong with a store
that skips a sync would find nothing wrong with any.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from tests.prove.powerloss.expectation import Found, Promise, Recovered, Sent
from tests.prove.powerloss.recorded_disk import Recording
from tests.prove.powerloss.states import State
from tests.prove.powerloss.trace import Trace

_HEAD = struct.Struct("<II")
PUT, ACK = b"+", b"-"


class Toy:
    """Names that are put and taken: a log, and a snapshot that makes a log superfluous.

    ``careless`` names the steps that it leaves out or does in the wrong order.
    """

    def __init__(self, root: Path, *careless: str) -> None:
        self.careless = frozenset(careless)
        self.sent: dict[str, Sent] = {}
        self.live: dict[str, bool] = {}
        self.synced: set[str] = set()
        self.acked: set[str] = set()
        self.gone: set[str] = set()
        self.recording = Recording(root, self.know)
        self.disk = self.recording.open("data")
        self.disk.make()
        self.number = 0
        self.waiting: list[tuple[bytes, str]] = []
        self._begin()

    def know(self) -> Promise:
        return Promise(
            must=frozenset(self.synced - self.acked),
            gone=frozenset(self.gone),
            begun=frozenset(self.sent),
        )

    def put(self, name: str, body: bytes = b"") -> None:
        number = len(self.sent) + 1
        self.sent[name] = Sent(name, "q", number, name.encode() + b" " + body, {})
        self.waiting.append((PUT, name))

    def ack(self, name: str) -> None:
        self.acked.add(name)
        self.waiting.append((ACK, name))

    def commit(self) -> None:
        """Write what waits, sync, and say so."""
        batch, self.waiting = self.waiting, []
        record = b"".join(self._record(kind, name) for kind, name in batch)
        self._promise(batch, early=True)
        self.disk.write(self.file, [record], self.end)
        self.end += len(record)
        if "log sync" not in self.careless:
            self.disk.sync(self.file)
        for kind, name in batch:
            self.live[name] = kind == PUT
        self._promise(batch, early=False)

    def snapshot(self) -> None:
        """All that is live in one file, in place of the log."""
        old, number = self.file, self.number
        file = self.disk.create("new")
        whole = b"".join(self._record(PUT, name) for name, live in self.live.items() if live)
        self.disk.write(file, [_HEAD.pack(self.number + 1, len(whole)), whole], 0)
        self._begin()
        if "rename first" not in self.careless:
            self.disk.sync(file)
        self.disk.rename("new", "snapshot")
        if "rename first" in self.careless:
            self.disk.sync(file)
        if "unlink first" not in self.careless:
            self.disk.sync_directory()
        self.disk.unlink(f"log.{number:03d}")
        self.disk.sync_directory()
        self.disk.close(file)
        self.disk.close(old)

    def close(self) -> Trace:
        self.disk.close(self.file)
        self.recording.note()
        self.recording.trace.sent = self.sent
        return self.recording.trace

    def _begin(self) -> None:
        self.number += 1
        self.file = self.disk.create(f"log.{self.number:03d}")
        self.end = 0
        if "name sync" not in self.careless:
            self.disk.sync_directory()

    def _promise(self, batch: list[tuple[bytes, str]], *, early: bool) -> None:
        if ("promise first" in self.careless) == early:
            self.synced.update(name for kind, name in batch if kind == PUT)
            self.gone.update(name for kind, name in batch if kind == ACK)
            self.recording.note()

    def _record(self, kind: bytes, name: str) -> bytes:
        payload = kind + self.sent[name].sequence.to_bytes(4, "big") + self.sent[name].body
        check = 0 if "checksum" in self.careless else zlib.crc32(payload, self.number)
        return _HEAD.pack(len(payload), check) + payload

    # --- recovery ----------------------------------------------------------------------

    def recover(self, state: State) -> Mapping[str, Recovered]:
        files = {path.removeprefix("data/"): held for path, held in state.files.items()}
        first, found = 0, dict[str, Found]()
        if (snapshot := files.get("snapshot")) is not None:
            first, size = _HEAD.unpack_from(snapshot)
            self._replay(snapshot[8 : 8 + size], first - 1, found)
        for name in sorted(files):
            if name.startswith("log.") and int(name[4:]) >= first:
                self._replay(files[name], int(name[4:]), found)
        messages = sorted(found.values(), key=lambda message: message.sequence)
        return {"q": Recovered(messages, last_sequence=len(self.sent))}

    def _replay(self, log: bytes, number: int, found: dict[str, Found]) -> None:
        at = 0
        while at + _HEAD.size <= len(log):
            length, check = _HEAD.unpack_from(log, at)
            payload = log[at + _HEAD.size : at + _HEAD.size + length]
            torn = len(payload) < length or check != zlib.crc32(payload, number)
            if not length or (torn and "checksum" not in self.careless):
                return
            body, name = payload[5:], payload[5:].partition(b" ")[0].decode("latin-1")
            if payload[:1] == PUT:
                found[name] = Found(int.from_bytes(payload[1:5], "big"), body, {})
            else:
                found.pop(name, None)
            at += _HEAD.size + length
