"""RabbitMQ; the other servers are those of the table over TCP."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import ClassVar, Final

from bench.tcp.server import HOST, Server, free_port

#: The server's own script: the one in /usr/sbin changes the user.
_SCRIPT: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"


class RabbitMq(Server):
    """RabbitMQ of one node, with its own epmd."""

    program = "rabbitmq-server"
    package = "rabbitmq-server"
    #: As many schedulers as cores, which do not spin: spinning costs the others CPU.
    schedulers: ClassVar[str] = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"

    def __init__(self) -> None:
        super().__init__()
        self._epmd = free_port()

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        return ["env", *(f"{key}={value}" for key, value in self._environment().items()), _SCRIPT]

    def _environment(self) -> dict[str, str]:
        plugins = self.folder / "enabled_plugins"
        plugins.write_text("[].\n")
        return {
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self._epmd),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": self.schedulers,
        }

    def listens(self) -> bool:
        """See :class:`bench.tcp.server.Server`."""
        return "Server startup complete" in (self.folder / "log").read_text(errors="replace")

    def end(self) -> None:
        """See :class:`bench.tcp.server.Server`; its epmd, a daemon, ends too."""
        super().end()
        if Path("/usr/bin/epmd").exists():
            ended = {**os.environ, "ERL_EPMD_PORT": str(self._epmd)}
            subprocess.run(["/usr/bin/epmd", "-kill"], env=ended, check=False, capture_output=True)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"amqp://guest:guest@{HOST}:{self.port}/%2F"
