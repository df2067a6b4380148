"""Django's tests of all cache backends, for that of shmq: it lies beside Django's tests.py."""

from __future__ import annotations

import os

from cache.tests import BaseCacheTests, caches_setting_for_tests  # type: ignore[import-not-found]
from django.test import TestCase, override_settings


@override_settings(
    CACHES=caches_setting_for_tests(
        BACKEND="shmq.extras.django.cache.ShmqCache",
        LOCATION=os.environ["SHMQ_SUITE_TARGET"],
        exclude={"cull", "zero_cull"},
    )
)
class ShmqCacheTests(BaseCacheTests, TestCase):  # type: ignore[misc]
    """All of them, in a table of shmq."""
