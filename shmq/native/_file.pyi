"""Walks through the records of a stream's segment files, in their stored form."""

from collections.abc import Callable
from typing import Any, Final

HOW: Final[tuple[str, ...]]

def write_synced(file: int, pieces: list[Any], offset: int) -> int: ...
def walk(
    data: Any,
    at: int,
    salts: tuple[int, int],
    offset: int = 0,
    time: int = ...,
    stop_offset: int = ...,
    stop_time: int = ...,
    most_bytes: int = 0,
    most: int = 0,
    verify: bool = True,
) -> tuple[str, int, int, int, int]: ...
def find(
    data: Any, at: int, salts: tuple[int, int], offset: int, time: int, stop_offset: int
) -> tuple[int, int, int] | None: ...
def measure(data: Any, at: int, salts: tuple[int, int], offset: int, stop_offset: int) -> int: ...
def check(
    data: Any,
    start: int,
    salts: tuple[int, int],
    offset: int,
    time: int = ...,
    on_progress: Callable[[int], object] | None = None,
) -> tuple[str, int, int, int, int, int, int, int, bool]: ...
def produced(
    data: Any,
    at: int,
    salts: tuple[int, int],
    offset: int,
    until: int,
    found: dict[int, tuple[int, int, int]],
) -> str: ...
def entries(data: Any) -> bytes: ...
