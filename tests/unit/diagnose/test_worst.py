"""Which queues need attention most."""

from __future__ import annotations

from shmq.host.diagnose.activity import QueueActivity
from shmq.host.diagnose.worst import find_worst
from tests.unit.diagnose.test_findings import queue, seen


def test_findings_come_first_the_worst_before_all_then_the_oldest_messages() -> None:
    found = seen(
        queue("empty"),
        queue("young", depth=9, oldest_age=1.0),
        queue("old", depth=2, oldest_age=20.0),
        queue("idle", depth=3, oldest_age=60.0),
        queue("full", depth=10_000),
        QueueActivity(name="broken", problem="it is damaged"),
        queue("dead", depth=1),
    )

    worst = find_worst(found, 6)

    names = [one.name for one, _ in worst]
    assert set(names[:2]) == {"full", "broken"}
    assert set(names[2:4]) == {"idle", "dead"}
    assert names[4:] == ["old", "young"]
    codes = {one.name: finding and finding.code for one, finding in worst}
    assert codes == {
        "full": "full", "broken": "broken", "idle": "no-consumer", "dead": "dead-letters",
        "old": None, "young": None,
    }  # fmt: skip
