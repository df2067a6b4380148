"""The namespace or the server that a command works on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

import shmq
from shmq.api.names import default_namespace
from shmq.cli.shared import contexts
from shmq.cli.shared.contexts import Context
from shmq.client.local.broker import LocalBroker

if TYPE_CHECKING:
    from shmq.client.remote import address

__all__ = [
    "FILE",
    "Target",
    "complete_contexts",
    "is_this_process",
    "target_flags",
    "target_of",
    "typed",
]

F = TypeVar("F", bound=Callable[..., Any])

#: The options that name the place, and those for a server alone.
_PLACES = ("url", "namespace", "context")
_CREDENTIALS = ("token", "cafile", "cert", "key")

#: The type of a flag that names a file, which becomes an absolute path.
FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A place, and the option, variable or context that chose it."""

    place: Context
    #: ``--url``, ``SHMQ_URL``, ``context 'name'`` and the like; None: the default.
    origin: str | None

    @property
    def namespace(self) -> str:
        """The namespace of this host. Raises :class:`click.UsageError` for a server."""
        if self.place.namespace is not None:
            return self.place.namespace
        raise click.UsageError(
            f"this works on the shared memory of one host, and {self.origin} says "
            f"{self.place.url}: run it there, or say -n NAMESPACE for this host's"
        )

    def server(self, connect_timeout: float = 5.0, request_timeout: float = 30.0) -> address.Target:
        """The server. Raises :class:`shmq.InvalidOption` for a bad URL or file."""
        from shmq.client.remote import address  # noqa: PLC0415 - with a server alone

        assert self.place.url is not None
        files = {"ca": self.place.cafile, "certificate": self.place.cert, "key": self.place.key}
        tls = {key: file for key, file in files.items() if file is not None}
        return address.Target.of(
            self.place.url, self.place.token, tls or None, connect_timeout, request_timeout
        )

    def connect(self, **timeouts: float) -> shmq.Broker:
        """The broker. Takes the timeouts of :func:`shmq.connect` and raises its errors."""
        if self.place.url is None:
            return shmq.connect(self.namespace)
        from shmq.client.remote.broker import RemoteBroker  # noqa: PLC0415 - with a server alone

        return RemoteBroker(self.server(**timeouts))


def complete_contexts(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The names of contexts with that beginning; none if the file cannot be read."""
    try:
        return [name for name in contexts.read().known if name.startswith(begun)]
    except (shmq.ShmqError, OSError):
        return []


def is_this_process(broker: shmq.Broker, attachment: shmq.Attachment) -> bool:
    """Whether the attachment is this process; a pid of another host never is."""
    return attachment.pid == os.getpid() and isinstance(broker, LocalBroker)


def target_flags(command: F) -> F:
    """The options of ``shmq`` itself that choose the place."""
    for decorate in reversed(
        (
            click.option(
                "-n",
                "--namespace",
                metavar="NAME",
                envvar="SHMQ_NAMESPACE",
                help="A namespace of this host.  [$SHMQ_NAMESPACE]",
            ),
            click.option(
                "--url",
                metavar="URL",
                envvar="SHMQ_URL",
                help="shmq://HOST:PORT, or shmqs:// with TLS.  [$SHMQ_URL]",
            ),
            click.option(
                "--context",
                metavar="NAME",
                shell_complete=complete_contexts,
                help="A saved server or namespace: see shmq context.",
            ),
            click.option(
                "--token",
                metavar="TOKEN",
                envvar="SHMQ_TOKEN",
                help="The token for the server.  [$SHMQ_TOKEN]",
            ),
            *(
                click.option(f"--{name}", type=FILE, metavar="FILE", help=text)
                for name, text in (
                    ("cafile", "TLS: the CAs; --cert, --key: this client's files."),
                    ("cert", "The client's certificate, for mutual TLS."),
                    ("key", "The key of the client's certificate."),
                )
            ),
        )
    ):
        command = decorate(command)
    return command


def target_of(context: click.Context) -> Target:
    """The place: of an option, the environment, the current context, or the default.

    Raises :class:`click.UsageError` for flags that exclude each other, and
    :class:`~shmq.cli.shared.contexts.ContextsError`.
    """
    root = context.find_root()
    flags = [name for name in _PLACES if typed(root, name)]
    if len(flags) > 1:
        told = " and ".join(f"--{name}" for name in flags)
        raise click.UsageError(f"{told} exclude each other: drop one")
    place, origin = _place(root, flags[0] if flags else None)
    given = {name: value for name in _CREDENTIALS if (value := root.params.get(name))}
    if place.url is not None:
        return Target(dataclasses.replace(place, **given), origin)
    stray = [name for name in given if typed(root, name)]
    if stray:
        raise click.UsageError(f"--{stray[0]} is for a server: say which one with --url")
    return Target(place, origin)


def _place(root: click.Context, flag: str | None) -> tuple[Context, str | None]:
    """The place that the flag names, or without one the default; and what chose it."""
    if flag == "context":
        return contexts.read().get(root.params["context"]), "--context"
    for name in ("url", "namespace"):
        value = root.params.get(name)
        if flag == name or (value and flag is None):
            origin = f"--{name}" if flag else f"SHMQ_{name.upper()}"
            return Context(**{name: value}), origin
    known = contexts.read()
    if known.current is not None:
        return known.get(known.current), f"context {known.current!r}"
    return Context(namespace=default_namespace()), None


def typed(root: click.Context, name: str) -> bool:
    """Whether that option of ``shmq`` itself was on the command line."""
    return root.get_parameter_source(name) is ParameterSource.COMMANDLINE
