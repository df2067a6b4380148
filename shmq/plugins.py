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
    ``take_options(values)`` removes its values and returns a function that makes the processes
    beside the server: ``start(source)`` returns a list of `ChildProcess`, none of which has
    started, and raises what is wrong with the values.
``shmq.instruments``
    ``otel``: a function that returns a traced broker, for ``SHMQ_OTEL=1``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final, NamedTuple

from shmq.api.names import TCP_SCHEMES, UNIX_SCHEME
from shmq.lazy_imports import late_imports

#: The folders beside a package with its metadata, and their file of entry points.
_METADATA: Final = (".dist-info", ".egg-info")
_FILE: Final = "entry_points.txt"

log = logging.getLogger("shmq")


class Command(NamedTuple):
    """A command of ``shmq``: its heading and summary in the help, and ``MODULE:ATTRIBUTE``."""

    heading: str
    #: At most 26 characters.
    summary: str
    place: str


class _EntryPoint(NamedTuple):
    """A name that a package adds to a group, and ``MODULE`` or ``MODULE:ATTRIBUTE``."""

    name: str
    value: str

    def load(self) -> Any:
        """What it names. Raises what the import raises."""
        module, _, attributes = self.value.partition("[")[0].strip().partition(":")
        found: Any = import_module(module.strip())
        for attribute in filter(None, attributes.strip().split(".")):
            found = getattr(found, attribute)
        return found


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


def _load_entry_points(group: str) -> list[_EntryPoint]:
    """The entry points of a group, by name.

    importlib.metadata costs half of a short command's time: it is used only where packages are not
    in folders of ``sys.path``.
    """
    found = _read_all(group) if _all_in_folders() else _ask_importlib(group)
    return sorted(found, key=lambda each: each.name)


def _all_in_folders() -> bool:
    finders = (each for each in sys.meta_path if each is not PathFinder)
    return not any(hasattr(each, "find_distributions") for each in finders) and not any(
        Path(each).is_file() for each in sys.path
    )


def _ask_importlib(group: str) -> list[_EntryPoint]:
    with late_imports:
        from importlib.metadata import entry_points  # noqa: PLC0415 - see above

    return [_EntryPoint(each.name, each.value) for each in entry_points(group=group)]


def _read_all(group: str) -> Iterator[_EntryPoint]:
    """Those of each package; of two packages of a name, of the first on the path."""
    known: set[str] = set()
    for folder in sys.path:
        with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
            found = [each.name for each in entries if each.name.endswith(_METADATA)]
            for name in sorted(found):
                package = re.sub(r"[-_.]+", "_", name.rpartition(".")[0].partition("-")[0]).lower()
                if package not in known:
                    known.add(package)
                    yield from _read(Path(folder, name, _FILE), group)


def _read(file: Path, group: str) -> Iterator[_EntryPoint]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):  # most packages have none
        return
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield _EntryPoint(name.strip(), value.strip())


def find_transport(url: str) -> Any:
    """The module of the URL's transport; None for a server of shmq, and for an unknown scheme."""
    scheme = url.partition("://")[0]
    if scheme in TCP_SCHEMES or scheme == UNIX_SCHEME:
        return None
    return find("shmq.transports", scheme)
