"""Measures shmq and its peers: ``python -m bench``, or ``make bench``."""

from __future__ import annotations

import os

os.environ["SHMQ_AUTOSTART"] = "0"  # a benchmark starts the writer that it measures
