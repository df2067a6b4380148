"""Tokens that the service manager keeps: systemd's ``LoadCredential=``, systemd.exec(5)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from shmq.errors import InvalidOption
from shmq.server.config.tokens import hash_of

#: A token has fewer bytes than this.
_MOST = 4096


def with_hash(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a token, with the ``hash`` of the token that its ``credential`` holds.

    Raises :class:`~shmq.InvalidOption` if there is none; no message has the token.
    """
    if "credential" not in row:
        return row
    values = dict(row)
    name = values.pop("credential")
    if "hash" in values:
        raise InvalidOption(f"a token has a hash or a credential, not both: drop one of {name!r}")
    return {**values, "hash": hash_of(_read(name))}


def _read(name: Any) -> str:
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise InvalidOption(
            f"credential={name!r}: CREDENTIALS_DIRECTORY is not set; the unit needs "
            f"LoadCredential={name}:/PATH"
        )
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise InvalidOption(f"credential={name!r} must be the name of a file in {folder}")
    try:
        with Path(folder, name).open("rb") as file:
            return file.read(_MOST).decode("ascii").strip()
    except OSError as error:
        raise InvalidOption(f"credential={name!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidOption(f"credential={name!r} is not a token: it is not ASCII") from error
