//! The list of all cases, and the macro that makes them tests.

/// Makes every case of the cluster's suite a test on this [`Subject`](crate::suite::Subject).
///
/// The expression is evaluated for each test.
#[macro_export]
macro_rules! cluster_conformance {
    ($subject:expr) => {
        $crate::__cluster_conformance! { ($subject)
            sharing {
                a_node_registers
                two_nodes_see_both_and_take_one_partition_each
                three_nodes_and_twelve_partitions_settle_four_each
                nodes_with_five_and_three_workers_settle_ten_and_six
                a_joiner_takes_over_new_work
                many_tasks_are_each_done_once
            }
            dying {
                a_killed_workers_task_is_run_again_after_its_time_and_not_before
                an_idle_dead_node_leaves_the_list
                a_late_completion_after_a_new_claim_is_refused
                a_leader_killed_in_mid_plan_loses_and_duplicates_no_task
                all_nodes_killed_at_once_resume
                a_leader_that_is_deposed_stops_planning_and_its_workers_go_on
            }
            giving_out {
                a_poison_task_ends_in_the_dead_letters
                a_dead_letter_comes_back_once_when_it_is_retried
                garbage_and_huge_documents_are_reported_and_skipped
                a_member_declared_dead_stays_dead_across_restarts
            }
            handling {
                whoever_submitted_a_task_hears_of_its_end
                an_attempt_that_takes_too_long_fails
                what_is_cancelled_is_stopped_or_never_begun
                a_task_for_one_worker_is_left_to_it
                a_status_report_can_be_read_while_the_task_runs
                a_drained_node_finishes_takes_nothing_more_and_leaves
                a_paused_cluster_takes_nothing_in
                settings_are_versioned
            }
        }
    };
}

/// Spells out one test for each case.
#[doc(hidden)]
#[macro_export]
macro_rules! __cluster_conformance {
    (($subject:expr)) => {};
    (($subject:expr) $module:ident { $($case:ident)* } $($rest:tt)*) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::suite::check($subject, stringify!($case), |case| {
                        Box::pin($crate::cluster::$module::$case(case))
                    });
                }
            )*
        }
        $crate::__cluster_conformance! { ($subject) $($rest)* }
    };
}
