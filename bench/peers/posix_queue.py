"""POSIX message queues through posix_ipc: one system call per message on each side."""

from __future__ import annotations

import contextlib
from itertools import repeat
from pathlib import Path
from typing import Any

import posix_ipc

from bench.way import Receive, Send, Way


class OneByOne(Way):
    """send and receive."""

    label = "posix_ipc.MessageQueue"
    note = "holds as many messages as fs.mqueue.msg_max, 10 unless the host says more"
    fixed = True

    @classmethod
    def missing(cls) -> str | None:
        there = Path("/proc/sys/fs/mqueue/msg_max").exists()
        return None if there else "this kernel has no POSIX message queues"

    def create(self) -> None:
        most = int(Path("/proc/sys/fs/mqueue/msg_max").read_text())
        posix_ipc.MessageQueue(
            f"/{self.name}", posix_ipc.O_CREX, max_messages=most, max_message_size=self.size
        ).close()

    def open(self) -> Any:
        """The queue, in this process."""
        return posix_ipc.MessageQueue(f"/{self.name}")

    def remove(self) -> None:
        with contextlib.suppress(posix_ipc.ExistentialError):
            posix_ipc.unlink_message_queue(f"/{self.name}")

    def sender(self, bodies: list[bytes]) -> Send:
        put = self.open().send

        def send() -> None:
            for body in bodies:
                put(body)

        return send

    def receiver(self, count: int) -> Receive:
        get = self.open().receive
        return lambda: [get()[0] for _ in repeat(None, count)]
