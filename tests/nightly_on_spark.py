"""Tests that run on Spark at night only: they cost most there, and others prove what they prove.

Each of them runs on the native engine in `make test`, or another one of the same file runs on Spark: only the
statements differ between the engines, and each kind of statement is in a test that stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.one_jvm import needs_the_jvm

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NIGHTLY_ON_SPARK", "pytest_itemcollected"]

#: Files with tests, or with single cases of tests.
NIGHTLY_ON_SPARK: Mapping[str, frozenset[str]] = {
    "test_altering": frozenset(
        {
            "test_verb_when_a_rival_adds_columns_before_its_statement_is_done_once[spark-take]",
            "test_verb_when_a_rival_adds_columns_before_its_statement_is_done_once[spark-ack]",
            "test_verb_when_a_rival_adds_columns_before_its_statement_is_done_once[spark-ack of one]",
            "test_verb_when_a_rival_adds_columns_before_its_statement_is_done_once[spark-release]",
            "test_verb_when_a_rival_adds_columns_before_its_statement_is_done_once[spark-bury]",
        }
    ),
    "test_batches_of_both_engines": frozenset(
        {
            "test_large_verb_when_a_native_rival_commits_at_any_step_is_as_one_after_the_other[spark-release_some]",
            "test_batch_of_subqueues_when_it_needs_more_than_native_memory_frees_them",
        }
    ),
    "test_blips": frozenset(
        {
            "test_close_when_one_statement_does_not_get_through_asks_again",
            "test_close_when_spark_stays_out_of_reach_tells_what_is_left",
        }
    ),
    "test_capacity": frozenset(
        {
            "test_four_producers_at_once_fill_the_tube_and_never_exceed_it",
        }
    ),
    "test_conflicts": frozenset(
        {
            "test_verb_when_another_commits_in_the_middle_of_its_statement[spark-take, ack of another lease segment]",
            "test_verb_when_another_commits_in_the_middle_of_its_statement[spark-ack of a part, take of others]",
            "test_verb_when_another_commits_in_the_middle_of_its_statement[spark-sweep of what is due, take of some of it]",
            "test_mark_dead_when_the_session_renews_its_lease_in_the_middle_of_it_is_not_written",
            "test_lease_of_a_slot_when_a_rival_leases_one_in_the_middle_of_it_gives_no_number_twice",
        }
    ),
    "test_exact_counts": frozenset(
        {
            "test_done_when_a_process_stops_before_or_after_the_commit_counts_what_has_ended[spark-ack_some]",
            "test_done_when_a_process_stops_before_or_after_the_commit_counts_what_has_ended[spark-delete]",
            "test_done_when_a_process_stops_before_or_after_the_commit_counts_what_has_ended[spark-ack_batch]",
            "test_done_when_a_process_stops_before_or_after_the_commit_counts_what_has_ended[spark-exchange]",
            "test_done_when_a_process_stops_before_or_after_the_commit_counts_what_has_ended[spark-truncate]",
            "test_done_when_an_earlier_version_has_counted_begins_with_what_that_showed",
        }
    ),
    "test_history": frozenset(
        {
            "test_looking_makes_no_commit_to_any_table",
            "test_ack_of_a_whole_lease_segment_only_removes_files",
        }
    ),
    "test_lost_answers": frozenset(
        {
            "test_verb_when_its_answer_is_lost_after_the_commit_returns_as_if_it_had_heard[spark-put_df-world]",
            "test_verb_when_its_answer_is_lost_after_the_commit_returns_as_if_it_had_heard[spark-bury with an error for each-world]",
            "test_verb_when_its_answer_is_lost_after_the_commit_returns_as_if_it_had_heard[spark-truncate-world]",
            "test_verb_when_its_answer_is_lost_after_the_commit_returns_as_if_it_had_heard[spark-put-no_metrics]",
            "test_verb_when_its_answer_is_lost_after_the_commit_returns_as_if_it_had_heard[spark-put_df-no_metrics]",
            "test_verb_when_its_answer_is_lost_after_the_commit_returns_as_if_it_had_heard[spark-exchange-no_metrics]",
            "test_put_and_take_of_a_type_with_statements_of_its_own_when_their_answers_are_lost_without_metrics_are_done_once[spark-limfifottl]",
            "test_first_put_of_a_queue_when_its_slot_is_lost_without_metrics_leases_one_slot",
            "test_put_into_many_segments_when_its_answer_is_lost_is_found_all_the_same",
            "test_put_when_its_statement_is_never_run_says_so_and_puts_nothing[spark-connection]",
            "test_put_when_its_task_is_acked_before_the_history_is_asked_returns_the_task",
        }
    ),
    "test_mixed_engines": frozenset(
        {
            "test_verb_when_a_rival_of_the_other_engine_commits_at_any_step_is_as_one_after_the_other[spark-spark-sweep]",
            "test_verb_of_subqueues_when_a_rival_of_the_other_engine_commits_at_any_step_is_as_one_after_the_other[spark-spark-ack]",
            "test_drop_when_a_rival_of_the_other_engine_commits_at_any_step_is_as_one_after_the_other[spark-spark-verbs0]",
            "test_drop_when_a_rival_of_the_other_engine_commits_at_any_step_is_as_one_after_the_other[spark-native-verbs6]",
            "test_native_verb_when_spark_commits_between_its_decision_and_its_commit_is_as_one_after_the_other[spark-release_some]",
            "test_take_when_the_other_engine_has_fenced_its_take_id_and_taken_over_takes_nothing[spark-native]",
            "test_history_when_both_engines_have_committed_tells_both_alike",
            "test_spark_take_when_the_native_engine_commits_in_the_middle_of_its_merge[spark-put-a-0]",
        }
    ),
    "test_mixed_options": frozenset(
        {
            "test_verb_when_a_rival_of_the_other_engine_commits_at_any_step_is_as_one_after_the_other[spark-keys-put_keys-spark]",
            "test_verb_when_a_rival_of_the_other_engine_commits_at_any_step_is_as_one_after_the_other[spark-aging-kick-native]",
            "test_verb_when_a_rival_of_the_other_engine_commits_at_any_step_is_as_one_after_the_other[spark-fair-take_all-spark]",
        }
    ),
    "test_notes": frozenset(
        {
            "test_notes_of_two_tubes_written_at_once_in_one_spark_session_are_their_own",
        }
    ),
    "test_processes": frozenset(
        {
            "test_two_processes_when_they_consume_one_tube_deliver_each_task_once",
        }
    ),
    "test_recreation": frozenset(
        {
            "test_create_tube_when_two_create_with_different_schemas_one_is_told_that_it_exists[spark-True-decided]",
            "test_create_tube_when_its_creator_comes_late_leaves_the_next_tube_alone",
        }
    ),
    "test_rivals": frozenset(
        {
            "test_take_when_a_rival_takes_all_candidates_looks_at_the_next",
            "test_batch_when_it_is_split_by_frames_of_its_own_settles_each_as_told",
            "test_put_when_a_rival_truncates_meanwhile_is_there",
            "test_put_when_the_answer_to_a_guess_at_a_slot_in_use_is_lost_finds_a_free_slot",
            "test_put_when_the_answer_to_a_raise_that_came_too_late_is_lost_leases_another_slot",
        }
    ),
    "test_shared_lease_segments": frozenset(
        {
            "test_acks_of_one_commit_when_they_name_all_of_a_segment_remove_its_partition",
            "test_undo_of_one_call_when_others_share_its_segment_leaves_theirs",
            "test_exchange_of_one_call_acks_it_and_takes_in_one_commit",
            "test_takes_that_share_a_commit_when_nobody_can_tell_are_all_given_back",
            "test_verb_on_one_of_shared_takes_when_its_answer_is_lost_is_done_once[spark-release]",
            "test_verb_on_one_of_shared_takes_when_its_answer_is_lost_is_done_once[spark-exchange]",
            "test_verb_on_one_of_shared_takes_when_its_answer_is_lost_is_done_once[spark-undo]",
        }
    ),
    "test_stale_snapshots": frozenset(
        {
            "test_look_when_its_snapshot_does_not_know_a_living_session_leaves_its_tasks[utubettl-take]",
            "test_look_when_its_snapshot_does_not_know_a_living_session_leaves_its_tasks[fifottl-finished drop]",
        }
    ),
    "test_stops": frozenset(
        {
            "test_verb_when_its_process_stops_before_or_after_any_commit_is_done_or_not_done[spark-put_df]",
            "test_verb_when_its_process_stops_before_or_after_any_commit_is_done_or_not_done[spark-close]",
        }
    ),
    "test_subqueues": frozenset(
        {
            "test_bury_of_a_task_that_another_holds_frees_its_subqueue",
            "test_take_of_named_subqueues_locks_these_only_by_one_commit_each_way",
            "test_exchange_when_it_stops_between_any_two_commits_loses_nothing_and_blocks_nobody",
        }
    ),
    "test_unique_for": frozenset(
        {
            "test_verb_when_it_stops_has_ended_the_tasks_and_kept_the_keys_or_neither[spark-sweep]",
        }
    ),
    "test_vacuum": frozenset(
        {
            "test_vacuum_when_a_long_put_df_asks_to_wait_is_put_off",
            "test_sweep_when_a_writer_that_asked_to_wait_has_ended_removes_what_it_asked",
        }
    ),
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark those that need Spark."""
    names = NIGHTLY_ON_SPARK.get(item.path.stem, frozenset())
    if not names.isdisjoint({item.name, item.name.partition("[")[0]}) and needs_the_jvm(item):
        item.add_marker(pytest.mark.nightly)
