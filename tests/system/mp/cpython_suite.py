"""CPython's own tests of multiprocessing's queues, run on those of shmq.mp.

``python -m tests.system.mp.cpython_suite METHOD``. The tests are those of the interpreter that
runs them; a test whose subject is the feeder thread or the pipe, which shmq.mp has not,
is left out by name.
"""

from __future__ import annotations

import sys
import unittest

from test import _test_multiprocessing as suite

import shmq.mp

suite.multiprocessing = shmq.mp


class TestQueue(suite._TestQueue, suite.ProcessesMixin, unittest.TestCase):  # type: ignore[misc]
    Queue = staticmethod(shmq.mp.Queue)
    JoinableQueue = staticmethod(shmq.mp.JoinableQueue)
    #: An object that cannot be pickled is refused by put, not reported by a thread.
    test_queue_feeder_donot_stop_onexc = None
    test_queue_feeder_on_queue_feeder_error = None


class TestSimpleQueue(suite.TestSimpleQueue):  # type: ignore[misc]
    #: Looks at the two ends of the pipe.
    test_closed = None


if __name__ == "__main__":
    shmq.mp.set_start_method(sys.argv[1], force=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
