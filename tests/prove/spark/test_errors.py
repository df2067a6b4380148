"""Whatever is wrong ends a read, a query, a write and a job in one sentence with the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code, code_of, describe
from shmq.spark.jobs.failure import failure_of
from tests.prove.spark.jobs.tools import run_job, written
from tests.support.server import Server, serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SESAME = "open-sesame-" * 3
NOWHERE = {"url": "shmq://127.0.0.1:1", "connectTimeout": "1s", "requestTimeout": "1s"}

Given = dict[str, str]


@pytest.fixture
def server(broker: shmq.Broker) -> Iterator[Server]:
    broker.create_queue("orders").put(b"tea")
    rights = {SESAME: {"consume": ["orders"], "produce": ["orders"]}}
    with serve(broker.namespace, tokens=rights) as server:
        yield server


@pytest.fixture
def uses(spark: SparkSession, checkpoint: str) -> dict[str, Callable[[Given], None]]:
    """What is done with the options: by its name, what does it."""

    def batch(given: Given) -> None:
        spark.read.format("shmq").options(subscribe=given.pop("name"), **given).load().collect()

    def stream(given: Given) -> None:
        frame = spark.readStream.format("shmq").options(subscribe=given.pop("name"), **given).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    def write(given: Given) -> None:
        frame = spark.createDataFrame([("tea",)], f"{given.pop('column', 'value')} string")
        writer = frame.write.format("shmq").mode("append").options(topic=given.pop("name"), **given)
        writer.save()

    return {"batch": batch, "stream": stream, "write": write}


@pytest.mark.parametrize(
    ("wrong", "kind", "told"),
    [
        ({"name": "nowhere"}, shmq.NoSuchQueue, "queue 'nowhere' does not exist"),
        ({"urll": "x"}, shmq.InvalidOption, "no option 'urll': did you mean 'url'?"),
        ({**NOWHERE, "kind": "queue"}, shmq.ConnectionLost, "127.0.0.1:1"),
        ({"token": "another"}, shmq.Unauthorized, "rejected the token"),
    ],
    ids=["missing-queue", "wrong-option", "unreachable-server", "wrong-token"],
)
def test_whatever_is_wrong_is_one_sentence_with_the_cause(
    uses: dict[str, Callable[[Given], None]],
    server: Server,
    wrong: Given,
    kind: type[shmq.ShmqError],
    told: str,
) -> None:
    for name, use in uses.items():
        patient = {"connectTimeout": "60s"}
        given = {"name": "orders", "url": server.url, "token": SESAME, **patient, **wrong}
        check(failed(lambda use=use, given=given: use(given)), kind, told, name)  # type: ignore[misc]


def test_a_wrong_schema_is_one_sentence_with_the_cause(
    uses: dict[str, Callable[[Given], None]], server: Server
) -> None:
    given = {"name": "orders", "column": "body", "url": server.url, "token": SESAME}
    error = failed(lambda: uses["write"](given))
    check(error, shmq.InvalidOption, "the column 'value' is missing", "write")


def test_a_stream_that_is_refused_before_it_begins_says_why(
    uses: dict[str, Callable[[Given], None]], broker: shmq.Broker
) -> None:
    """Spark's own error about a reader that it was not given would hide the reason."""
    broker.create_queue("orders")
    given = {"name": "orders", "url": broker.namespace, "states": "ready"}
    error = failed(lambda: uses["stream"](given))
    check(error, shmq.InvalidOption, "states='ready' is for spark.read: leave it out", "stream")


def test_a_stream_of_a_name_that_none_can_have_says_so(
    uses: dict[str, Callable[[Given], None]], broker: shmq.Broker
) -> None:
    error = failed(lambda: uses["stream"]({"name": "a b", "url": broker.namespace}))
    check(error, shmq.InvalidName, "invalid queue name 'a b'", "stream")


@pytest.mark.parametrize(
    ("wrong", "code", "told"),
    [
        ({"subscribe": "nowhere"}, Code.NO_QUEUE, "queue 'nowhere' does not exist"),
        ({**NOWHERE, "kind": "queue"}, Code.UNREACHED, "127.0.0.1:1"),
        ({"token": "another"}, Code.DENIED, "rejected the token"),
    ],
    ids=["missing-queue", "unreachable-server", "wrong-token"],
)
def test_a_job_ends_with_the_same_sentence_and_the_exit_code_of_its_cause(
    spark: SparkSession, server: Server, tmp_path: Path, wrong: Given, code: Code, told: str
) -> None:
    patient = {"connectTimeout": "60s"}
    source = {"subscribe": "orders", "url": server.url, "token": SESAME, **patient, **wrong}
    rows = "\n".join(f'{name} = "{value}"' for name, value in source.items())
    top = 'checkpoint = "checkpoint"\ntrigger = "available-now"'
    path = written(tmp_path, f'{top}\n[source.options]\n{rows}\n[sink]\npath = "archive"\n')
    with pytest.raises(shmq.ShmqError) as raised:
        run_job(spark, "archive", path)
    assert code_of(raised.value) == code
    assert describe(raised.value) == str(raised.value)  # one line already
    check(raised.value, type(raised.value), told, "job")


def failed(action: Callable[[], Any]) -> Exception:
    """The cause that a job's user is told, and that stands last in what Spark says."""
    with pytest.raises(Exception, match=r"shmq\.errors") as raised:
        action()
    return failure_of(raised.value)


def check(error: Exception, kind: type[shmq.ShmqError], told: str, use: str) -> None:
    assert type(error) is kind, (use, error)
    assert told in str(error), use
    assert "\n" not in str(error), use
    assert "Traceback" not in str(error), use
    assert SESAME not in str(error), use
