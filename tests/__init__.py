"""The tests, and what holds for all of them."""

from __future__ import annotations

import os

# A test starts the writers that it needs, and so does not hear of one that is missing. Those of
# the writer that is started automatically say otherwise: tests/prove/recovery/test_autostart.py.
os.environ["SHMQ_AUTOSTART"] = "0"
os.environ.setdefault("PYTHONWARNINGS", "ignore:no persistence writer keeps")
