"""This build reads the files of an earlier build and gives its clients the same answers.

``files.tar.gz`` is a data directory and ``session.json`` has the answers to `session.run`, both of
an earlier build. Neither is recorded anew for a new option, feature or operation: what the
recording does not have is not compared.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from tests.prove.compat import session
from tests.prove.compat.session import holds
from tests.support.server import serve

HERE = Path(__file__).parent

#: The messages of the queue with a journal, in delivery order. The first one was delayed by an hour
#: when the files were made, and is due since.
MESSAGES = [b"7", b"2", b"6", {"a": [1, 2]}, b"by a transaction", b"1", b"9", b"0", b"4", b"8"]


@pytest.fixture
def restarted(namespace: str, tmp_path: Path) -> Iterator[shmq.Broker]:
    """A broker on the files, after a restart of the host, with a writer."""
    with tarfile.open(HERE / "files.tar.gz") as files:
        files.extractall(tmp_path, filter="data")
    directory = tmp_path / "compat"
    for folder in [directory, *(path for path in directory.rglob("*") if path.is_dir())]:
        folder.chmod(0o700)  # the extraction of the archive does not set it
    with serve(namespace, data_dir=str(directory)), shmq.connect(namespace) as broker:
        yield broker


def test_files_of_an_earlier_build_are_recovered(restarted: shmq.Broker) -> None:
    broker = restarted
    journalled = broker.queue("journalled")
    assert [message.body for message in journalled.peek()] == MESSAGES
    assert (journalled.stats().delayed, journalled.options.priorities) == (0, 4)
    assert [message.body for message in broker.queue("journalled.dlq").peek()] == [b"5"]
    assert [message.body for message in broker.queue("snapshot").peek()] == [b"y", b"z"]

    stream = broker.stream("stream")
    records = [record for partition in range(2) for record in stream.read(partition, 0)]
    assert sorted(record.body["n"] for record in records) == list(range(21))
    assert stream.group("readers").committed() == {0: 0, 1: 20}
    assert broker.exchange("exchange").publish("routed", "a.b", confirm="disk").delivered == 1
    assert journalled.qsize() == len(MESSAGES) + 1


def test_a_session_of_every_operation_is_answered_as_before(namespace: str) -> None:
    recorded = json.loads((HERE / "session.json").read_text())
    with serve(namespace, workers=1, persist=False) as server:
        answers = session.run(server.address, {name for name, *_ in recorded})

    # Converted through JSON, like the recorded answers.
    now = json.loads(json.dumps(answers))
    assert [row[0] for row in now] == [row[0] for row in recorded]
    assert [(new, old) for new, old in zip(now, recorded, strict=True) if not holds(new, old)] == []


@pytest.mark.parametrize(
    ("now", "recorded"),
    [
        ([1, 2], [1]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"features": ["x"]}, {"features": ["x", "y"]}),
    ],
)
def test_an_answer_that_lacks_something_is_told(now: object, recorded: object) -> None:
    assert holds(recorded, recorded)
    assert not holds(now, recorded)
