"""The namespace or the server that a command works on, and the file of saved ones: contexts."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource

import shmq
from shmq.api.names import check_name, chosen_namespace, default_namespace
from shmq.client.connect import connect_to
from shmq.errors import ShmqError
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file
from shmq.native.directories import make_directory
from shmq.native.lock_holder import locker_of, take_file_lock
from shmq.plugins import find_transport
from shmq.suggestions import suggest

_VERSION: Final = 1


class ContextsError(ShmqError):
    """The file of contexts cannot be used."""


class NoSuchContext(ContextsError, shmq.NotFound):
    """No context of that name exists."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A server, or a namespace of this host."""

    url: str | None = None
    namespace: str | None = None
    #: The token for the server. No repr shows it.
    token: str | None = dataclasses.field(default=None, repr=False)
    #: Files for TLS, as absolute paths: the trusted CAs, and this client's certificate and key.
    cafile: str | None = None
    cert: str | None = None
    key: str | None = None

    def as_dict(self) -> dict[str, str]:
        """The fields that are set, with the token."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value is not None}


@dataclasses.dataclass(slots=True)
class Contexts:
    """All contexts by name, and which of them is the current one."""

    current: str | None = None
    known: dict[str, Context] = dataclasses.field(default_factory=dict)

    def get(self, name: str) -> Context:
        """The context of that name. Raises :class:`NoSuchContext` if there is none."""
        try:
            return self.known[name]
        except KeyError:
            hint = suggest(name, sorted(self.known))
            raise NoSuchContext(
                f"context {name!r} does not exist in {contexts_path()} ({hint}): "
                f"create it with shmq context add {name}",
                name,
            ) from None


def contexts_path() -> Path:
    """The file of contexts: ``shmq/target.json`` in XDG_CONFIG_HOME, or in ~/.config."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG base directory specification demands that relative paths are ignored.
    folder = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    return folder / "shmq" / "target.json"


def read_contexts() -> Contexts:
    """The contexts; none if no file exists.

    Raises :class:`ContextsError` for a file that others may read_contexts or write, or that is
    none of target, and OSError.
    """
    file = contexts_path()
    try:
        with file.open("rb") as opened:
            _check_private(file, os.fstat(opened.fileno()))
            _check_folder(file.parent)
            text = opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    try:
        return _decode_contexts(json.loads(text))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, ShmqError) as error:
        raise ContextsError(
            f"{file} is not a file of contexts of this version ({error}): correct or remove it"
        ) from None


@contextlib.contextmanager
def rewriting_contexts() -> Iterator[Contexts]:
    """The target, to be changed; they are written if the block ends without an error.

    One process at a time does so; a reader finds the old file or the new one. Raises the
    errors of :func:`read_contexts`.
    """
    file = contexts_path()
    make_directory(file.parent)
    folder = open_file(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check_folder(file.parent)
        take_file_lock(lambda: _try_lock(folder), f"{file.parent}", lambda: locker_of(folder))
        contexts = read_contexts()
        yield contexts
        _replace(file, json.dumps(_encode(contexts), indent=2) + "\n")
        os.fsync(folder)
    finally:
        os.close(folder)


def _try_lock(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replace(file: Path, text: str) -> None:
    """Rewrite the file, mode 0600, in one step."""
    import tempfile  # noqa: PLC0415 - for commands that change the file

    reserve_standard()
    written, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        os.fchmod(written, 0o600)
        with os.fdopen(written, "w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(written)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _check_private(file: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise ContextsError(
            f"{file} belongs to user {found.st_uid}, not to {os.geteuid()}: it holds tokens, "
            f"and is not used"
        )
    if found.st_mode & 0o077:
        raise ContextsError(
            f"{file} has mode {stat.S_IMODE(found.st_mode):04o}, so others may see its tokens: "
            f"it is not used until chmod 600 {file}"
        )


def _check_folder(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ContextsError(
            f"others may change what is in {folder} (owner {found.st_uid}, mode "
            f"{stat.S_IMODE(found.st_mode):04o}): it is not used until it is yours, "
            f"and chmod 700 {folder}"
        )


def _encode(contexts: Contexts) -> dict[str, Any]:
    known = {name: one.as_dict() for name, one in sorted(contexts.known.items())}
    return {"version": _VERSION, "current": contexts.current, "contexts": known}


def _decode_contexts(value: Any) -> Contexts:
    if value["version"] != _VERSION:
        raise ValueError(f"its version is {value['version']!r}, not {_VERSION}")
    known = {}
    for name, fields in value["contexts"].items():
        if not all(isinstance(field, str) for field in fields.values()):
            raise ValueError(f"context {name!r} has a value that is not a string")
        if ("url" in fields) is ("namespace" in fields):
            raise ValueError(f"context {name!r} is not either a url or a namespace")
        known[check_name(name, "context")] = Context(**fields)
    current = value["current"]
    if current is not None and current not in known:
        raise ValueError(f"its current context {current!r} is not in it")
    return Contexts(current, known)


if TYPE_CHECKING:
    from shmq.client.remote import address


F = TypeVar("F", bound=Callable[..., Any])

#: The options that name the place, and those for a server alone.
_PLACES = ("url", "namespace", "context")
_CREDENTIALS = ("token", "cafile", "cert", "key")

#: The type of a flag that names a file, which becomes an absolute path.
FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)


class Target(NamedTuple):
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
        if find_transport(self.place.url) is not None:
            raise click.UsageError(
                f"this works on a server of shmq, and {self.origin} says {self.place.url}, which "
                f"is not one: name a server with --url shmq://HOST:PORT"
            )
        return address.Target.of(
            self.place.url, self.place.token, self.tls, connect_timeout, request_timeout
        )

    @property
    def tls(self) -> dict[str, str] | None:
        """The files of the options for TLS, by their use; None if there is none."""
        files = {"ca": self.place.cafile, "certificate": self.place.cert, "key": self.place.key}
        return {key: file for key, file in files.items() if file is not None} or None

    def connect(self, connect_timeout: float = 5.0, request_timeout: float = 30.0) -> shmq.Broker:
        """The broker. Takes the timeouts of :func:`shmq.connect` and raises its errors."""
        if self.place.url is None:
            return shmq.connect(self.namespace)
        how = self.place.token, self.tls, connect_timeout, request_timeout
        return connect_to(self.place.url, *how)


def complete_contexts(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The names of contexts with that beginning; none if the file cannot be read."""
    try:
        return [name for name in read_contexts().known if name.startswith(begun)]
    except (shmq.ShmqError, OSError):
        return []


def is_this_process(broker: shmq.Broker, attachment: shmq.Attachment) -> bool:
    """Whether the attachment is this process; a pid of another host never is."""
    from shmq.client.local.broker import LocalBroker  # noqa: PLC0415 - with a broker alone

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
                help="shmq://, shmqs:// or nats://HOST:PORT.  [$SHMQ_URL]",
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
    :class:`~shmq.cli.shared.target.ContextsError`.
    """
    root = context.find_root()
    flags = [name for name in _PLACES if typed(root, name)]
    if len(flags) > 1:
        named = " and ".join(f"--{name}" for name in flags)
        raise click.UsageError(f"{named} exclude each other: drop one")
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
        return _in_group(read_contexts().get(root.params["context"])), "--context"
    for name in ("url", "namespace"):
        value = root.params.get(name)
        if flag == name or (value and flag is None):
            origin = f"--{name}" if flag else f"SHMQ_{name.upper()}"
            return _in_group(Context(**{name: value})), origin
    known = read_contexts()
    if known.current is not None:
        return _in_group(known.get(known.current)), f"context {known.current!r}"
    return Context(namespace=default_namespace()), None


def _in_group(place: Context) -> Context:
    """The place; a namespace without a group is of ``SHMQ_GROUP``, as for `shmq.connect`."""
    if place.namespace is None:
        return place
    return dataclasses.replace(place, namespace=chosen_namespace(place.namespace))


def typed(root: click.Context, name: str) -> bool:
    """Whether that option of ``shmq`` itself was on the command line."""
    return root.get_parameter_source(name) is ParameterSource.COMMANDLINE
