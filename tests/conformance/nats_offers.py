"""What of the contract's tests a cluster of NATS JetStream passes, refuses, and cannot pass.

A test in REFUSED, or marked `refused_by_clusters`, runs, and must raise `Unsupported`;
`test_cluster_contract.py` in `tests/extras/nats/system` has the refusals with their reasons. What
is emulated or weaker has its own tests there.
"""

from __future__ import annotations

from typing import Final

#: The modules of those whose tests `make test` runs, too; the others are of `make prove`.
QUICK: Final = frozenset({"test_put_get"})

_HOST: Final = "it looks at what one host has"

#: The modules whose tests do not run, and why.
NO_MODULES: Final = {
    "test_columns": "`read_columns` and `bulk` are refused",
    "test_confirm": "it looks at journals of this host; `confirm` needs servers that sync",
    "test_descriptors": "`fileno` is refused",
    "test_dropped": "it drops records of shares, and reads the namespace of this host",
    "test_long_names": "tables, which have the texts, are refused",
    "test_memory": "it is about the memory of this host",
    "test_named_leases": "`bulk` is refused",
    "test_repartition": "`repartition` is refused",
    "test_shares": "`share` is refused",
    "test_staging": "`staged_publisher` is refused",
    "test_streams_damaged": _HOST,
    "test_streams_on_disk": _HOST,
    "test_tables": "tables are refused",
    "test_temporary_queues": "`expires`, `auto_delete` and `exclusive` are refused",
    "test_transactions": "`transaction` is refused",
    "test_zero_copy": "it is about views of shared memory",
}

_RETURNED: Final = "`qsize` and `stats` do not see what came back until it is delivered again"
_TOTALS: Final = "totals other than `put` and `acked` are not kept"
_PLACE: Final = "what came back, or becomes due, does not take the place it had"
_GROUPS: Final = "groups share 16 partitions, come after the rest, and keep no priorities"
_EXPIRED: Final = "what has expired is there until a consumer meets it, and whole seconds count"
_OLDEST: Final = "the server drops the oldest, leased or not"
_KEPT: Final = "the server's own account of bytes and ages decides what is kept"
_LARGE: Final = "a message has at most the server's `max_payload`"
_STORED: Final = "`at` goes by the time at which the server stored a record"
_REPLIES: Final = "replies come by a subject, not by a queue"
_EXPANDED: Final = "records are messages of their own: expanded"
_SEQUENCE: Final = "gaps in a producer's sequence are not noticed"
_WHERE: Final = "`where` is refused, to a thread of the test"
_SHARE: Final = "its last step makes a share, which is refused"
_LETTERS: Final = "a put cannot be kept out while a queue is found empty, so its dead letters stay"
_COUNTS: Final = "the publishers of a cluster share no counter"
_HOLDERS: Final = "who holds a lock is not known"
_RECEIPT: Final = "a receipt has more than 64 bits"

#: The tests that are refused, alone or with these parameters.
REFUSED: Final = frozenset({
    "test_a_cancelled_task_holds_nothing",
    "test_a_closed_broker_releases_its_locks",
    "test_a_closed_subscription_that_is_polled_holds_back_no_append",
    "test_a_deleted_streams_handle_makes_no_groups",
    "test_a_forgotten_subscription_holds_back_no_append",
    "test_a_higher_priority_comes_first_and_one_that_came_back_has_its_place",
    "test_a_lock_has_one_holder_and_is_free_after_the_block",
    "test_a_lock_is_not_reentrant",
    "test_a_lock_that_was_forgotten_is_made_again",
    "test_a_loop_has_the_bodies_that_its_filter_means",
    "test_a_pickled_handle_is_one_of_the_same_lock",
    "test_a_repeated_append_after_a_failed_disk_doubles_nothing",
    "test_a_returned_message_wakes_a_filtered_wait_that_selects_it",
    "test_a_semaphore_has_that_many_holders",
    "test_a_stream_that_is_full_or_too_small_refuses_as_a_queue_does",
    "test_a_subscription_of_a_closed_handle_can_still_be_closed",
    "test_a_table_uses_the_default",
    "test_a_task_that_blocks_holds_back_appends_until_it_closes",
    "test_a_timeout_may_be_infinite",
    "test_a_waiter_that_times_out_leaves_the_line",
    "test_an_expression_that_cannot_be_asked_is_refused",
    "test_an_id_is_forgotten_after_the_window",
    "test_an_invalid_number_of_permits_is_refused",
    "test_an_iterator_gives_what_is_meant_alone",
    "test_an_iterator_that_may_not_wait_ends_with_what_is_there",
    "test_another_type_is_refused[<lambda>26]",
    "test_another_type_is_refused[<lambda>27]",
    "test_another_type_is_refused[<lambda>28]",
    "test_another_type_is_refused[<lambda>29]",
    "test_another_type_is_refused[<lambda>30]",
    "test_any_other_name_is_accepted",
    "test_arguments_are_refused_as_those_of_consume[options4-InvalidOption]",
    "test_dead_letters_are_asked_why_they_are_dead",
    "test_every_value_in_range_is_what_all_clients_see[auto_delete-True]",
    "test_every_value_in_range_is_what_all_clients_see[expires-600]",
    "test_every_value_in_range_is_what_all_clients_see[expires-86400]",
    "test_how_many_wait_is_known_while_an_append_waits_for_room",
    "test_locks_are_listed_and_their_queues_are_not",
    "test_many_that_are_meant_come_together",
    "test_of_a_batch_that_is_dropped_what_went_in_is_not_counted",
    "test_one_that_blocks_goes_on_with_partitions_that_come",
    "test_one_that_blocks_holds_back_appends_until_it_goes_on",
    "test_one_that_blocks_keeps_all_that_there_is_from_its_beginning",
    "test_one_that_blocks_lets_go_of_what_it_has_handed_out_and_not_of_more",
    "test_only_a_stream_that_blocks_can_be_held_back",
    "test_tasks_ask_for_what_they_mean",
    "test_tasks_share_a_lock",
    "test_the_child_of_a_fork_settles_nothing_of_its_parents",
    "test_the_dead_letter_queue_is_as_durable_as_its_queue",
    "test_the_front_of_a_group_that_is_not_meant_holds_its_group",
    "test_the_slowest_of_those_that_block_holds_back",
    "test_the_window_counts_from_the_first_put_and_no_duplicate_renews_it",
    "test_those_who_wait_get_it_in_their_order",
    "test_two_subscriptions_of_one_handle_hold_back_each_for_itself",
    "test_what_a_child_reads_no_further_stays_its_parents",
    "test_what_a_group_has_not_done_is_kept_where_appends_wait",
    "test_what_is_meant_comes_in_its_order_and_the_others_stay_in_theirs",
    "test_what_is_no_text_is_refused",
    "test_what_is_not_meant_is_not_there",
    "test_what_is_out_of_range_is_refused[<lambda>21]",
    "test_what_is_out_of_range_is_refused[<lambda>22]",
    "test_what_is_out_of_range_is_refused[<lambda>23]",
    "test_what_is_out_of_range_is_refused[<lambda>24]",
    "test_what_is_out_of_range_is_refused[<lambda>25]",
    "test_what_is_out_of_range_is_refused[<lambda>26]",
    "test_what_may_be_asked",
    "test_with_disk_a_batch_is_over_once_it_is_there",
    "test_without_acknowledgements_what_finds_no_room_is_dropped_and_counted",
})  # fmt: skip

#: The tests that a cluster cannot pass, alone or with these parameters, and why.
LEFT_OUT: Final[dict[str, str]] = {
    "test_a_block_that_is_not_entered_in_time_says_who_holds_the_lock": _HOLDERS,
    "test_a_semaphore_has_one_permit_or_very_many": _HOLDERS,
    "test_a_group_keeps_the_options_it_was_made_with": _SHARE,
    "test_a_batch_is_compressed_and_read_one_by_one": _EXPANDED,
    "test_a_batch_may_be_delayed_and_may_expire": _EXPIRED,
    "test_a_batch_may_be_small_or_large[3145728]": _LARGE,
    "test_a_batch_takes_one_message_of_each_group": _PLACE,
    "test_a_deleted_queue_takes_its_own_empty_dead_letter_queue_with_it": _LETTERS,
    "test_a_batch_takes_priorities_and_groups_as_get_does": _GROUPS,
    "test_a_batch_that_is_there_in_part_is_refused_as_a_whole": _SEQUENCE,
    "test_a_blocked_group_with_thousands_behind_it_stalls_no_other": _GROUPS,
    "test_a_body_that_cannot_be_decoded_raises_and_goes_back": _RETURNED,
    "test_a_body_that_is_not_of_its_codec_stops_its_batch_and_names_its_receipt": _RETURNED,
    "test_a_client_that_closes_with_a_message_in_hand_gives_it_back": _RETURNED,
    "test_a_dead_letter_has_left_its_queue": _TOTALS,
    "test_a_dead_letter_is_dropped_and_counted_when_its_time_is_over": _EXPIRED,
    "test_a_dead_letter_that_is_got_and_returned_keeps_its_end": _EXPIRED,
    "test_a_dead_letters_ttl_delay_and_dedupe_no_longer_act": _EXPIRED,
    "test_a_delayed_nack_holds_its_group_back_and_no_other": _GROUPS,
    "test_a_filtered_wait_takes_no_wakeup_of_another_message": _WHERE,
    "test_a_high_message_overtakes_a_normal_one_of_its_own_group": _GROUPS,
    "test_a_high_message_waits_for_the_one_of_its_group_in_flight": _GROUPS,
    "test_a_large_reply_comes_whole": _LARGE,
    "test_a_lease_that_ends_in_hand_is_reported_at_the_end_of_the_block": _RETURNED,
    "test_a_lease_that_ends_in_hand_is_reported_by_the_next_step_and_the_loop_may_go_on": _RETURNED,
    "test_a_lease_that_ran_out_is_counted": _TOTALS,
    "test_a_lease_that_ran_out_is_refused": _RETURNED,
    "test_a_lease_that_ran_out_redelivers_the_message": _TOTALS,
    "test_a_lease_that_ran_out_within_a_batch_is_refused_alone": _RETURNED,
    "test_a_leased_message_past_its_ttl_dies_when_it_comes_back": _EXPIRED,
    "test_a_leased_message_past_its_ttl_is_its_holders_to_finish": _EXPIRED,
    "test_a_message_in_hand_stays_leased_when_its_consumer_closes": _RETURNED,
    "test_a_message_nacked_with_a_delay_takes_its_old_place_when_it_is_due": _PLACE,
    "test_a_message_past_its_ttl_becomes_a_dead_letter_never_delivered": _EXPIRED,
    "test_a_message_whose_last_lease_ran_out_becomes_a_dead_letter": _RETURNED,
    "test_a_message_whose_lease_ran_out_keeps_its_place": _PLACE,
    "test_a_million_records_are_one_message": _LARGE,
    "test_a_nack_and_the_redelivery_it_leads_to_are_counted": _TOTALS,
    "test_a_nack_of_a_batch_delays_it": _RETURNED,
    "test_a_nack_with_a_delay_hides_the_message_that_long": _RETURNED,
    "test_a_producer_appends_nothing_twice": _SEQUENCE,
    "test_a_put_that_does_not_fit_even_so_drops_nothing": _OLDEST,
    "test_a_put_with_a_delay_takes_its_place_by_sequence_when_it_is_due": _PLACE,
    "test_a_queues_ttl_is_that_of_every_message_without_one": _EXPIRED,
    "test_a_record_from_the_future_moves_no_lookup": _STORED,
    "test_a_record_is_found_by_the_largest_timestamp_up_to_it": _STORED,
    "test_a_record_that_is_too_large_with_its_key_is_in_no_batch": _LARGE,
    "test_a_redriven_dead_letter_has_no_end_any_more": _EXPIRED,
    "test_a_reply_queue_goes_with_its_broker": _REPLIES,
    "test_a_send_that_raises_full_has_not_taken_the_record": _KEPT,
    "test_a_stream_keeps_nine_tenths_of_what_it_was_told[4-262144]": _KEPT,
    "test_a_stream_keeps_nine_tenths_of_what_it_was_told[4-65536]": _KEPT,
    "test_a_stream_keeps_nine_tenths_of_what_it_was_told[50-65536]": _KEPT,
    "test_a_stream_keeps_nine_tenths_of_what_it_was_told[7-262144]": _KEPT,
    "test_a_stream_keeps_nine_tenths_of_what_it_was_told[7-65536]": _KEPT,
    "test_a_stream_that_keeps_records_for_a_time_lets_the_old_ones_go": _KEPT,
    "test_a_task_that_breaks_without_a_block_returns_the_body_in_hand_counted": _RETURNED,
    "test_a_time_leads_to_the_first_record_from_then_on": _STORED,
    "test_a_ttl_counts_from_the_put_not_from_when_the_message_is_due": _EXPIRED,
    "test_a_ttl_passes_while_a_message_is_delayed": _EXPIRED,
    "test_a_wait_ends_with_the_first_that_is_meant": _WHERE,
    "test_a_wait_for_what_is_meant_ends_with_the_queue": _WHERE,
    "test_a_waiting_request_is_told_when_its_reply_queue_is_deleted": _REPLIES,
    "test_an_uncounted_nack_returns_the_message_to_its_place_as_if_it_had_not_been_delivered": _RETURNED,  # noqa: E501
    "test_an_uncounted_nack_with_a_delay_hides_the_message_that_long": _RETURNED,
    "test_any_client_may_settle_by_receipt": _TOTALS,
    "test_a_class_may_have_the_name_of_what_has_no_type": _TOTALS,
    "test_any_type_is_counted_by_its_end": _TOTALS,
    "test_closing_a_client_carries_out_the_acks_its_consumers_gathered": _RETURNED,
    "test_closing_a_queue_returns_what_its_consumers_leased_ahead": _RETURNED,
    "test_closing_a_queue_returns_what_its_loop_has": _RETURNED,
    "test_counts_begin_again_with_a_queue_that_is_made_again": _TOTALS,
    "test_dead_letters_are_counted_by_reason": _TOTALS,
    "test_dead_letters_are_counted_where_they_came_from": _TOTALS,
    "test_dead_letters_wait_in_their_queue_while_the_other_is_full": _RETURNED,
    "test_delayed_messages_that_are_due_take_their_place_by_sequence": _PLACE,
    "test_drop_oldest_drops_neither_leased_nor_delayed_messages": _OLDEST,
    "test_drop_oldest_drops_the_deliverable_message_with_the_lowest_sequence": _OLDEST,
    "test_drop_oldest_drops_what_waits_behind_its_group_if_nothing_is_deliverable": _OLDEST,
    "test_drop_oldest_leaves_what_waits_behind_its_group": _OLDEST,
    "test_drop_oldest_never_waits_and_never_raises_while_something_is_visible": _OLDEST,
    "test_duplicates_are_counted": _TOTALS,
    "test_expired_messages_are_dropped_and_counted_if_the_queue_says_so": _EXPIRED,
    "test_expired_messages_are_dropped_where_there_are_no_dead_letters": _EXPIRED,
    "test_failures_are_counted_by_type": _TOTALS,
    "test_failures_are_counted_without_their_errors": _TOTALS,
    "test_groups_are_served_in_parallel": _GROUPS,
    "test_groups_of_long_and_of_similar_names_are_kept_apart": _GROUPS,
    "test_in_a_shared_dead_letter_queue_each_source_says_how_long_its_letters_stay": _EXPIRED,
    "test_leases_that_ran_out_are_refused_when_a_batch_is_settled": _RETURNED,
    "test_many_threads_ask_at_once_and_each_gets_its_own": _REPLIES,
    "test_messages_without_a_group_are_never_held": _GROUPS,
    "test_more_than_goes_into_a_frame_is_published_in_order": _LARGE,
    "test_one_that_is_settled_already_is_not_counted": _TOTALS,
    "test_purge_removes_what_a_delayed_nack_holds_and_frees_its_group": _RETURNED,
    "test_receipts_may_come_out_of_an_array": _RECEIPT,
    "test_redrive_forgets_ttl_delay_and_dedupe": _EXPIRED,
    "test_peek_shows_it": _RETURNED,
    "test_redrive_into_a_full_queue_leaves_the_rest_where_it_is": _RETURNED,
    "test_rejecting_a_dead_letter_drops_it_and_counts_it": _TOTALS,
    "test_returned_messages_keep_their_place_in_whatever_order_they_return": _PLACE,
    "test_returning_unseen_messages_again_and_again_never_kills_them": _RETURNED,
    "test_the_block_acknowledges_or_returns_all": _TOTALS,
    "test_the_most_frequent_types_are_counted_and_the_others_together": _TOTALS,
    "test_the_queues_back_off_holds_for_a_body_that_failed": _RETURNED,
    "test_the_rates_follow_what_goes_in_and_out": _TOTALS,
    "test_the_retry_delay_survives_any_number_of_deliveries": _RETURNED,
    "test_the_second_put_of_an_id_is_taken_as_done_and_says_so": _TOTALS,
    "test_thousands_of_groups_each_give_their_first_then_their_second": _GROUPS,
    "test_thousands_of_messages_expire_together": _EXPIRED,
    "test_what_a_closed_client_held_keeps_its_place": _PLACE,
    "test_what_is_dropped_is_counted": _TOTALS,
    "test_what_is_dropped_is_counted_by_reason": _TOTALS,
    "test_without_a_block_leaving_returns_the_body_in_hand_counted_and_the_rest_uncounted": _RETURNED,  # noqa: E501
    "test_without_a_dead_letter_queue_messages_are_dropped_and_counted": _TOTALS,
    "test_without_the_library_a_read_says_which_records_and_what_to_install": _EXPANDED,
    "test_an_unrouted_message_is_counted_whether_or_not_it_raises": _COUNTS,
    "test_the_exchange_that_was_published_to_counts": _COUNTS,
    "test_what_a_queue_refuses_is_counted_and_what_no_put_could_do_is_not": _COUNTS,
    "test_every_message_of_a_batch_is_counted_once": _COUNTS,
    "test_an_exchange_that_is_deleted_and_created_again_counts_from_0": _COUNTS,
}


def _names(test: str, parameters: str) -> tuple[str, str]:
    return test, f"{test}[{parameters}]"


def offers(module: str, test: str, parameters: str) -> bool:
    """Whether the test runs over NATS."""
    left_out = any(name in LEFT_OUT for name in _names(test, parameters))
    return module not in NO_MODULES and not left_out


def is_refused(test: str, parameters: str) -> bool:
    """Whether the test must raise `Unsupported`."""
    return any(name in REFUSED for name in _names(test, parameters))
