"""The plan of workers: the handler, the queue, the number of processes, and the mode."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from shmq import api
from shmq.api import Message
from shmq.api.names import check_name, default_namespace, staging_name
from shmq.api.options import MIN_LEASE, check_one_of, check_whole
from shmq.client.connect import traced
from shmq.client.local.broker import LocalBroker
from shmq.errors import InvalidOption
from shmq.lazy_imports import late_imports
from shmq.native._core import check_seconds
from shmq.workers.ledger import PUBLISHER
from shmq.workers.schedule import Schedule

#: Takes a message; its result is ignored. May be a coroutine function.
Handler = Callable[[Message], object]


def load(name: str) -> Any:
    """Import ``module:name``. Raises :class:`~shmq.InvalidOption` if it is not a callable."""
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise InvalidOption(
            f"handler {name!r} is not of the form module:function, such as app.orders:handle"
        )
    module = _import(name, module_name)
    try:
        found = functools.reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise InvalidOption(
            f"handler {name!r}: {error}; it must be defined at the top of the module"
        ) from error
    if not callable(found):
        raise InvalidOption(
            f"handler {name!r} is of type {type(found).__name__}: name a function that takes "
            f"a message"
        )
    return found


def name_of(handler: Any) -> str:
    """The name under which other processes find the handler.

    Raises :class:`~shmq.InvalidOption` for one that only this process has: a lambda, a nested
    function, or one typed in at a prompt.
    """
    name = f"{handler.__module__}:{handler.__qualname__}"
    if "<" in name:
        raise InvalidOption(
            f"handler {name!r} cannot be imported by the processes that are to call it: define "
            f"it at the top of a module"
        )
    if handler.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        raise InvalidOption(
            f"handler {name!r} is in no file, so the processes that are to call it cannot "
            f"import it: write the program to one"
        )
    return name


def _import(name: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _make_import_error(name, module_name, error) from error
        raise InvalidOption(
            f"handler {name!r}: module {error.name!r} does not exist here or on the Python path: "
            f"start where it is, or set PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:
        raise _make_import_error(name, module_name, error) from error


def _make_import_error(name: str, module_name: str, error: BaseException) -> InvalidOption:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return InvalidOption(
        f"handler {name!r}: module {module_name!r} cannot be imported: "
        f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
    )


if TYPE_CHECKING:
    from shmq.client.remote.address import Target


#: ``parallel``: every process takes any message. ``keyed``: the same, and the next message of a
#: group is available as soon as the one before is done. ``fifo``: one message at a time, in
#: the queue's order, over all processes of the host.
Mode = Literal["parallel", "keyed", "fifo"]
MODES: Final[tuple[str, ...]] = get_args(Mode)

MAX_PROCESSES: Final = 1024
MAX_PREFETCH: Final = 1 << 20
MAX_MESSAGES: Final = 1 << 62


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The work on one queue. Times are in seconds.

    Raises :class:`~shmq.InvalidName` and :class:`~shmq.InvalidOption` when it is created.
    """

    #: ``module:name`` of the function, as every process imports it.
    handler: str
    queue: str
    #: The namespace on this host; unused with a ``server``.
    namespace: str = dataclasses.field(default_factory=default_namespace)
    #: The server that has the queue; None: it is on this host.
    server: Target | None = None
    processes: int = 1
    mode: Mode = "parallel"
    #: How many messages a process leases at a time, the current one included.
    prefetch: int = 1
    #: After how many messages a process is replaced; None: never.
    max_messages: int | None = None
    #: How long one message may take before its process is ended; None: without limit.
    timeout: float | None = None
    #: A process that got no message for so long ends and is not replaced; None: it waits.
    idle_timeout: float | None = None
    #: When the supervisor puts a message into the queue; None: never.
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        check_name(self.queue)
        check_name(self.namespace, "namespace")
        check_whole("processes", self.processes, 1, MAX_PROCESSES)
        check_one_of("mode", self.mode, MODES)
        check_whole("prefetch", self.prefetch, 1, MAX_PREFETCH)
        if self.mode == "fifo" and self.prefetch != 1:
            raise InvalidOption(
                f"prefetch={self.prefetch} does not go with mode='fifo': what is leased ahead "
                f"of a message that fails would be handled before it; drop one of them"
            )
        if self.mode == "fifo" and self.server is not None:
            raise InvalidOption(
                f"mode='fifo' needs a lock on the queue's host, and {self.server.address} may be "
                f"another host: run these workers there, or use mode='keyed' with groups"
            )
        if self.max_messages is not None:
            check_whole("max_messages", self.max_messages, 1, MAX_MESSAGES)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout, MIN_LEASE)
        if self.idle_timeout is not None:
            check_seconds("idle_timeout", self.idle_timeout, 0.0)
        if self.schedule is not None:
            staging_name(self.queue, PUBLISHER)  # refuses a name that leaves no room for it

    def reach(self, patience: float | None = None) -> api.Broker:
        """The broker of the queue. Raises what :func:`shmq.connect` does.

        ``patience`` is how many seconds a request to a server may take, if not as many as usual.
        """
        if self.server is not None:
            with late_imports:
                from shmq.client.remote.broker import RemoteBroker  # noqa: PLC0415 - with a server alone

            timeout = self.server.request_timeout if patience is None else patience
            target = dataclasses.replace(self.server, supervised=True, request_timeout=timeout)
            return traced(RemoteBroker(target))
        return traced(LocalBroker(self.namespace))
