"""Starts the threads of `tests.support.first_use` in a forkserver, which loads this module."""

from __future__ import annotations

import os

from tests.support import first_use

first_use.users = first_use.Users(os.environ[first_use.TARGET])
