"""What of the contract HTTP offers, and why not the rest: every module of tests is in a table."""

from __future__ import annotations

from typing import Final

#: The modules whose tests run over HTTP.
OFFERED: Final = frozenset({
    "test_dead_letters",
    "test_dedupe",
    "test_exchanges",
    "test_filter",
    "test_last_errors",
    "test_lease",
    "test_order",
    "test_put_get",
    "test_time",
})  # fmt: skip

_COLUMNS: Final = "columns and packed batches are buffers in memory: JSON has neither"
_LOOP: Final = "it is about the methods of a client in Python"
_TYPES: Final = "it is about the types of arguments in Python; tests/extras/console has PATCH"
_STREAM: Final = "records are read by offset, without the client's readers and members"

#: The modules that do not, and why.
NO_MODULES: Final = {
    "test_alter": _TYPES,
    "test_alter_stream": _TYPES,
    "test_batch": _COLUMNS,
    "test_batches": _COLUMNS,
    "test_body_types": "bodies of HTTP are JSON and bytes; tests/extras/console shows timestamps",
    "test_bodies": "a step of the iterator settles the message before: HTTP settles by receipt",
    "test_columns": _COLUMNS,
    "test_confirm": "it looks at journals and pipelines; confirm itself is a field of a message",
    "test_consume": "nothing is prefetched over HTTP: a WebSocket has credit instead",
    "test_descriptors": _LOOP,
    "test_dropped": _LOOP,
    "test_errors": "it is about classes of errors in Python: HTTP has codes",
    "test_group_misuse": _STREAM,
    "test_groups": _STREAM,
    "test_lifecycle": "lists are those of the last look, and handles are the client's",
    "test_locks": "locks are of clients of the library: a request of HTTP has no connection to end",
    "test_long_names": "it is about what a client in Python knows",
    "test_loop": _LOOP,
    "test_memory": _LOOP,
    "test_move": "it is about the types of arguments in Python; tests/extras/console has the move",
    "test_named_leases": _COLUMNS,
    "test_numbers": "it is about the types of arguments in Python",
    "test_options": "it is about the types of arguments in Python",
    "test_packed": _COLUMNS,
    "test_producers": _STREAM,
    "test_readinto": _COLUMNS,
    "test_repartition": _STREAM,
    "test_request": "a reply comes into a queue of its own: put and lease are enough",
    "test_schemas": "values are checked where they are typed, in a client",
    "test_shares": _STREAM,
    "test_staging": "rows are staged by Spark",
    "test_statistics": "the numbers are those of QueueStats, and attachments the console's",
    "test_stream_arguments": _STREAM,
    "test_stream_loans": _STREAM,
    "test_streams": _STREAM,
    "test_streams_damaged": _STREAM,
    "test_streams_on_disk": _STREAM,
    "test_subscriptions": _STREAM,
    "test_temporary_queues": "they end with connections and consumers: a call is neither",
    "test_tables": "tables are read and written by clients of the library, not over HTTP",
    "test_transactions": "a transaction is of one process on the host",
    "test_zero_copy": "it is about views of shared memory",
}

#: The modules of those whose tests `make test` runs, too; the others are of `make prove`.
QUICK: Final = frozenset({"test_lease", "test_put_get"})

_MANY: Final = "it makes thousands of requests, and the queue behind them is the same one"
_ALTER: Final = "the client of these tests alters no queue; tests/extras/console has PATCH"
_CLIENT: Final = "it is about the methods of a client in Python"
_RECEIPT: Final = "receipts are texts over HTTP, and name their queue"
_LOAN: Final = "a loan is memory of the queue"
_BUFFERS: Final = "a loan and a packed batch are buffers in memory"
_STREAMS: Final = "the client of these tests has no streams; tests/extras/console tests them"
_PROPERTIES: Final = "properties that shmq does not know are not shown in JSON"
_EXPLAINED: Final = "a refusal is one code over HTTP; tests/extras/console tests its text"

#: Single tests of the modules that run, and why these do not.
NOT_OFFERED: Final[dict[str, str]] = {
    "test_a_binding_that_an_exchange_cannot_have_is_refused": _EXPLAINED,
    "test_a_blocked_group_with_thousands_behind_it_stalls_no_other": _MANY,
    "test_a_confirm_must_be_one_of_its_values": _CLIENT,
    "test_a_dead_letter_keeps_its_original_properties": _PROPERTIES,
    "test_an_altered_limit_is_that_of_the_next_error": _ALTER,
    "test_an_exception_whose_text_cannot_be_made_is_kept_without_it": _CLIENT,
    "test_any_text_is_kept_in_part": "JSON has no lone surrogates",
    "test_the_exception_of_a_block_is_kept": _CLIENT,
    "test_what_is_neither_an_exception_nor_a_text_is_rejected": _CLIENT,
    "test_a_deleted_queue_is_bound_no_more_and_neither_is_a_new_one_of_its_name": _CLIENT,
    "test_a_deleted_stream_is_bound_no_more": _STREAMS,
    "test_a_full_queue_is_named_and_the_others_have_their_copy": _EXPLAINED,
    "test_a_loan_of_a_known_id_is_a_duplicate": _LOAN,
    "test_a_loan_that_was_dropped_leaves_its_id_free": _LOAN,
    "test_a_message_carries_what_its_put_gave": _PROPERTIES,
    "test_a_peeked_message_outlives_the_real_one": "a list shows 4 KiB of a body",
    "test_a_pickled_exchange_is_the_same_one": _CLIENT,
    "test_a_publish_that_waits_in_vain_says_so": _EXPLAINED,
    "test_a_publish_waits_for_room_and_holds_back_no_other": _CLIENT,
    "test_a_queue_that_limits_deliveries_or_has_dead_letters_cannot_take_any": _CLIENT,
    "test_a_receipt_is_good_for_its_own_queue_alone": _RECEIPT,
    "test_a_receipt_of_one_queue_settles_nothing_in_another": _RECEIPT,
    "test_a_receipt_that_was_never_given_settles_nothing": _RECEIPT,
    "test_a_returned_message_is_unchanged": _PROPERTIES,
    "test_a_small_queue_carries_many_messages_between_two_clients": _MANY,
    "test_a_stream_gets_a_record_with_the_key_the_headers_and_the_codec": _STREAMS,
    "test_a_stream_that_is_full_or_too_small_refuses_as_a_queue_does": _STREAMS,
    "test_an_exchange_is_found_listed_and_deleted": _CLIENT,
    "test_an_exchange_of_a_closed_handle_or_broker_says_so": _CLIENT,
    "test_an_exchange_of_another_kind_than_given_is_refused_where_that_is_asked_for": _CLIENT,
    "test_an_exchange_that_cannot_be_made_is_refused": _EXPLAINED,
    "test_an_expression_that_cannot_be_asked_is_refused": _CLIENT,
    "test_bindings_are_told_sorted_and_once": _CLIENT,
    "test_deleting_an_exchange_undoes_the_bindings_to_it": _CLIENT,
    "test_every_call_takes_the_times_of_the_standard_library": _BUFFERS,
    "test_a_ttl_may_be_a_timedelta": _PROPERTIES,
    "test_groups_that_come_and_go_take_no_lasting_room": _MANY,
    "test_headers_that_cannot_be_compared_are_refused": _CLIENT,
    "test_making_an_exchange_again_attaches_and_another_kind_is_refused": _CLIENT,
    "test_a_consumer_and_an_ack_of_many_settle_once_too": _CLIENT,
    "test_every_message_of_a_batch_is_counted_once": _CLIENT,
    "test_every_put_refuses_an_id_without_a_window": _CLIENT,
    "test_many_are_published_in_order": _CLIENT,
    "test_more_ids_than_messages_fit_are_remembered": _MANY,
    "test_more_than_goes_into_a_frame_is_published_in_order": _CLIENT,
    "test_of_many_a_full_queue_takes_the_first": _CLIENT,
    "test_of_many_the_rest_follows_when_there_is_room": _CLIENT,
    "test_tasks_ask_for_what_they_mean": _CLIENT,
    "test_the_headers_of_a_binding_are_told": _CLIENT,
    "test_thousands_of_groups_each_give_their_first_then_their_second": _MANY,
    "test_thousands_of_messages_expire_together": _MANY,
    "test_what_cannot_name_an_exchange_is_said_so": _CLIENT,
    "test_what_is_no_text_is_refused": _CLIENT,
    "test_what_is_not_meant_is_not_there": _CLIENT,
    "test_what_is_not_there_cannot_be_bound": _EXPLAINED,
    "test_within_a_priority_it_is_first_in_first_out": _MANY,
}


def offers(module: str, test: str) -> bool:
    """Whether the test of that module runs over HTTP."""
    return module in OFFERED and test not in NOT_OFFERED
