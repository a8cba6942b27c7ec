"""Which tests of the contract run on adopted rows, too: those of these modules, but for the ones left out. (Filters of
holds mean arguments, and those of a row are its own; test_machine has a test for rows.) A name may go on with one of
the test's parameters: then that case is left out."""

from __future__ import annotations

OTHER_JOBS = "its jobs have other tasks, queues, arguments, keys or expiries, or come in bulk: they would be native"
NO_JOB = "it makes no job by the store"
DELETES = "it deletes a job whose row waits, which is refused"
LONG = "it takes long, and test_machine does the same in more ways"

LEFT_OUT: dict[str, dict[str, str]] = {
    "test_ahead": {
        "test_one_lane_leaves_what_expired": OTHER_JOBS,
        "test_one_lane_keeps_later_attempts_of_what_began_in_time": OTHER_JOBS,
        "test_claims_at_once_in_one_lane_take_different_jobs": OTHER_JOBS,
    },
    "test_asked": {},
    "test_claim": {
        "test_jobs_come_by_priority_then_due_time_then_id_across_tasks_and_queues": OTHER_JOBS,
        "test_many_lanes_of_uneven_length_give_their_jobs_in_order": OTHER_JOBS,
        "test_a_claim_takes_no_more_than_its_limit_and_returns_what_it_moved": OTHER_JOBS,
        "test_a_claim_charges_the_attempt_and_says_who_holds_the_job": OTHER_JOBS,
        "test_a_claim_asked_again_by_its_fence_tells_the_same": OTHER_JOBS,
        "test_a_claim_gets_past_what_others_have_locked_in_many_lanes": OTHER_JOBS,
        "test_only_the_queues_served_are_taken_from": OTHER_JOBS,
        "test_a_queue_named_twice_is_one_queue": OTHER_JOBS,
        "test_a_queue_and_a_task_of_the_same_name_are_two_things": OTHER_JOBS,
        "test_concurrent_claimers_take_different_jobs": OTHER_JOBS,
        "test_correlation_ids_belong_to_jobs_not_to_batches": OTHER_JOBS,
        "test_names_are_data": OTHER_JOBS,
        "test_a_paused_queue_or_task_takes_no_new_attempts": OTHER_JOBS,
        "test_a_pause_with_an_end_ends_by_itself": OTHER_JOBS,
        "test_what_runs_goes_on_in_a_paused_queue": OTHER_JOBS,
        "test_pausing_again_replaces_who_why_and_until": NO_JOB,
        "test_with_nothing_to_wait_for_no_time_is_told": NO_JOB,
        "test_a_job_past_its_expiry_is_never_claimed_but_cancelled_as_expired": OTHER_JOBS,
        "test_a_job_that_was_started_expires_no_more": OTHER_JOBS,
        "test_a_job_started_in_time_keeps_its_later_attempts": OTHER_JOBS,
        "test_expiry_goes_in_bounded_steps": OTHER_JOBS,
    },
    "test_exchange": {
        "test_mixed_verbs_in_one_trip": OTHER_JOBS,
        "test_the_same_outcome_twice_in_one_trip_counts_once": OTHER_JOBS,
        "test_an_empty_poll_takes_no_write_lock": NO_JOB,
    },
    "test_history": {},
    "test_leases": {
        "test_a_deleted_job_is_lost": DELETES,
        "test_the_sum_of_pending_work_needs_no_json": OTHER_JOBS,
    },
    "test_people": {
        "test_of_many_who_ask_the_same_at_once_one_wins delete": DELETES,
        "test_retry_begins_another_life": OTHER_JOBS,
        "test_jobs_are_listed_newest_first_in_pages": OTHER_JOBS,
        "test_a_waiting_job_moves_to_another_queue": OTHER_JOBS,
        "test_a_paused_job_moves_and_stays_paused": OTHER_JOBS,
        "test_a_held_job_that_moves_is_held_where_a_pause_means_it_and_free_elsewhere": OTHER_JOBS,
        "test_a_running_or_finished_job_is_not_moved": OTHER_JOBS,
        "test_a_job_that_moves_while_others_claim_runs_once": OTHER_JOBS,
        "test_a_change_of_nothing_changes_nothing": OTHER_JOBS,
        "test_a_refusal_of_what_has_changed_meanwhile_says_so": OTHER_JOBS,
        "test_every_return_to_queued_wakes_and_so_do_requests": OTHER_JOBS,
    },
    "test_races": {
        "test_every_order_of_asking_and_ending_goes_as_the_model_says": LONG,
        "test_what_happens_at_once_is_what_would_have_happened_in_some_order after a pause": LONG,
    },
    "test_rescue": {},
    "test_steps": {},
    "test_succeed": {},
    "test_suspects": {"test_a_suspect_can_be_paused_cancelled_changed_and_deleted": DELETES},
    "test_told": {
        "test_only_the_lanes_told_of_are_taken_from": OTHER_JOBS,
        "test_told_of_all_lanes_it_takes_what_the_order_says": OTHER_JOBS,
        "test_a_claim_waits_for_the_disk_only_where_it_is_the_last_try": OTHER_JOBS,
    },
    "test_transitions": {
        "test_a_stale_fence_is_refused_in_every_state_and_changes_nothing": LONG,
        "test_what_people_do_moves_a_job_as_the_table_says_or_is_refused delete": DELETES,
        "test_only_a_queued_job_that_never_started_expires": OTHER_JOBS,
        "test_a_job_that_is_not_there_is_not_found": NO_JOB,
        "test_the_schema_knows_every_state_of_the_enum": NO_JOB,
        "test_the_schema_refuses_any_other_state": NO_JOB,
    },
    "test_trip": {"test_large_answers_and_large_outcomes_do_not_wait_for_each_other": OTHER_JOBS},
    "test_unknown_commit": {"test_a_burnt_fence_is_swept_up": NO_JOB},
}
