"""Contestants that run the load generator in C: each is a kind of load on a server."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

from bench.compiled import ROOT, compiled, no_compiler
from bench.machine import Place, pin
from bench.row import SECONDS, Contestant, Figure, Role, Turn
from bench.scratch import unique_name
from bench.stage import PATIENCE, Failed
from bench.tcp.server import Server, no_place, placed, running
from bench.tcp.servers import Echo, Shmq

SOURCES = ROOT / "bench/load"

MEDIAN = Figure("p50", "µs", higher_is_better=False)

#: The most messages and the most bytes of bodies in a round: all are in the queue at once.
MOST_MESSAGES, MOST_BYTES = 100_000, 64 << 20


def load(work: str, port: int, **options: int | str) -> dict[str, Any]:
    """Run the load once; returns its output. Raises Failed if any answer was wrong.

    The options are those of the program, by their letters.
    """
    given = [text for key, value in options.items() for text in (f"-{key}", str(value))]
    command = [str(compiled(SOURCES)), work, "-p", str(port), "-q", unique_name(), *given]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)} did not end within {2 * PATIENCE} s") from None
    if ended.returncode:
        raise Failed(f"{' '.join(command)}: {ended.stderr}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@contextlib.contextmanager
def idle(port: int, connections: int) -> Iterator[None]:
    """Hold that many connections. Each is checked with a PING at the beginning and at the end."""
    command = [str(compiled(SOURCES)), "idle", "-p", str(port), "-c", str(connections)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise Failed(f"{' '.join(command)}: {process.communicate()[1]}")
        yield
        _, complained = process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise Failed(f"{' '.join(command)}: {complained}")
    finally:
        process.kill()
        process.communicate()


class Load(Contestant):
    """A load, with a number of connections and of messages in flight on each.

    ``place``: where the load generator and the server run; None: wherever the kernel puts
    them.
    """

    def __init__(
        self,
        label: str,
        server: type[Server],
        work: str,
        *,
        connections: int = 1,
        window: int = 64,
        batch: int = 1,
        size: int = 64,
        place: Place | None = None,
        note: str = "",
    ) -> None:
        self.label = label
        self.server = server
        self.work = work
        self.options = {"c": connections, "w": window, "b": batch, "s": size}
        self.place = place
        self.note = note
        self.role: Role = (
            "shmq" if issubclass(server, Shmq) else "limit" if server is Echo else "peer"
        )
        self.most = max(batch, min(MOST_MESSAGES, MOST_BYTES // size))
        self.least = min(self.most, max(batch, window * connections))

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return no_compiler() or self.server.missing() or no_place(self.place)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        server = running(self.server)
        with placed(self.place, server) as core:
            yield lambda messages: self.measure(server.port, messages, core)

    def measure(self, port: int, messages: int, core: int | None = None) -> dict[str, float]:
        """The figures of so much load on the server at that port, from that core."""
        everywhere = os.sched_getaffinity(0)
        if core is not None:
            pin(core)
        try:
            found = self.load(port, messages)
        finally:
            os.sched_setaffinity(0, everywhere)
        return {key: float(found[key]) for key in ("rate", "p50", SECONDS)}

    def load(self, port: int, messages: int) -> dict[str, Any]:
        """Run the load once, after a round of the same size that is not timed."""
        return load(self.work, port, n=messages, **self.options)
