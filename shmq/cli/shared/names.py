"""How a command names a queue, a stream, a group or an exchange, and how a shell completes it.

A thing is named by its position. The flags ``-q`` and ``-g`` name the same thing. Text that is not
a name is escaped, since that is how it is shown: see `shmq.api.names.given_name`. What is to be
created is named as in a call.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.target import target_of
from shmq.suggestions import suggest

F = TypeVar("F", bound=Callable[..., Any])
Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]

QUEUE: Final = "queue"
STREAM: Final = "stream"
EXCHANGE: Final = "exchange"
KINDS: Final = (QUEUE, STREAM, EXCHANGE)

#: How long a shell waits for a server's names, in seconds.
_BRIEFLY: Final = 1.0


# -- completion ------------------------------------------------------------------------


def _make_completion(list_names: Callable[[shmq.Broker, click.Context], Iterable[str]]) -> Complete:
    """A completion from names: those with the typed beginning; none if the broker fails."""

    def complete(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
        try:
            target = target_of(context)
            with target.connect(connect_timeout=_BRIEFLY, request_timeout=_BRIEFLY) as broker:
                names = set(list_names(broker, context))
        except (shmq.ShmqError, OSError, click.ClickException):
            return []
        return sorted(name for name in names if name.startswith(begun))

    return complete


def _group_names(broker: shmq.Broker, context: click.Context) -> list[str]:
    # click leaves arguments alone while the value of an option is completed.
    stream = context.params.get("name") or next(iter(context.args), None)
    if stream is None:
        return []
    with broker.stream(stream) as opened:
        return [group.name for group in opened.groups()]


complete_queues = _make_completion(lambda broker, _: broker.queue_names())
complete_streams = _make_completion(lambda broker, _: [one.name for one in broker.list_streams()])
complete_exchanges = _make_completion(
    lambda broker, _: [one.name for one in broker.list_exchanges()]
)
complete_names = _make_completion(
    lambda broker, _: [one.name for kind in KINDS for one in found_of(broker, kind, ())]
)
_complete_tables = _make_completion(lambda broker, _: broker.list_tables())
_complete_groups = _make_completion(_group_names)


# -- names on the command line ---------------------------------------------------------


def _make_parameter(
    parameter: str,
    flags: Sequence[str],
    metavar: str,
    required: bool,
    help: str,
    complete: Complete,
    complete_flag: Complete,
    kind: Callable[[str], str] = params.name,
) -> Callable[[F], F]:
    """The argument ``metavar``, or one of the ``flags`` with that name, as ``parameter``."""
    positional = f"{parameter}_argument"

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def run(*args: Any, **kwargs: Any) -> Any:
            by_place, by_flag = kwargs.pop(positional), kwargs.pop(parameter)
            if by_place is not None and by_flag is not None:
                raise click.UsageError(
                    f"{by_place!r} and {flags[0]} {by_flag!r} are two names: drop one"
                )
            name = by_flag if by_place is None else by_place
            if name is None and required:
                path = click.get_current_context().command_path
                raise click.UsageError(f"a name is missing: {path} {metavar}, or {flags[-1]} NAME")
            return command(*args, **{parameter: name}, **kwargs)

        place = click.argument(
            positional,
            metavar=metavar if required else f"[{metavar}]",
            required=False,
            type=kind,
            shell_complete=complete,
        )
        flag = click.option(
            *flags, parameter, type=kind, metavar="NAME", help=help, shell_complete=complete_flag
        )
        return cast("F", flag(place(run)))

    return decorate


def queue_name(
    *,
    required: bool = True,
    help: str = "The same as NAME: the queue.",
    complete: Complete = complete_queues,
    kind: Callable[[str], str] = params.name,
) -> Callable[[F], F]:
    """``NAME`` or ``-q/--queue NAME``, as the parameter ``name``."""
    return _make_parameter(
        "name", ("-q", "--queue"), "NAME", required, help, complete, complete_queues, kind
    )


def group_name(*, required: bool, help: str) -> Callable[[F], F]:
    """``GROUP`` or ``-g/--group NAME``, as the parameter ``group``: of the stream ``name``."""
    return _make_parameter(
        "group", ("-g", "--group"), "GROUP", required, help, _complete_groups, _complete_groups
    )


def queue_names(command: F) -> F:
    """``[NAME]...`` or ``-q/--queue NAME``, any number of times, as the parameter ``names``."""

    @functools.wraps(command)
    def run(
        *args: Any, names_argument: tuple[str, ...], names: tuple[str, ...], **more: Any
    ) -> Any:
        return command(*args, names=tuple(dict.fromkeys(names_argument + names)), **more)

    place = click.argument(
        "names_argument",
        type=params.name,
        metavar="[NAME]...",
        nargs=-1,
        shell_complete=complete_queues,
    )
    flag = click.option(
        "-q",
        "--queue",
        "names",
        type=params.name,
        metavar="NAME",
        multiple=True,
        shell_complete=complete_queues,
        help="The same as NAME: a queue. May be repeated.",
    )
    return cast("F", flag(place(run)))


def new_name(metavar: str) -> Callable[[F], F]:
    """``METAVAR``, as the parameter ``name``: what is to be created, which the call checks."""
    return click.argument("name", type=params.text, metavar=metavar)


def stream_name(command: F) -> F:
    """``STREAM``, as the parameter ``name``."""
    return click.argument(
        "name", type=params.name, metavar="STREAM", shell_complete=complete_streams
    )(command)


def exchange_name(command: F) -> F:
    """``EXCHANGE``, as the parameter ``name``."""
    return click.argument(
        "name", type=params.name, metavar="EXCHANGE", shell_complete=complete_exchanges
    )(command)


def table_name(command: F) -> F:
    """``TABLE``, as the parameter ``name``."""
    return click.argument("name", metavar="TABLE", shell_complete=_complete_tables)(command)


def kinds_flag(command: F) -> F:
    """``--kind KIND``, any number of times, as the parameter ``kinds``."""
    return click.option(
        "--kind",
        "kinds",
        type=click.Choice(KINDS),
        multiple=True,
        help="Only this kind; may be repeated.  [default: all]",
    )(command)


# -- what has a name -------------------------------------------------------------------


def found_of(broker: shmq.Broker, kind: str, kinds: Sequence[str]) -> list[Any]:
    """The summaries of that kind; none if ``kinds`` excludes it. Empty ``kinds`` means all.

    A server without the kind, or one that forbids the question, counts as having none,
    unless ``kinds`` asks for it.
    """
    if kinds and kind not in kinds:
        return []
    asks: dict[str, Callable[[], list[Any]]] = {
        QUEUE: broker.list_queues,
        STREAM: broker.list_streams,
        EXCHANGE: broker.list_exchanges,
    }
    try:
        return asks[kind]()
    except (shmq.Unsupported, shmq.Forbidden):
        if kinds or kind == QUEUE:
            raise
        return []


def _has(broker: shmq.Broker, kind: str, name: str, kinds: Sequence[str]) -> bool:
    """Whether there is one of that kind and name; on this host however many others there are."""
    from shmq.client.local.broker import LocalBroker  # noqa: PLC0415 - with a broker alone

    if isinstance(broker, LocalBroker) and kind in {QUEUE, STREAM}:
        return broker.has_name("queue" if kind == QUEUE else "stream", name)
    return name in _list_names(broker, kind, kinds)


def _list_names(broker: shmq.Broker, kind: str, kinds: Sequence[str]) -> list[str]:
    if kind == QUEUE:
        return broker.queue_names()
    return [one.name for one in found_of(broker, kind, kinds)]


def kind_of(broker: shmq.Broker, name: str, kinds: Sequence[str] = ()) -> str:
    """The kind of the thing called ``name``, among ``kinds``; empty ``kinds`` means all.

    Raises :class:`~shmq.NoSuchQueue` if nothing has the name, and :class:`click.UsageError`
    if several kinds have it.
    """
    having = [kind for kind in kinds or KINDS if _has(broker, kind, name, kinds)]
    if not having:
        every = (_list_names(broker, kind, kinds) for kind in kinds or KINDS)
        hint = cast("Any", broker).find_other(name) or suggest(
            name, itertools.chain.from_iterable(every), "see shmq list"
        )
        *others, last = kinds or KINDS
        wanted = f"{', '.join(others)} or {last}" if others else last
        raise shmq.NoSuchQueue(
            f"no {wanted} {name!r} exists in namespace {broker.namespace!r}: {hint}"
        )
    if len(having) > 1:
        raise click.UsageError(f"{name!r} names a {' and a '.join(having)}: say which with --kind")
    return having[0]
