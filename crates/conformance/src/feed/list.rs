//! The list of all cases, and the macro that makes them tests.

/// Makes every case of the suite a test on this [`FeedSubject`](crate::feed::FeedSubject).
///
/// The expression is evaluated for each test. A subject on memory should give each test a database
/// of its own. A subject on a server may give all tests the same, since each case has its own
/// table.
///
/// ```ignore
/// tenure_conformance::feed_conformance!(MyDatabase::start());
/// ```
#[macro_export]
macro_rules! feed_conformance {
    ($subject:expr) => {
        $crate::__feed_conformance! { ($subject)
            documents {
                creating_a_table_again_changes_nothing
                starting_on_a_table_that_does_not_exist_fails_for_good
                a_document_is_read_back_with_every_field
                a_heartbeat_replaces_every_field
                the_server_stamps_its_time_into_each_heartbeat
                a_missing_document_reads_as_none_and_order_is_kept
                creating_what_exists_is_a_conflict
                a_heartbeat_at_a_stale_version_is_a_conflict
                a_heartbeat_of_what_is_gone_is_a_conflict
                of_twenty_who_create_the_leaders_document_one_wins
                no_heartbeat_is_lost_among_concurrent_writers
                a_document_that_is_too_large_is_refused_for_good
            }
            subscriptions {
                a_change_by_anybody_is_shown
                changes_of_a_document_are_shown_in_order_and_its_deletion_last
                nothing_of_the_past_is_shown
                from_the_start_what_is_there_is_shown_before_what_comes
                a_write_of_the_leaders_document_is_shown_as_such
                no_document_of_ours_is_ever_a_change_not_even_its_deletion
                a_subscription_goes_on_after_the_last_change_an_earlier_one_showed
                two_subscriptions_of_one_handle_show_the_same
                a_subscription_stays_silent_while_nothing_happens
                the_drivers_own_handles_are_given_out
            }
            algorithm {
                all_start_as_followers
                the_leaders_document_is_what_people_read
                a_follower_elects_itself_under_a_higher_token_when_heartbeats_stop
                a_heartbeat_of_another_leader_makes_a_follower
                a_leader_whose_heartbeats_fail_tells_so_and_stops_in_time
                an_error_of_the_feed_makes_a_follower_until_the_feed_is_back
                a_claim_whose_answer_is_lost_is_found_by_reading
                heartbeats_whose_answers_are_lost_keep_the_leader
                followers_read_nothing_while_heartbeats_are_shown
                time_outs_of_other_feeds_do_not_shorten_a_leaders_lease
            }
            handing_over {
                the_leader_hands_over_to_the_feed_that_is_named
                a_follower_may_ask_the_leader_to_hand_over
                an_id_that_is_not_registered_is_not_elected
                a_feed_that_left_is_not_registered_any_more
                electing_the_leader_changes_nothing
                the_leader_stops_its_work_before_it_frees_the_record
                others_hold_back_while_the_preferred_feed_is_away_and_then_lead
                a_feed_that_is_not_started_elects_nobody
            }
            living {
                feeds_join_and_leave_and_somebody_always_leads
                a_feed_can_be_stopped_and_started_again
                a_feed_can_be_started_on_a_connection_of_the_callers
                every_feed_is_told_of_every_change
                nothing_of_history_is_told_unless_it_is_asked_for
                changes_go_on_after_an_error_of_the_feed
                a_missing_table_is_an_error_when_it_is_not_to_be_created
                a_deleted_record_ends_the_feed_with_an_error
                a_feed_never_leads_with_a_token_that_it_has_seen
                another_leader_with_a_token_that_was_seen_ends_the_feed
                a_record_that_makes_no_sense_is_told_and_left_alone
                a_dropped_feed_leaves
                twenty_feeds_agree_on_their_leaders
            }
            regressions {
                feeds_that_start_together_have_one_leader
                leadership_is_announced_only_after_the_write_is_committed
                a_late_heartbeat_of_an_earlier_leader_demotes_nobody
                a_deaf_follower_does_not_elect_itself
                a_follower_whose_feed_is_silent_deposes_nobody
                a_stopped_leader_is_a_follower_and_has_said_so
                a_start_that_fails_says_so_and_the_next_one_works
                feeds_from_the_same_options_do_not_share_them
                the_first_leader_is_told_to_everybody_itself_included
                a_deletion_of_metadata_is_no_change
            }
        }
    };
}

/// The expansion of [`feed_conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! __feed_conformance {
    (($subject:expr) $($theme:ident { $($case:ident)* })*) => {
        $(
            mod $theme {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[test]
                    fn $case() {
                        $crate::feed::check(
                            $subject,
                            concat!(stringify!($theme), "::", stringify!($case)),
                            |case| ::std::boxed::Box::pin($crate::feed::$theme::$case(case)),
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
            ("subscriptions", include_str!("subscriptions.rs")),
            ("algorithm", include_str!("algorithm.rs")),
            ("handing_over", include_str!("handing_over.rs")),
            ("living", include_str!("living.rs")),
            ("regressions", include_str!("regressions.rs")),
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
