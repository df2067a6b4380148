"""The files of configuration: TOML."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from shmq.errors import InvalidOption


def read_toml(path: Path) -> tuple[dict[str, Any], os.stat_result]:
    """What the file says, and whose it is. Raises InvalidOption, without the file's name."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file), os.fstat(file.fileno())
    except OSError as error:
        raise InvalidOption(f"it cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidOption(f"it is not TOML: {error}") from error
