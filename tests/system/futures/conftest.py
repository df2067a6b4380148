"""What the tests of shmq.futures share: a namespace of which nothing may be left."""

from __future__ import annotations

from tests.system.mp.conftest import own_namespace, start  # noqa: F401 - for the tests of this folder
