"""Whether what exists has the options that were given for it, and what is done if not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from shmq import api
from shmq.api.exchange import ExchangeOptions
from shmq.api.options import IfDifferent, Options, QueueOptions, checked
from shmq.api.stream_options import StreamOptions
from shmq.client.shared.durability import depth
from shmq.errors import (
    AlreadyExists,
    ExchangeExists,
    OptionsWarning,
    QueueExists,
    StreamExists,
    TableExists,
)

_Handle: TypeAlias = "api.Queue | api.Stream | api.Exchange | api.Table"

_ADVICE: Final = "it is used as is; delete it first, or pass if_different='accept' or 'refuse'"
#: Of a queue or stream.
_ALTER: Final = "it is used as is; pass if_different='accept', 'refuse' or 'alter'"

#: What this process has warned of: the class of the error, the namespace and the name.
_warned: Final[set[tuple[type[AlreadyExists], str, str]]] = set()


def check_same(handle: _Handle, given: Mapping[str, Any]) -> None:
    """Raise AlreadyExists, of the handle's kind, if a given option is not as it has it."""
    kind, differences = _compare(handle, given)
    if differences:
        raise kind.of(handle.name, differences)


def reconcile(
    handle: _Handle, given: Mapping[str, Any], if_different: IfDifferent, namespace: str
) -> None:
    """Do what ``if_different`` says if a given option is not as the handle has it.

    Only a queue or stream can be altered, by its broker: here ``"alter"`` is ``"refuse"``.
    """
    try:
        check_same(handle, given)
    except AlreadyExists as error:
        if if_different in {"refuse", "alter"}:
            raise
        where = (type(error), namespace, handle.name)
        if if_different == "warn" and where not in _warned:
            _warned.add(where)
            advice = _ALTER if isinstance(handle, api.Queue | api.Stream) else _ADVICE
            text = str(error.of(handle.name, error.differences, advice))
            warnings.warn(text, OptionsWarning, stacklevel=depth())


def find_differences(handle: _Handle, given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The given options that the handle has otherwise: name to both values."""
    return _compare(handle, given)[1]


def _compare(
    handle: _Handle, given: Mapping[str, Any]
) -> tuple[type[AlreadyExists], dict[str, tuple[Any, Any]]]:
    if isinstance(handle, api.Queue):
        wanted = QueueOptions.for_queue(handle.name, given)
        return QueueExists, _between(wanted, handle.options, given)
    if isinstance(handle, api.Stream):
        differences = _between(StreamOptions.given(given), handle.options, given)
        if "partitions" in differences and given["partitions"] in _shapes(handle):
            del differences["partitions"]
        return StreamExists, differences
    if isinstance(handle, api.Exchange):
        there = ExchangeOptions(kind=handle.kind, alternate=handle.alternate)
        return ExchangeExists, _between(checked(ExchangeOptions, given), there, given)
    pairs = {key: (value, getattr(handle, key)) for key, value in given.items()}
    return TableExists, {key: both for key, both in pairs.items() if both[0] != both[1]}


def _between(
    wanted: Options, existing: Options, given: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    return {key: both for key, both in wanted.differences(existing).items() if key in given}


def _shapes(stream: api.Stream) -> set[int]:
    """The numbers of partitions that it has, had at first, and is appended to."""
    first = sum(one.behind == 0 for one in stream.offsets())
    return {stream.partitions, len(stream.open_partitions), first}
