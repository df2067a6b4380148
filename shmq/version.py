"""The version of shmq, for whatever has to name it."""

from __future__ import annotations

VERSION = "0.1.0"
