//! The list of all cases, and the macro that makes them tests.

/// Makes every case of the suite a test on this [`Subject`](crate::suite::Subject).
///
/// The expression is evaluated for each test. A subject on memory should give each test a storage
/// of its own. A subject on a server may give all tests the same, since each case has its own keys.
///
/// ```ignore
/// tenure_conformance::conformance!(MyStore::start());
/// ```
#[macro_export]
macro_rules! conformance {
    ($subject:expr) => {
        $crate::__conformance! { ($subject)
            documents {
                a_document_is_read_back_at_the_version_its_write_gave
                another_handle_reads_what_was_acknowledged
                a_missing_document_reads_as_none
                creating_what_exists_is_a_conflict
                a_write_at_a_stale_version_is_a_conflict
                a_write_at_a_version_of_a_missing_document_is_a_conflict
                a_deleted_document_is_gone
                a_deletion_at_a_stale_version_is_a_conflict
                deleting_what_is_gone_is_a_conflict
                a_deleted_document_can_be_created_again
            }
            bodies {
                odd_bodies_are_kept_byte_by_byte
                an_empty_document_is_not_a_missing_one
                the_largest_document_fits
                a_larger_document_is_refused_for_good
                the_same_body_can_be_written_again
                bodies_that_differ_never_share_a_version
            }
            batches {
                documents_are_read_in_the_order_asked_for
                an_empty_batch_is_answered_by_nothing
                writes_of_a_batch_succeed_and_fail_on_their_own
                of_two_writes_of_one_document_in_a_batch_one_is_stored
                a_thousand_documents_go_in_one_batch
            }
            races {
                of_a_hundred_who_create_a_document_one_wins
                no_update_is_lost_among_concurrent_writers
                a_write_and_a_deletion_of_one_version_never_both_succeed
                a_reader_never_sees_half_a_document
            }
            listing {
                documents_are_listed_in_the_order_of_their_keys
                pages_leave_nothing_out_and_repeat_nothing
                a_page_begins_after_a_key_whether_it_exists_or_not
                only_what_is_strictly_below_the_prefix_is_listed
                an_unknown_prefix_lists_nothing
                a_deleted_document_is_no_longer_listed
                a_walk_beside_writers_sees_what_stood_all_along
            }
            changes {
                a_change_wakes_who_waits
                a_change_by_the_same_handle_wakes_too
                a_creation_wakes_who_waits
                a_deletion_wakes_who_waits
                a_change_before_the_wait_wakes_it_at_once
                many_waits_are_all_woken
                a_wait_can_be_cancelled_and_taken_up_again
                changes_elsewhere_do_not_keep_waking_a_wait
            }
            names {
                odd_names_are_kept_apart_and_listed_as_they_are
                odd_names_may_be_levels
                the_longest_names_fit
                odd_names_make_good_elections
            }
            leading {
                many_may_create_an_election_at_once
                one_of_many_candidates_leads
                never_two_lead_at_once
                resigning_hands_over
                tokens_rise_at_every_hand_over
                dropping_the_guard_frees_the_election
                closing_a_backend_frees_what_it_held
                a_silent_leader_is_replaced_after_it_has_stopped
                a_leader_that_renews_keeps_its_leadership
                a_lost_leadership_can_be_regained
                work_in_a_scope_is_dropped_on_loss
                work_in_a_scope_gives_its_result
                a_lock_delay_is_waited_only_after_an_unclean_end
                two_hundred_elections_share_one_handle
                the_others_go_on_waiting_after_a_hand_over
            }
            ending {
                an_end_tells_everyone
                the_leader_can_end_it
                an_end_lasts_until_the_election_is_created_again
                ending_what_does_not_exist_is_a_success
                deleting_what_does_not_exist_is_a_success
                creating_again_makes_the_next_generation
                creating_what_exists_changes_nothing
                a_deleted_election_is_hidden_and_its_tokens_go_on
                deleting_tells_everyone
                a_missing_election_is_refused_when_it_is_not_to_be_created
                nested_elections_are_refused
                a_finished_candidacy_refuses_further_use
                ends_and_creations_by_many_at_once_leave_it_working
            }
            crowds {
                five_hundred_candidates_racing_an_end_all_get_out
                cancelled_campaigns_leave_nothing_behind
            }
            damage {
                a_deleted_record_is_noticed_by_its_leader
                a_deleted_record_is_noticed_by_who_waits
                a_deleted_records_token_and_delay_are_not_forgotten
                garbage_in_the_record_is_reported
                a_candidate_waits_until_garbage_is_mended
                a_leader_whose_record_is_garbage_stops
                a_rolled_back_record_is_refused_by_its_leader
                a_rolled_back_record_is_refused_by_who_waits
                foreign_documents_are_left_out_of_lists
            }
            values {
                a_leaders_value_is_read_by_everyone
                a_changed_value_reaches_everyone
                a_value_is_any_few_bytes
                candidates_are_listed_until_they_leave
                a_value_published_while_waiting_is_led_with
            }
            watching {
                an_observer_sees_an_election_through
                an_observer_sees_a_silent_leader_lapse
                an_observer_is_not_woken_by_renewals
                many_observers_see_the_same
                an_observer_reports_garbage_and_goes_on
                an_observer_reports_a_store_that_is_away
                a_status_stream_tells_the_story_and_closes
                a_leaders_status_says_why_it_was_lost
            }
            queues {
                first_come_is_first_led
                the_middle_of_the_line_leaves_and_the_order_holds
                a_candidate_that_waits_is_withdrawn_at_once
                three_gone_at_once_let_the_fourth_lead
                only_the_next_in_line_leads_after_a_departure
                candidates_are_listed_in_the_order_of_the_line
                an_end_that_races_many_candidates_leaves_nobody_in_line
                the_other_protocol_is_refused
                of_two_first_openers_with_different_protocols_one_is_refused
                a_lock_delay_is_waited_after_an_unclean_end_only
                a_lost_tenures_entry_goes_to_the_end_of_the_line
                a_leader_whose_entry_is_deleted_is_told_at_once
                the_deletion_that_follows_an_end_is_nobodys_turn
                a_deletion_after_the_end_is_no_turn_for_a_candidate_of_the_same_process
                a_missing_line_is_created_only_when_asked_for
                a_deleted_line_leaves_nothing_and_can_be_made_again
            }
            faults {
                a_claim_whose_answer_is_lost_is_found_by_reading
                renewals_whose_answers_are_lost_keep_the_token
                writes_that_had_no_effect_are_made_again
                a_store_that_comes_back_in_time_costs_nothing
                a_store_that_stays_away_costs_the_leadership
                somebody_leads_again_once_the_store_is_back
                a_leader_that_was_cut_off_comes_back_as_a_candidate
                a_candidate_waits_for_a_store_that_is_away
                a_store_that_is_away_is_an_error
                resigning_while_the_store_is_away_is_unknown
                a_resignation_whose_answer_is_lost_has_released
                an_end_whose_answer_is_lost_has_ended
                a_creation_whose_answer_is_lost_has_created_once
                a_campaign_cancelled_before_its_claim_arrives_leaves_nothing_held
                a_campaign_cancelled_before_its_answer_gives_back_what_it_won
                an_answer_that_comes_too_late_revives_nobody
                a_candidate_that_leaves_before_it_is_listed_is_not_listed
                a_candidate_is_listed_once_the_store_is_back
            }
        }
    };
}

/// The expansion of [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance {
    (($subject:expr) $($theme:ident { $($case:ident)* })*) => {
        $(
            mod $theme {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[test]
                    fn $case() {
                        $crate::suite::check(
                            $subject,
                            concat!(stringify!($theme), "::", stringify!($case)),
                            |case| ::std::boxed::Box::pin($crate::suite::$theme::$case(case)),
                        );
                    }
                )*
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    /// A case that is not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("list.rs");
        for (theme, source) in [
            ("documents", include_str!("documents.rs")),
            ("bodies", include_str!("bodies.rs")),
            ("batches", include_str!("batches.rs")),
            ("races", include_str!("races.rs")),
            ("listing", include_str!("listing.rs")),
            ("changes", include_str!("changes.rs")),
            ("names", include_str!("names.rs")),
            ("leading", include_str!("leading.rs")),
            ("ending", include_str!("ending.rs")),
            ("crowds", include_str!("crowds.rs")),
            ("damage", include_str!("damage.rs")),
            ("values", include_str!("values.rs")),
            ("watching", include_str!("watching.rs")),
            ("queues", include_str!("queues.rs")),
            ("faults", include_str!("faults.rs")),
        ] {
            let block = list.split(&format!("            {theme} {{\n")).nth(1).expect("a theme");
            let block = block.split('}').next().expect("an end");
            let written: Vec<&str> = source
                .lines()
                .filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next())
                .collect();
            let listed: Vec<&str> = block.split_whitespace().collect();
            assert_eq!(listed, written, "{theme}");
        }
    }
}
