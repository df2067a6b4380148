"""The advice for workloads whose right advice is known, and queues that are made with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmq
from shmq.extras.advice.report import Advice, advise
from shmq.extras.advice.workload import Workload
from tests.support.namespaces import own_namespace
from tests.support.workloads import GOLDEN, Golden


def advised(one: Golden) -> Advice:
    return advise(Workload.of(one.answers), cores=8)


@pytest.fixture(scope="module")
def broker() -> Iterator[shmq.Broker]:
    with own_namespace() as name, shmq.connect(name) as made:
        yield made


@pytest.mark.parametrize("one", GOLDEN, ids=lambda one: one.name)
def test_a_known_workload_gets_its_known_advice(one: Golden) -> None:
    advice = advised(one)
    expected = dict(one.expected)
    instead = expected.pop("instead", None)
    assert advice.kind == expected.pop("kind", "queue")
    assert advice.is_shmq is (instead is None), advice.verdict()
    if instead is not None:
        assert advice.alternatives[0].name.startswith(instead)
    named = [other.name for other in advice.alternatives if not other.instead]
    if (also := expected.pop("also", None)) is not None:
        assert any(name.startswith(also) for name in named), named
    if (warns := expected.pop("warns", None)) is not None:
        assert any(warns in warning for warning in advice.warnings), advice.warnings
    settings = {setting.name: setting.value for setting in advice.settings}
    assert {name: settings.get(name) for name in expected} == expected


@pytest.mark.parametrize("one", GOLDEN, ids=lambda one: one.name)
def test_what_is_advised_can_be_created(one: Golden, broker: shmq.Broker) -> None:
    advice = advised(one)
    if advice.kind == "stream":
        with broker.create_stream("advised", **advice.options) as stream:
            made = stream.options.as_dict()
        broker.delete_stream("advised")
    else:
        with broker.create_queue("advised", **advice.options) as queue:
            made = queue.options.as_dict()
            assert made["max_message_bytes"] >= advice.workload.body_p99
        broker.delete_queue("advised")
    assert {name: made[name] for name in advice.options} == advice.options


def test_each_setting_tells_its_rule_and_its_number() -> None:
    for one in GOLDEN:
        for setting in advised(one).settings:
            assert setting.reason and setting.trigger and setting.shown, (one.name, setting)


def test_work_without_a_limit_of_deliveries_is_watched_by_its_age() -> None:
    settings = {
        setting.name: setting for setting in advise(Workload.of({"failure": "always"})).settings
    }
    assert settings["max_deliveries"].value is None
    assert settings["alarm"].value == "ShmqMessagesOld"
    assert "dead letter" not in settings["alarm"].trigger


def test_work_that_is_not_repeated_has_no_delay_of_retries() -> None:
    settings = {
        setting.name: setting.value
        for setting in advise(Workload.of({"failure": "never"})).settings
    }
    assert settings["max_deliveries"] == 1
    assert not {"retry_delay", "retry_delay_max"} & set(settings)


def test_the_table_is_of_many_different_workloads() -> None:
    assert len({one.name for one in GOLDEN}) == len(GOLDEN) >= 30
    assert {advised(one).kind for one in GOLDEN} == {"queue", "exchange", "stream"}
