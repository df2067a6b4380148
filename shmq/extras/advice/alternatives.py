"""When another system suits a workload better, or as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from shmq.extras.advice.plan import ORDINARY, Plan
from shmq.extras.advice.workload import DAY
from shmq.units import rate, size, span

_TERABYTE: Final = 1e12
_MANY_READERS: Final = 3
#: Peaks of so many times the mean are better paid by the message.
_SPIKY: Final = 10.0
_OF_POSTGRES: Final = 1000.0


class Alternative(NamedTuple):
    """Another system, and why."""

    name: str
    reason: str
    #: Whether shmq is the wrong choice; else the other is a choice, too.
    instead: bool


def alternatives(plan: Plan) -> list[Alternative]:
    """All that apply, those first that are to be used instead."""
    found = [each for rule in _RULES for each in rule(plan)]
    return sorted(found, key=lambda each: not each.instead)


def _log(plan: Plan) -> Iterator[Alternative]:
    of, name = plan.workload, "Kafka or Redpanda"
    if of.connectors:
        yield Alternative(name, "ready connectors are needed: Kafka Connect has them", True)
    elif plan.kept_bytes > _TERABYTE:
        yield Alternative(
            name, f"{size(plan.kept_bytes)} are kept, more than one disk should", True
        )
    elif plan.replays_days and of.groups >= _MANY_READERS and plan.is_remote:
        yield Alternative(
            name,
            f"{of.groups} independent readers on {plan.hosts} hosts replay {span(of.replay_for)}",
            True,
        )
    elif "kafka" in of.runs and plan.kind == "stream" and plan.is_remote:
        yield Alternative("Kafka", f"a stream over {plan.hosts} hosts, and it is operated", True)
    elif plan.replays_days:
        yield Alternative(
            name, "once many groups on many hosts read it; until then a stream on disk does", False
        )


def _weigh_host(plan: Plan) -> Iterator[Alternative]:
    survives = plan.workload.survives
    if survives == "site":
        yield Alternative(
            "SQS, or Kafka over several sites", "the loss of a site takes copies in another", True
        )
    elif survives == "host":
        yield Alternative(
            "shmq on the cluster URL (nats://, three copies)",
            "a host that is lost takes its shared memory and its disk with it",
            False,
        )
        yield Alternative(
            "RabbitMQ quorum queues, or SQS", "they keep copies on several hosts", False
        )


def _weigh_broker(plan: Plan) -> Iterator[Alternative]:
    of = plan.workload
    foreign = [one for one in of.languages if one not in {"python", "c"}]
    if of.producer_hosts > 1 and "rabbitmq" in of.runs and of.peak_rate < ORDINARY:
        yield Alternative(
            "RabbitMQ",
            f"producers on {of.producer_hosts} hosts at {rate(of.peak_rate)}/s, and it is operated "
            f"already: more clients, and people who know it",
            True,
        )
    elif plan.is_remote:
        known = "Redis" if "redis" in of.runs else "RabbitMQ"
        yield Alternative(
            known if of.operators else "a hosted broker",
            f"{plan.hosts} hosts: `shmq serve` does it too, with one host that holds the queues",
            False,
        )
    if foreign:
        yield Alternative(
            "RabbitMQ, Redis or NATS",
            f"clients in {', '.join(foreign)}: shmq has Python's, one in C, and HTTP",
            not {"python", "c"} & set(of.languages) and plan.is_remote,
        )


def _weigh_hosted(plan: Plan) -> Iterator[Alternative]:
    of = plan.workload
    spiky = of.peak_rate >= _SPIKY * of.rate
    if "aws" in of.runs and spiky and not of.operators and plan.kind != "stream":
        yield Alternative(
            "SQS",
            f"peaks of {rate(of.peak_rate)}/s over a mean of {rate(of.rate)}/s, and nobody "
            f"to operate a server",
            True,
        )


def _weigh_database(plan: Plan) -> Iterator[Alternative]:
    of = plan.workload
    if not of.with_row:
        return
    little = of.peak_rate < _OF_POSTGRES
    if "postgres" in of.runs and little:
        yield Alternative(
            "procrastinate, River or Oban, in Postgres",
            f"{rate(of.peak_rate)}/s is less than {_OF_POSTGRES:,.0f}, and the message must commit "
            f"with the row",
            True,
        )
    else:
        yield Alternative(
            "an outbox table",
            "the message commits with the row in the table, and a process puts it from there with "
            "the row's id as dedupe_id",
            False,
        )


def _weigh_workflow(plan: Plan) -> Iterator[Alternative]:
    of = plan.workload
    if of.workflow or of.work_p99 > DAY:
        why = (
            "steps over days with timers and compensation"
            if of.workflow
            else (f"work of {span(of.work_p99)}")
        )
        yield Alternative("Temporal", f"{why}: a queue keeps no state of a workflow", True)


def _weigh_ring(plan: Plan) -> Iterator[Alternative]:
    of = plan.workload
    one_reader = of.readers == "pool" or of.groups == 1
    if of.producers == "frames" and one_reader and of.survives == "nothing" and not plan.is_remote:
        yield Alternative(
            "a ring buffer, or iceoryx2",
            "one reader, and the newest frame counts: leases and acknowledgements only cost time",
            True,
        )


def _weigh_process(plan: Plan) -> Iterator[Alternative]:
    of = plan.workload
    if of.one_process and of.survives == "nothing":
        yield Alternative(
            "queue.Queue", "one process, and nothing must outlive it: of the standard library", True
        )


_RULES: Final = (
    _weigh_process,
    _weigh_ring,
    _weigh_workflow,
    _weigh_database,
    _log,
    _weigh_host,
    _weigh_hosted,
    _weigh_broker,
)
