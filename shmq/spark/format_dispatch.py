"""Decides whether ``format("shmq")`` reads or writes a queue or a stream.

The option ``kind`` decides. Without it, an existing queue or stream of the name decides. If
there is neither, the kind to which the options belong alone decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import shmq
from shmq.errors import InvalidOption, Unauthorized, Unsupported
from shmq.spark.queue.kind import QUEUE
from shmq.spark.shared import address, options
from shmq.spark.shared.address import Address
from shmq.spark.shared.kind import KIND, NAMES, Kind
from shmq.spark.shared.options import BATCH, STREAM, Option, Use
from shmq.spark.shared.subscription import Thing, names_of
from shmq.spark.stream.kind import STREAM_KIND

#: The options by which queues and streams are named, to be read and to be written to.
_NAMES: Final = (*NAMES, Option("topic", options.text, None, BATCH))

_HOW: Final = "say which is meant: .option('kind', 'queue') or .option('kind', 'stream')"


def find_kind(given: Mapping[str, str]) -> Kind[Any] | None:
    """The kind that the options mean; None if nothing decides.

    Raises :class:`~shmq.InvalidOption` if a queue and a stream have the name, and what
    :func:`shmq.connect` raises.
    """
    word = _choose(given, (KIND,))["kind"]
    if word is not None:
        return STREAM_KIND if word == "stream" else QUEUE
    try:
        named = _choose(given, _NAMES)
    except InvalidOption:  # the kind raises it again, with the options that it allows
        return _find_kind_of_options(given)
    return _find_existing_kind(given, named) or _find_kind_of_options(given)


def default_kind(given: Mapping[str, str], *, for_query: bool) -> Kind[Any]:
    """The kind if nothing decides: a queue, of which a batch reads none.

    Raises :class:`~shmq.InvalidOption` ``for_query`` if the query could start: what it reads would
    depend on what is created later.
    """
    if not for_query:
        return QUEUE
    chosen = QUEUE.parse(given, STREAM)
    names, pattern = chosen["subscribe"], chosen["subscribePattern"]
    if pattern is None and (names is None or chosen["failOnDataLoss"]):
        return QUEUE  # which raises that no such queue exists
    which = f"of the name {names[0]!r}" if pattern is None else f"that matches {pattern.pattern!r}"
    raise InvalidOption(f"there is neither a queue nor a stream {which}: {_HOW}")


def check(given: Mapping[str, str], use: Use) -> None:
    """Raise InvalidOption for options that neither kind allows, without a connection."""
    kinds: list[Kind[Any]] = [QUEUE, STREAM_KIND]
    if _has_options_of(STREAM_KIND, QUEUE, given):
        kinds.reverse()
    word = _choose(given, (KIND,))["kind"]
    wrong: list[InvalidOption] = []
    for kind in kinds if word is None else [each for each in kinds if each.name == word]:
        try:
            kind.parse(given, use)
        except InvalidOption as error:
            wrong.append(error)
        else:
            return
    raise wrong[0]


def _find_existing_kind(given: Mapping[str, str], named: Mapping[str, Any]) -> Kind[Any] | None:
    """The kind of the queues or streams that have the names; None if there are none."""
    if all(value is None for value in named.values()):
        return None
    with Address.of(_choose(given, address.OPTIONS)).connect() as broker:
        queues, streams = (_select_names(named, there) for there in _list_both(broker))
    _reject_both(queues, streams)
    return STREAM_KIND if streams else QUEUE if queues else None


def _find_kind_of_options(given: Mapping[str, str]) -> Kind[Any] | None:
    """The only kind that has all of the options; None if both have them."""
    if _has_options_of(STREAM_KIND, QUEUE, given):
        return STREAM_KIND
    return QUEUE if _has_options_of(QUEUE, STREAM_KIND, given) else None


def _has_options_of(kind: Kind[Any], other: Kind[Any], given: Mapping[str, str]) -> bool:
    """Whether any of the options is only an option of ``kind``."""
    others = {option.name.lower() for option in other.options}
    alone = {option.name.lower() for option in kind.options} - others
    return any(key.lower() in alone for key in given)


def _choose(given: Mapping[str, str], table: tuple[Option, ...]) -> dict[str, Any]:
    """The values of these options; others are ignored."""
    known = {option.name.lower() for option in table}
    own = {key: text for key, text in given.items() if key.lower() in known}
    return options.parse(table, own, BATCH, form="shmq")


def _list_both(broker: shmq.Broker) -> tuple[set[str], set[str]]:
    """The names of queues and of streams."""
    return _list_names("queue", broker), _list_names("stream", broker)


def _list_names(thing: Thing, broker: shmq.Broker) -> set[str]:
    """The names; none without the right to list them, or from a broker without streams."""
    try:
        return names_of(thing, broker)
    except (Unsupported, Unauthorized):
        return set()


def _select_names(named: Mapping[str, Any], there: Iterable[str]) -> list[str]:
    if named["subscribePattern"] is not None:
        return sorted(name for name in there if named["subscribePattern"].fullmatch(name))
    wanted = set(named["subscribe"] or ()) | {named["topic"]}
    return sorted(wanted.intersection(there))


def _reject_both(queues: list[str], streams: list[str]) -> None:
    both = sorted(set(queues).intersection(streams))
    if both:
        raise InvalidOption(f"there are a queue and a stream of the name {both[0]!r}: {_HOW}")
    if queues and streams:
        raise InvalidOption(
            f"{queues[0]!r} is a queue, and {streams[0]!r} a stream, and one read is of one kind: "
            f"{_HOW}"
        )
