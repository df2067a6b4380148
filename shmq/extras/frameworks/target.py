"""The target of a framework's URL: a namespace of this host, or a server."""

from __future__ import annotations

from urllib.parse import SplitResult

from shmq.api.names import TCP_SCHEMES, is_url
from shmq.client.shared.urls import split_url
from shmq.errors import InvalidOption


def parse_target(url: str | None, what: str = "url") -> str | None:
    """The target of :func:`shmq.connect` of ``NAMESPACE``, ``shmq://NAMESPACE`` or a server's URL.

    None and ``shmq://`` are the default namespace; ``GROUP/NAME`` and ``shmq://GROUP/NAME`` that of
    a group of users. Raises InvalidOption, and TypeError.
    """
    if url is None:
        return None
    if not isinstance(url, str):
        raise TypeError(f"{what} must be a str or None, not {type(url).__name__}")
    if not is_url(url):
        return url
    parts = split_url(url, what)
    target, name = find_target(parts), parts.path.removeprefix("/")
    in_group = bool(name and target) and "/" not in name and not is_remote(target)
    if parts.scheme not in TCP_SCHEMES or (name and not in_group) or parts.query:
        raise InvalidOption(
            f"{what}={url!r} must be shmq://NAMESPACE, shmq://GROUP/NAMESPACE, or "
            f"shmq://HOST:PORT of a server"
        )
    return f"{target}/{name}" if in_group else target


def find_target(parts: SplitResult) -> str | None:
    """The target of a URL with one of the schemes of shmq: a server's has a port, or TLS."""
    try:
        is_server = parts.scheme == "shmqs" or parts.port is not None
    except ValueError:
        is_server = True
    return f"{parts.scheme}://{parts.netloc}" if is_server else parts.netloc or None


def is_remote(target: str | None) -> bool:
    """Whether the target is a server."""
    return target is not None and is_url(target)
