"""Tests that `make test` leaves out on Spark only: they cost most there, and others prove what they prove.

Each of them runs on the native engine in `make test`, or another one of the same file runs on Spark: only the
statements differ between the engines, and each kind of statement is in a test that stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.one_jvm import needs_the_jvm

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NIGHTLY", "THOROUGH", "pytest_itemcollected"]

#: What is left to `make test-rest`, by file: tests, or single cases of tests.
THOROUGH: Mapping[str, frozenset[str]] = {
    "test_addressed_takes": frozenset(
        {
            "test_take_df_when_it_names_a_subqueue_holds_it",
            "test_take_df_when_it_names_no_subqueue_is_refused",
        }
    ),
    "test_arrow": frozenset(
        {
            "test_put_arrow_gives_ids_in_the_order_of_rows",
            "test_put_arrow_of_a_schemas_columns_puts_what_take_arrow_gives",
            "test_take_arrow_gives_the_next_tasks_as_a_table",
        }
    ),
    "test_case_020_fifottl": frozenset(
        {
            "test_priority_counts_before_the_order_of_puts",
        }
    ),
    "test_case_030_utube": frozenset(
        {
            "test_create_tube_in_either_mode_gives_its_name_type_and_a_busy_subqueue",
            "test_exchange_acks_and_takes_the_next_of_the_same_subqueue",
        }
    ),
    "test_case_100_limfifottl": frozenset(
        {
            "test_put_df_finds_room_for_all_its_rows_or_puts_none",
        }
    ),
    "test_case_x_a_shapes": frozenset(
        {
            "test_payload_comes_back_as_the_json_value_it_is",
        }
    ),
    "test_case_x_b_errors": frozenset(
        {
            "test_bury_and_delete_of_several_when_one_is_unknown_change_nothing[fifottl-spark]",
        }
    ),
    "test_case_x_c_counters": frozenset(
        {
            "test_each_verb_has_one_event_and_one_count",
        }
    ),
    "test_conflicts": frozenset(
        {
            "test_verb_when_another_commits_in_the_middle_of_its_statement[spark-put, take]",
        }
    ),
    "test_failed_tasks": frozenset(
        {
            "test_fail_when_a_frame_has_more_rows_than_the_batch_releases_all_that_it_names",
            "test_process_of_a_batch_when_a_handler_names_failed_tasks_acks_the_rest",
            "test_process_of_a_batch_when_more_rows_name_failed_tasks_than_it_has_acks_none_of_these[spark-one task has many reasons]",
        }
    ),
    "test_failures": frozenset(
        {
            "test_df_when_a_task_is_taken_or_was_shows_its_owner_as_the_task_does",
            "test_df_when_tasks_have_errors_shows_them",
        }
    ),
    "test_frames_in_order": frozenset(
        {
            "test_put_df_of_a_sorted_frame_numbers_its_rows_in_that_order[orderBy-false]",
        }
    ),
    "test_history": frozenset(
        {
            "test_put_only_adds_files_and_take_copies_only_what_it_does_not_take",
        }
    ),
    "test_job_names": frozenset(
        {
            "test_jobs_when_verbs_run_are_named_after_verb_and_tube_and_a_programs_as_before",
        }
    ),
    "test_large_payloads": frozenset(
        {
            "test_rows_of_a_frame_when_larger_than_allowed_are_refused",
        }
    ),
    "test_locations": frozenset(
        {
            "test_typed_tube_when_put_and_taken_keeps_types_and_refuses_others",
        }
    ),
    "test_lost_answers": frozenset(
        {
            "test_ack_when_its_statement_is_never_run_says_so_and_can_be_repeated",
            "test_take_when_the_history_cannot_be_read_says_that_nobody_knows",
            "test_verb_when_its_answer_is_lost_after_the_commit_returns_as_if_it_had_heard[spark-ack]",
            "test_verb_when_its_answer_is_lost_after_the_commit_returns_as_if_it_had_heard[spark-exchange]",
            "test_verb_when_its_answer_is_lost_after_the_commit_returns_as_if_it_had_heard[spark-put_df with a key]",
        }
    ),
    "test_native_logs": frozenset(
        {
            "test_frame_when_native_verbs_go_on_is_of_its_version_and_spark_reads_what_is_left",
        }
    ),
    "test_own_sessions": frozenset(
        {
            "test_put_df_when_a_session_names_its_writes_and_cannot_be_left_is_refused",
            "test_put_df_when_spark_drops_the_event_of_its_rows_asks_the_history",
            "test_put_df_when_the_session_names_a_write_of_its_own_puts_the_rows_each_time",
            "test_put_when_the_session_writes_other_files_keeps_days_and_moments_for_each_engine",
        }
    ),
    "test_put_files": frozenset(
        {
            "test_put_df_into_a_capacity_when_spark_must_not_commit_fits_or_writes_no_file",
            "test_put_df_of_typed_rows_when_spark_must_not_commit_keeps_all_columns",
            "test_put_df_when_the_tube_is_dropped_meanwhile_puts_nothing_and_leaves_no_files",
            "test_vacuum_when_a_put_was_stopped_before_its_commit_removes_its_files_once_they_are_old",
        }
    ),
    "test_rivals": frozenset(
        {
            "test_create_tube_when_a_rival_creates_it_first_says_that_it_exists",
        }
    ),
    "test_stops": frozenset(
        {
            "test_put_when_it_stops_while_it_leases_numbers_gives_no_number_twice",
        }
    ),
    "test_subqueues": frozenset(
        {
            "test_take_when_a_rival_takes_the_subqueue_first_looks_elsewhere",
        }
    ),
    "test_texts_on_spark": frozenset(
        {
            "test_spark_when_it_is_given_each_text_there_is_understands_it",
        }
    ),
    "test_unique": frozenset(
        {
            "test_put_df_when_keys_are_there_adds_the_first_row_of_each_other_key_in_order",
            "test_put_when_a_rival_fills_the_tube_first_finds_it_full",
        }
    ),
}

#: What is left to `make test-nightly`.
NIGHTLY: Mapping[str, frozenset[str]] = {
    "test_bad_input": frozenset(
        {
            "test_put_many_with_a_bad_option_of_one_puts_none",
        }
    ),
    "test_blips": frozenset(
        {
            "test_close_when_one_statement_does_not_get_through_asks_again",
            "test_close_when_spark_stays_out_of_reach_tells_what_is_left",
        }
    ),
    "test_case_020_fifottl": frozenset(
        {
            "test_touch_when_the_first_ttr_has_passed_still_allows_ack",
        }
    ),
    "test_case_100_limfifottl": frozenset(
        {
            "test_put_on_a_full_tube_returns_none_after_its_timeout",
        }
    ),
    "test_case_x_b_errors": frozenset(
        {
            "test_holders_verb_on_a_task_not_held_is_refused_whatever_the_reason",
        }
    ),
    "test_case_x_c_counters": frozenset(
        {
            "test_counts_are_effective_before_the_sweep",
            "test_elapsed_delay_is_counted_as_delay",
            "test_elapsed_ttr_is_counted_as_ttr",
        }
    ),
    "test_conflicts": frozenset(
        {
            "test_lease_of_a_slot_when_a_rival_leases_one_in_the_middle_of_it_gives_no_number_twice",
            "test_verb_when_another_commits_in_the_middle_of_its_statement[spark-ack of a part, take of others]",
            "test_verb_when_another_commits_in_the_middle_of_its_statement[spark-sweep of what is due, take of some of it]",
            "test_verb_when_another_commits_in_the_middle_of_its_statement[spark-take, ack of another lease segment]",
            "test_verb_when_another_commits_in_the_middle_of_its_statement[spark-take, put]",
        }
    ),
    "test_dead_files": frozenset(
        {
            "test_sweep_removes_dead_files_of_all_tables_each_vacuum_hours_when_any_can_be_old_enough",
            "test_sweep_when_there_is_nothing_to_do_reads_each_tube_once_and_says_so",
            "test_sweep_when_vacuum_fails_tries_again_before_the_next_vacuum_hours",
        }
    ),
    "test_failures": frozenset(
        {
            "test_many_when_each_has_an_error_keeps_its_own",
        }
    ),
    "test_frames_in_order": frozenset(
        {
            "test_put_df_of_a_frame_with_empty_partitions_puts_each_row_once[few]",
            "test_put_df_of_a_frame_with_empty_partitions_puts_each_row_once[none]",
            "test_put_df_of_a_frame_with_empty_partitions_puts_each_row_once[one]",
            "test_put_df_of_a_sorted_frame_numbers_its_rows_in_that_order[orderBy and limit-true]",
            "test_put_df_of_a_sorted_frame_numbers_its_rows_in_that_order[repartitionByRange-true]",
        }
    ),
    "test_history": frozenset(
        {
            "test_ack_of_a_whole_lease_segment_only_removes_files",
        }
    ),
    "test_limits": frozenset(
        {
            "test_take_in_a_fair_tube_with_rate_and_parallel_keeps_all_of_them",
        }
    ),
    "test_lost_answers": frozenset(
        {
            "test_put_into_many_segments_when_its_answer_is_lost_is_found_all_the_same",
            "test_put_when_its_statement_is_never_run_says_so_and_puts_nothing[spark-connection]",
        }
    ),
    "test_operations_of_others": frozenset(
        {
            "test_native_queue_when_spark_changes_its_table_goes_on[CLONE]",
            "test_native_queue_when_spark_changes_its_table_goes_on[ZORDER]",
            "test_native_queue_when_spark_changes_its_table_goes_on[column mapping]",
            "test_queue_on_spark_when_its_table_is_changed_goes_on[column mapping]",
        }
    ),
    "test_payload_columns": frozenset(
        {
            "test_tube_when_its_payload_must_have_values_works_and_refuses_rows_without[limfifottl]",
        }
    ),
    "test_queue_against_model": frozenset(
        {
            "test_queue_against_model_agrees_in_every_result_and_count",
        }
    ),
    "test_recreation": frozenset(
        {
            "test_create_tube_when_a_tube_came_and_went_meanwhile_does_not_share_its_table",
            "test_create_tube_when_another_tube_has_the_table_has_the_next_one",
            "test_create_tube_when_two_create_with_different_schemas_one_is_told_that_it_exists[spark-True]",
        }
    ),
    "test_rivals": frozenset(
        {
            "test_verb_when_a_rival_commits_first_is_decided_anew[spark-truncate-0-put and take-False-None-et]",
        }
    ),
    "test_slow_takes": frozenset(
        {
            "test_take_when_its_commit_outlasts_the_ttr_hands_out_leases_that_last[spark-False-batch]",
        }
    ),
    "test_stale_snapshots": frozenset(
        {
            "test_look_when_its_snapshot_does_not_know_a_living_session_leaves_its_tasks",
        }
    ),
    "test_stops": frozenset(
        {
            "test_drop_when_it_stops_between_any_two_commits_is_finished_by_a_sweep_or_was_not_begun",
            "test_verb_when_its_process_stops_before_or_after_any_commit_is_done_or_not_done[spark-close]",
        }
    ),
    "test_streams": frozenset(
        {
            "test_changes_when_the_stream_starts_anew_go_on_where_it_was",
            "test_changes_when_the_table_had_an_earlier_tube_tell_of_the_new_one",
        }
    ),
    "test_subqueues": frozenset(
        {
            "test_subqueues_when_four_sessions_interleave_and_stop_are_held_once_and_in_order",
            "test_verb_when_it_stops_between_any_two_commits_blocks_no_subqueue[spark-exchange]",
            "test_verb_when_it_stops_between_any_two_commits_blocks_no_subqueue[spark-take]",
        }
    ),
    "test_unique": frozenset(
        {
            "test_four_producers_at_once_fill_the_tube_and_never_exceed_it",
            "test_put_many_when_some_keys_are_there_returns_tasks_in_the_order_of_the_items",
        }
    ),
    "test_unique_for": frozenset(
        {
            "test_sweep_when_kept_keys_are_over_removes_them_and_the_count_of_done_stays",
        }
    ),
    "test_unreadable_payloads": frozenset(
        {
            "test_put_df_of_a_typed_value_that_could_not_be_taken_is_refused[spark-day]",
            "test_put_df_of_a_typed_value_that_could_not_be_taken_is_refused[spark-local]",
        }
    ),
    "test_vacuum": frozenset(
        {
            "test_vacuum_when_a_long_put_df_asks_to_wait_is_put_off",
            "test_vacuum_when_a_put_df_has_taken_longer_than_files_are_kept_makes_it_begin_anew",
        }
    ),
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark those that need Spark."""
    names = {item.name, item.name.partition("[")[0]}
    for mark, left in ((pytest.mark.thorough, THOROUGH), (pytest.mark.nightly, NIGHTLY)):
        if not names.isdisjoint(left.get(item.path.stem, ())) and needs_the_jvm(item):
            item.add_marker(mark)
