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
    "test_conflicts": frozenset(
        {
            "test_verb_when_another_commits_in_the_middle_of_its_statement[spark-put, take]",
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
    "test_locations": frozenset(
        {
            "test_typed_tube_when_put_and_taken_keeps_types_and_refuses_others",
        }
    ),
    "test_lost_answers": frozenset(
        {
            "test_ack_when_its_statement_is_never_run_says_so_and_can_be_repeated",
            "test_take_when_the_history_cannot_be_read_says_that_nobody_knows",
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
            "test_put_when_a_rival_fills_the_tube_first_finds_it_full",
        }
    ),
}

#: What is left to `make test-nightly`.
NIGHTLY: Mapping[str, frozenset[str]] = {
    "test_blips": frozenset(
        {
            "test_close_when_one_statement_does_not_get_through_asks_again",
            "test_close_when_spark_stays_out_of_reach_tells_what_is_left",
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
            "test_sweep_when_vacuum_fails_tries_again_before_the_next_vacuum_hours",
        }
    ),
    "test_history": frozenset(
        {
            "test_ack_of_a_whole_lease_segment_only_removes_files",
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
            "test_queue_when_spark_changes_its_table_goes_on[native-CLONE]",
            "test_queue_when_spark_changes_its_table_goes_on[native-ZORDER]",
            "test_queue_when_spark_changes_its_table_goes_on[spark-column mapping]",
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
    "test_shared_commits": frozenset(
        {
            "test_undo_of_one_call_when_others_share_its_segment_leaves_theirs",
        }
    ),
    "test_slow_takes": frozenset(
        {
            "test_take_when_its_commit_outlasts_the_ttr_hands_out_leases_that_last[spark-fifottl-df]",
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
    "test_subqueues": frozenset(
        {
            "test_verb_when_it_stops_between_any_two_commits_blocks_no_subqueue[spark-exchange]",
            "test_verb_when_it_stops_between_any_two_commits_blocks_no_subqueue[spark-take]",
        }
    ),
    "test_unique": frozenset(
        {
            "test_four_producers_at_once_fill_the_tube_and_never_exceed_it",
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
