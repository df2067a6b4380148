"""A cluster on this host: several servers under one data directory, for trying and for tests."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from shmq.errors import InvalidOption, ShmqError
from shmq.extras.nats.cluster import monitor
from shmq.extras.nats.cluster.binary import find_binary
from shmq.extras.nats.cluster.node import Node, Ports, quote_value
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file

#: Ports are taken from below those that the kernel gives to outgoing connections.
_FIRST_PORT: Final = 20_000
_LAST_PORT: Final = 32_000
_ATTEMPTS: Final = 200
_LOOK: Final = 0.1
_STATE: Final = "cluster.json"
#: A server keeps this many bytes of messages at most, unless configured otherwise.
_STORAGE: Final = 1 << 30
_MEMORY: Final = 256 << 20
_SYNC: Final = re.compile(r"always|[1-9][0-9]{0,5}(ms|s|m|h)")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


class LocalCluster:
    """Servers on 127.0.0.1 that make one cluster; one alone is a server without peers.

    All of them end with the host: see docs/operate/cluster.md for what a real cluster needs.
    """

    def __init__(self, directory: Path, name: str, sync: str, nodes: Sequence[Node]) -> None:
        self.directory = directory
        self.name = name
        self.sync = sync
        self.nodes = tuple(nodes)
        self._prefix: tuple[str, ...] = ()
        self._binary: Path | None = None

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        nodes: int = 3,
        name: str = "shmq",
        sync: str = "always",
        first_port: int | None = None,
        storage: int = _STORAGE,
        remotes: Sequence[str] = (),
    ) -> Self:
        """Write the configuration of ``nodes`` servers.

        ``name`` is the cluster's, and the domain of its JetStream. ``sync`` is the
        ``sync_interval`` of the servers: "always", or a time such as "2m". ``remotes`` are URLs
        of leaf-node ports of another site.
        Raises InvalidOption, and ShmqError if the directory has a cluster already.
        """
        if nodes not in {1, 3, 5}:
            raise InvalidOption(f"nodes={nodes} must be 1, 3 or 5: an even number adds no safety")
        if not _SYNC.fullmatch(sync):
            raise InvalidOption(f"sync={sync!r} must be always, or a time such as 10s or 2m")
        if not _NAME.fullmatch(name):
            raise InvalidOption(f"name={name!r} must be 1 to 32 letters, digits, - and _")
        directory = directory.absolute()
        if (directory / _STATE).exists():
            raise ShmqError(f"{directory} has a cluster already: start that, or name another --dir")
        chosen = _choose_ports(nodes, first_port)
        made = [
            Node(f"{name}-{number}", directory / f"node-{number}", ports)
            for number, ports in enumerate(chosen, 1)
        ]
        cluster = cls(directory, name, sync, made)
        for node in made:
            node.configure(cluster._make_configuration(node, storage, remotes))
        state = {
            "name": name,
            "sync": sync,
            "nodes": [{"name": n.name, "ports": dataclasses.asdict(n.ports)} for n in made],
        }
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(open_file(directory / _STATE, flags), "w") as file:
            file.write(json.dumps(state, indent=2) + "\n")
        return cluster

    @classmethod
    def load(cls, directory: Path) -> Self:
        """The cluster of a directory. Raises ShmqError if it has none."""
        directory = directory.absolute()
        try:
            state = json.loads((directory / _STATE).read_text())
            nodes = [
                Node(one["name"], directory / f"node-{number}", Ports(**one["ports"]))
                for number, one in enumerate(state["nodes"], 1)
            ]
            return cls(directory, state["name"], state["sync"], nodes)
        except FileNotFoundError:
            raise ShmqError(
                f"{directory} has no cluster: make one with shmq cluster start --dir {directory}"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ShmqError(f"{directory / _STATE} cannot be read: {error}") from error

    @property
    def url(self) -> str:
        """All servers, as the URL that `shmq.connect` takes."""
        return "nats://" + ",".join(f"127.0.0.1:{node.ports.client}" for node in self.nodes)

    @property
    def leaf_urls(self) -> list[str]:
        """Where servers of another site connect as leaf nodes."""
        return [f"nats-leaf://127.0.0.1:{node.ports.leaf}" for node in self.nodes]

    @property
    def monitors(self) -> list[str]:
        """The monitors of all servers."""
        return [node.monitor for node in self.nodes]

    def start(
        self,
        binary: str | Path | None = None,
        *,
        prefix: Sequence[str] = (),
        timeout: float = 60.0,
        check: bool = True,
    ) -> None:
        """Start the servers that do not run, and wait until the cluster can be used.

        ``check=False`` takes an old server, too. Raises ShmqError, after ``timeout`` too.
        """
        self._binary = find_binary(binary) if check else Path(str(binary))
        self._prefix = tuple(prefix)
        for node in self.nodes:
            if node.pid is None:
                node.start(self._binary, self._prefix)
        self.wait_ready(timeout)

    def restart(self, node: Node, *, wait: bool = True, timeout: float = 60.0) -> None:
        """Start one server again after it ended, and wait until it is current."""
        if self._binary is None:
            self._binary = find_binary()
        node.start(self._binary, self._prefix)
        if wait:
            self._wait(lambda: _is_healthy(node), timeout, f"{node.name} was not healthy")

    def stop(self, timeout: float = 10.0) -> None:
        """End all servers."""
        for node in self.nodes:
            node.stop(timeout)

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Return once every server is healthy and one leads. Raises ShmqError after timeout."""
        self._wait(self._is_ready, timeout, f"the cluster in {self.directory} was not ready")

    def _wait(self, done: Callable[[], bool], timeout: float, what: str) -> None:
        deadline = time.monotonic() + timeout
        while not done():
            for node in self.nodes:
                if node.pid is None and node.last_error():
                    raise ShmqError(f"{node.name} ended: {node.last_error()}")
            if time.monotonic() >= deadline:
                raise ShmqError(f"{what} within {timeout:g} s: see the logs in {self.directory}")
            time.sleep(_LOOK)

    def _is_ready(self) -> bool:
        return all(_is_healthy(node) for node in self.nodes) and (
            len(self.nodes) == 1 or self.meta_leader() is not None
        )

    def meta_leader(self) -> Node | None:
        """The server that leads the cluster, or None while none does."""
        return self._find_node(monitor.meta_leader(self.monitors))

    def leader_of(self, stream: str) -> Node | None:
        """The server that leads a stream of JetStream, or None while none does."""
        return self._find_node(monitor.leader_of(self.monitors, stream))

    def _find_node(self, name: str | None) -> Node | None:
        return next((node for node in self.nodes if node.name == name), None)

    def _make_configuration(self, node: Node, storage: int, remotes: Sequence[str]) -> str:
        lines = [
            f"server_name: {quote_value(node.name)}",
            f"listen: 127.0.0.1:{node.ports.client}",
            f"http: 127.0.0.1:{node.ports.monitor}",
            "jetstream {",
            f"  store_dir: {quote_value(node.folder / 'data')}",
            f"  domain: {quote_value(self.name)}",
            f"  sync_interval: {quote_value(self.sync)}",  # unquoted, 2m is 2,000,000 s
            f"  max_mem: {_MEMORY}",
            f"  max_file: {storage}",
            "}",
        ]
        if len(self.nodes) > 1:
            peers = ", ".join(f"nats-route://127.0.0.1:{one.ports.peer}" for one in self.nodes)
            lines.append(
                f"cluster {{ name: {quote_value(self.name)}, listen: 127.0.0.1:{node.ports.peer},"
                f" routes: [{peers}] }}"
            )
        links = ", ".join(map(quote_value, remotes))
        joined = f", remotes: [{{ urls: [{links}] }}]" if remotes else ""
        lines.append(f"leafnodes {{ listen: 127.0.0.1:{node.ports.leaf}{joined} }}")
        return "\n".join(lines) + "\n"


def _is_healthy(node: Node) -> bool:
    return monitor.is_healthy(node.monitor)


def _choose_ports(nodes: int, first: int | None) -> list[Ports]:
    """Ports for the servers: from ``first`` on, else some that are free."""
    if first is not None:
        if not 1024 <= first <= 65_535 - 4 * nodes:
            raise InvalidOption(f"the first port {first} must be from 1024 to {65535 - 4 * nodes}")
        numbers = [first + at for at in range(4 * nodes)]
        for number in numbers:
            if not _is_free(number):
                raise ShmqError(f"port {number} is taken: name another --port")
    else:
        numbers = _free_ports(4 * nodes)
    by_kind: Any = (numbers[kind * nodes : (kind + 1) * nodes] for kind in range(4))
    return [Ports(*row) for row in zip(*by_kind, strict=True)]


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for _ in range(_ATTEMPTS):
        number = random.randrange(_FIRST_PORT, _LAST_PORT)
        if number not in found and _is_free(number):
            found.append(number)
            if len(found) == count:
                return found
    raise ShmqError(f"no {count} ports from {_FIRST_PORT} to {_LAST_PORT} are free: name a --port")


def _is_free(number: int) -> bool:
    reserve_standard()
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", number))
        except OSError:
            return False
    return True
