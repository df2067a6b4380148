"""Whether what exists has the options that were given for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shmq import api
from shmq.api.exchange import ExchangeOptions
from shmq.api.options import Options, QueueOptions, checked
from shmq.api.stream_options import StreamOptions
from shmq.errors import ExchangeExists, QueueExists, StreamExists


def check_same(handle: api.Queue | api.Stream | api.Exchange, given: Mapping[str, Any]) -> None:
    """Raise QueueExists, StreamExists or ExchangeExists if a given option is not as it has it."""
    if isinstance(handle, api.Queue):
        differences = _between(QueueOptions.for_queue(handle.name, given), handle.options, given)
        if differences:
            raise QueueExists.of(handle.name, differences)
    elif isinstance(handle, api.Stream):
        differences = _between(StreamOptions.given(given), handle.options, given)
        if "partitions" in differences and given["partitions"] in _shapes(handle):
            del differences["partitions"]
        if differences:
            raise StreamExists.of(handle.name, differences)
    else:
        there = ExchangeOptions(kind=handle.kind, alternate=handle.alternate)
        differences = _between(checked(ExchangeOptions, given), there, given)
        if differences:
            raise ExchangeExists.of(handle.name, differences)


def _between(
    wanted: Options, existing: Options, given: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    return {key: both for key, both in wanted.differences(existing).items() if key in given}


def _shapes(stream: api.Stream) -> set[int]:
    """The numbers of partitions that it has, had at first, and is appended to."""
    first = sum(one.behind == 0 for one in stream.offsets())
    return {stream.partitions, len(stream.open_partitions), first}
