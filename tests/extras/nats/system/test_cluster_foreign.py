"""What other clients of a cluster publish to the subjects of queues and streams."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator

import msgpack
import pytest

from shmq.extras.nats.client import names
from shmq.extras.nats.client.broker import NatsBroker
from shmq.extras.nats.client.message import PROPERTIES
from tests.support.nats_server import NATS_SERVER

BODIES = [b"first", b"foreign", b"last"]

DEAD = {"reason": "rejected", "queue": "q", "deliveries": 1, "at": 0}


@pytest.fixture(scope="module")
def broker() -> Iterator[NatsBroker]:
    with NATS_SERVER.serve("foreign") as url, NatsBroker.connect(url) as made:
        yield made


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        pytest.param("%%%", "base64", id="no-base64"),
        pytest.param(b"\x81", "exceeds", id="no-msgpack"),
        pytest.param({"pri": "high"}, "property pri is a str, and must be a int", id="pri"),
        pytest.param({"ttl": None}, "property ttl is a NoneType", id="ttl"),
        pytest.param({"headers": [1]}, "property headers is a list", id="headers"),
        pytest.param({"key": "text"}, "property key is a str", id="key"),
        pytest.param({"dead": {"reason": "x"}}, "property queue is a NoneType", id="dead"),
        pytest.param({"dead": DEAD | {"ttl": "1"}}, "property ttl is a str", id="dead-ttl"),
    ],
)
def test_a_message_whose_properties_cannot_be_read_has_none_and_holds_nothing_up(
    broker: NatsBroker,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    header: object,
    reason: str,
) -> None:
    """An error would come again with each delivery, and to each reader of the stream."""
    name = request.node.callspec.id
    queue = broker.create_queue(name, priorities=1)
    stream = broker.create_stream(name, partitions=1, allow_same_name=True)
    subjects = [
        names.priority_subject(broker.namespace, name, 0),
        names.partition_subject(broker.namespace, name, 0),
    ]
    queue.put(BODIES[0])
    stream.append(BODIES[0])
    for subject in subjects:
        publish(broker, subject, header)
    queue.put(BODIES[2])
    stream.append(BODIES[2])
    caplog.set_level(logging.WARNING, "shmq")

    assert [copy.body for copy in queue.peek(3)] == BODIES
    for body in BODIES:
        message = queue.get(timeout=30)
        assert (message.body, message.properties, message.dead) == (body, {}, None)
        message.ack()
    assert [record.body for record in stream.read(0, 0)] == BODIES
    assert reason in caplog.text


def publish(broker: NatsBroker, subject: str, header: object) -> None:
    if not isinstance(header, str):
        raw = header if isinstance(header, bytes) else msgpack.packb(header)
        header = base64.b64encode(raw).decode()

    async def put() -> None:
        client = await broker.connection.client()
        jetstream = client.jetstream()
        await jetstream.publish(subject, BODIES[1], headers={PROPERTIES: header})

    broker.connection.run(put())
