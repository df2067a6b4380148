"""The parts of a URL."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from shmq.errors import InvalidOption


def split_url(url: str, what: str = "url") -> SplitResult:
    """The parts of the URL. Raises InvalidOption, without a password that stands before an @."""
    try:
        return urlsplit(url)
    except ValueError as error:
        shown = url.rpartition("@")[2]
        raise InvalidOption(f"{what}={shown!r} is not a URL: {error}") from None
