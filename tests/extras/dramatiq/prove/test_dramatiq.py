"""Dramatiq's own published tests, with shmq in place of the stub, Redis and RabbitMQ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server import serve
from tests.support.suite import LIMIT, Others, run_suite

STUB = "of the deques of StubBroker"
CLIENT = "of the client of Redis"
ABSENT = "re_declares_queues_when_declared_queue_disappears"
QUICK = "expects what was sent in the worker's own queue within some ms"
CALLBACK = "expects that a callback has run when the next retry begins, 50 ms later"
STORED = "gives a worker 0.1 s to store a result"
TOGETHER = "expects two threads to go on within 10 ms"
TIMED = "expects tasks of 0.1 s to end within 0.5 s"
HELD = "expects all its threads to ask within the 0.3 s for which the first ones hold the limit"
MISSING = "expects to have asked for a result before a task of 0.2 s or 0.3 s has ended"
PIKA = "of RabbitMQ's connections, channels and arguments"

BROKER: Others = {
    "test_actors.py": {
        "test_actors_can_prioritize_work": QUICK,
        "test_actors_can_be_sent_messages": STUB,
        "test_messages_belonging_to_missing_actors_are_rejected": STUB,
        "test_worker_handles_non_numeric_eta_and_logs_warning": STUB,
        "test_worker_handles_none_eta": STUB,
    },
    "test_callbacks.py": {"test_actor_callback_knows_correct_number_of_retries": CALLBACK},
    "test_generic_actors.py": {},
    "test_rabbitmq.py": {
        "test_rabbitmq_broker_can_be_passed_a_semicolon_separated_list_of_uris": PIKA,
        "test_rabbitmq_broker_can_be_passed_a_list_of_uri_for_failover": PIKA,
        "test_rabbitmq_broker_raises_an_error_if_given_invalid_parameter_combinations": PIKA,
        "test_rabbitmq_broker_can_be_passed_a_list_of_parameters_for_failover": PIKA,
        "test_rabbitmq_broker_connections_are_lazy": PIKA,
        "test_rabbitmq_broker_stops_retrying_declaring_queues_when_max_attempts_reached": PIKA,
        "test_rabbitmq_broker_reconnects_after_enqueue_failure": PIKA,
        "test_rabbitmq_workers_handle_rabbit_failures_gracefully": PIKA,
        "test_rabbitmq_connections_can_be_deleted_multiple_times": PIKA,
        "test_rabbitmq_channels_can_be_deleted_multiple_times": PIKA,
        "test_ignore_scary_logs_filter_ignores_logs": PIKA,
        "test_rabbitmq_close_only_registers_ignore_filter_once": PIKA,
        "test_rabbitmq_broker_retries_declaring_queues_when_connection_related_errors_occur": PIKA,
        f"test_rabbitmq_broker_consuming_messages_{ABSENT}": PIKA,
        f"test_rabbitmq_broker_enqueueing_message_{ABSENT}": PIKA,
    },
    "test_redis.py": {
        "test_redis_unacked_messages_can_be_requeued": CLIENT,
        "test_redis_dead_lettered_messages_are_cleaned_up": CLIENT,
        "test_redis_requeues_unhandled_delay_messages_on_shutdown": CLIENT,
        "test_redis_broker_can_connect_via_url": CLIENT,
        "test_redis_broker_can_connect_via_client": CLIENT,
        "test_redis_consumer_ack_can_retry_on_connection_error": CLIENT,
        "test_redis_consumer_nack_can_retry_on_connection_error": CLIENT,
        "test_redis_join_race_condition": CLIENT,
    },
    "test_worker.py": {"test_workers_process_messages_in_order": QUICK},
}

# Not run are the rate limiters of buckets and windows: they count calls by the seconds of the day,
# and dramatiq's own CI leaves them out, too. Our own tests of them set the clock.
TABLE: Others = {
    "test_barrier.py": {"test_barriers_can_block": TOGETHER},
    "test_composition.py": {
        "test_pipelines_expose_completion_stats": STORED,
        "test_groups_execute_jobs_in_parallel": TIMED,
        "test_groups_execute_inner_groups": TIMED,
        "test_groups_can_time_out": MISSING,
        "test_groups_expose_completion_stats": STORED,
        "test_groups_completion_count_works_for_tasks_finishing_out_of_order": STORED,
    },
    "test_concurrent_rate_limiter.py": {
        "test_concurrent_rate_limiter_can_act_as_a_mutex": HELD,
        "test_concurrent_rate_limiter_limits_concurrency": HELD,
    },
    "test_results.py": {
        "test_retrieving_a_result_can_raise_result_missing": MISSING,
        "test_retrieving_a_result_can_time_out": MISSING,
    },
}


# The other two pairs find nothing more: the contract is the same on each transport.
@pytest.mark.parametrize(
    ("files", "transport"), [(BROKER, "tcp"), (TABLE, "memory")], ids=["broker-tcp", "table-memory"]
)
@pytest.mark.watchdog(LIMIT + 60)
def test_the_tests_of_dramatiq_pass(
    files: Others, transport: str, namespace: str, tmp_path: Path
) -> None:
    if transport == "memory":
        run_suite("dramatiq", files, namespace, tmp_path, helper="common.py")
    else:
        with serve(namespace) as server:
            run_suite("dramatiq", files, server.url, tmp_path, helper="common.py")
