"""Huey's own tests of storages and of its API, with the storage of shmq."""

from __future__ import annotations

import itertools
import os
from typing import Any

from huey.tests import base, test_api
from huey.tests.test_storage import StorageTests

from shmq.extras.huey import ShmqHuey

#: The tests of the API that are not of this storage. They expect a result to be deleted when it is
#: read, as with RedisHuey: it expires, as with RedisExpireHuey.
_DELETED_WHEN_READ = (
    "test_reschedule",
    "test_reschedule_no_delay",
    "test_result_readiness_reads_result",
    "test_result_store",
    "test_retries_with_override",
    "test_retry",
    "test_retry_to_success",
    "test_retrytask_explicit",
    "test_revoke_once",
    "test_revoke_task_instance_persistent",
    "test_revoke_until",
    "test_task_error",
    "test_workflow",
)
#: A task stays in the schedule until it was enqueued.
_STAYS = ("test_read_schedule",)
#: Of results, as above, and of the attributes of another storage.
_OF_CHORDS = ("test_chord", "test_chord_bookkeeping_cleared")

_NUMBERS = itertools.count()
#: What the tests use.
_PRIORITIES = (*range(12), 99)


def make_huey(*_: Any, **options: Any) -> ShmqHuey:
    """An application with a queue and tables of its own."""
    return ShmqHuey(
        f"suite-{next(_NUMBERS)}",
        url=os.environ["SHMQ_SUITE_TARGET"],
        blocking=False,
        priorities=_PRIORITIES,
        **options,
    )


base.MemoryHuey = make_huey  # which their cases create

for _name in (*_DELETED_WHEN_READ, *_STAYS):
    delattr(test_api.TestQueue, _name)
for _name in _OF_CHORDS:
    delattr(test_api.TestChordPrimitive, _name)
for _name, _case in vars(test_api).items():
    if isinstance(_case, type) and issubclass(_case, base.BaseTestCase):
        globals()[_name] = _case


class TestShmqStorage(StorageTests, base.BaseTestCase):
    destructive_reads = False  # as RedisExpireHuey's

    def get_huey(self) -> ShmqHuey:
        return make_huey(utc=False)
