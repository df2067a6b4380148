"""What other packages and the extras add to shmq, found through entry points.

The kernel knows groups, not who adds to them. What an entry point names is loaded when it is used.

``shmq.transports``
    By scheme of a URL, a module with ``connect(url, token, tls, connect_timeout, request_timeout,
    wait_for_acks)``, which returns a :class:`~shmq.Broker`, and ``check_url(url)``, which raises
    :class:`~shmq.InvalidOption`.
``shmq.commands``
    By name, a `Command` of the program ``shmq``.
``shmq.serve``
    A module that adds to ``shmq serve``: ``add_options(command)`` decorates the command, and
    ``take_options(values)`` removes its values and returns a function that starts processes beside
    the server: ``start(source)`` returns a list of `ChildProcess`.
``shmq.instruments``
    ``otel``: a function that returns a traced broker, for ``SHMQ_OTEL=1``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shmq.api.names import TCP_SCHEMES, UNIX_SCHEME
from shmq.lazy_imports import late_imports

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger("shmq")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of ``shmq``: its heading and summary in the help, and ``MODULE:ATTRIBUTE``."""

    heading: str
    #: At most 26 characters.
    summary: str
    place: str


def find(group: str, name: str) -> Any:
    """Load the entry point of that name; None if there is none. Raises what its import raises."""
    for each in _load_entry_points(group):
        if each.name == name:
            with late_imports:
                found = each.load()
            return found  # noqa: RET504 - the block above does nothing but load
    return None


def load_all(group: str) -> dict[str, Any]:
    """Load the entry points of the group, by name; one that fails is logged and omitted."""
    loaded = {}
    for each in _load_entry_points(group):
        try:
            with late_imports:
                loaded[each.name] = each.load()
        except Exception as error:  # noqa: BLE001 - whatever another package raises
            log.warning("%s %r of %s cannot be loaded: %s", group, each.name, each.value, error)
    return loaded


def _load_entry_points(group: str) -> list[EntryPoint]:
    with late_imports:
        from importlib.metadata import entry_points  # noqa: PLC0415 - it costs 20 ms

    return sorted(entry_points(group=group), key=lambda each: each.name)


def find_transport(url: str) -> Any:
    """The module of the URL's transport; None for a server of shmq, and for an unknown scheme."""
    scheme = url.partition("://")[0]
    if scheme in TCP_SCHEMES or scheme == UNIX_SCHEME:
        return None
    return find("shmq.transports", scheme)
