"""Decides whether ``format("shmq")`` reads or writes a queue or a stream.

The option ``kind`` decides. Without it, an existing queue or stream of the name decides. If
there is neither, the format takes the kind to which the options belong.
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
from shmq.spark.shared.options import BATCH, Option, Use
from shmq.spark.stream.kind import STREAM_KIND

__all__ = ["check", "kind_of"]

#: The options by which queues and streams are named, to be read and to be written to.
_NAMES: Final = (*NAMES, Option("topic", options.text, None, BATCH))

_HOW: Final = "say which is meant: .option('kind', 'queue') or .option('kind', 'stream')"


def kind_of(given: Mapping[str, str]) -> Kind[Any]:
    """The kind that the options mean.

    Raises :class:`~shmq.InvalidOption` if a queue and a stream have the name, and what
    :func:`shmq.connect` raises.
    """
    return STREAM_KIND if _is_stream(given) else QUEUE


def check(given: Mapping[str, str], use: Use) -> None:
    """Raise InvalidOption for options that neither kind allows, without a connection."""
    kinds: list[Kind[Any]] = [QUEUE, STREAM_KIND]
    if _of_streams_alone(given):
        kinds.reverse()
    word = _chosen(given, (KIND,))["kind"]
    wrong: list[InvalidOption] = []
    for kind in kinds if word is None else [each for each in kinds if each.name == word]:
        try:
            kind.parse(given, use)
        except InvalidOption as error:
            wrong.append(error)
        else:
            return
    raise wrong[0]


def _is_stream(given: Mapping[str, str]) -> bool:
    word = _chosen(given, (KIND,))["kind"]
    if word is not None:
        return bool(word == "stream")
    try:
        named = _chosen(given, _NAMES)
    except InvalidOption:  # the kind raises it again, with the options that it allows
        return False
    if all(value is None for value in named.values()):
        return _of_streams_alone(given)
    with Address.of(_chosen(given, address.OPTIONS)).connect() as broker:
        queues, streams = _there(broker)
    found = _meant(named, queues), _meant(named, streams)
    _refuse_both(*found)
    return bool(found[1]) or (not found[0] and _of_streams_alone(given))


def _chosen(given: Mapping[str, str], table: tuple[Option, ...]) -> dict[str, Any]:
    """The values of these options; others are ignored."""
    known = {option.name.lower() for option in table}
    own = {key: text for key, text in given.items() if key.lower() in known}
    return options.parse(table, own, BATCH, form="shmq")


def _of_streams_alone(given: Mapping[str, str]) -> bool:
    """Whether any of the options is for streams only."""
    queues = {option.name.lower() for option in QUEUE.options}
    streams = {option.name.lower() for option in STREAM_KIND.options} - queues
    return any(key.lower() in streams for key in given)


def _there(broker: shmq.Broker) -> tuple[set[str], set[str]]:
    """The names of queues and of streams; both empty without streams or the right to list them."""
    try:
        streams = {summary.name for summary in broker.list_streams()}
        return set(broker.queue_names()) if streams else set(), streams
    except (Unsupported, Unauthorized):
        return set(), set()


def _meant(named: Mapping[str, Any], there: Iterable[str]) -> list[str]:
    if named["subscribePattern"] is not None:
        return sorted(name for name in there if named["subscribePattern"].fullmatch(name))
    wanted = set(named["subscribe"] or ()) | {named["topic"]}
    return sorted(wanted.intersection(there))


def _refuse_both(queues: list[str], streams: list[str]) -> None:
    both = sorted(set(queues).intersection(streams))
    if both:
        raise InvalidOption(f"there are a queue and a stream of the name {both[0]!r}: {_HOW}")
    if queues and streams:
        raise InvalidOption(
            f"{queues[0]!r} is a queue, and {streams[0]!r} a stream, and one read is of one kind: "
            f"{_HOW}"
        )
