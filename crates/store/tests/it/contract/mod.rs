//! What every store promises: one list of named cases, run on each.

mod attempt_log;
mod backlog;
mod batches;
mod chain;
mod conversion;
mod event_lists;
mod events;
mod identities;
pub mod last_paid;
mod nonces;
mod order;
mod paid_orders;
pub mod payment_orders;
mod people;
mod redelivery;
mod rules;

/// Makes a test of every case for every store.
macro_rules! contract {
    ($($part:ident: [$($case:ident),* $(,)?])*) => {
        contract!(@on model, [$($($part::$case),*),*]);
        contract!(@on sqlite, [$($($part::$case),*),*]);
        contract!(@on postgres, [$($($part::$case),*),*]);
        contract!(@on postgres_by_tenant, [$($($part::$case),*),*]);
    };
    (@on $store:ident, [$($part:ident::$case:ident),*]) => {
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let fresh = crate::fixtures::$store().await;
                    crate::fixtures::furnish(&*fresh.store).await;
                    super::$part::$case(std::sync::Arc::clone(&fresh.store)).await;
                    fresh.check().await;
                }
            )*
        }
    };
}

contract! {
    nonces: [
        a_nonce_is_claimed_once,
        a_nonce_with_another_timestamp_is_the_same_nonce,
        the_same_text_of_another_application_is_another_nonce,
        a_reserved_nonce_is_used_for_everybody_else,
        a_released_nonce_is_free_again,
        a_used_nonce_cannot_be_released,
        a_reservation_does_not_stop_the_batch_it_was_made_for,
        a_refused_batch_leaves_its_nonce_reserved,
        a_refused_batch_leaves_an_unreserved_nonce_free,
        a_batch_that_cannot_be_kept_gives_its_nonce_back,
        a_settled_nonce_is_used_everywhere,
        a_nonce_can_be_settled_without_a_reservation,
        a_nonce_twice_in_one_batch_is_refused,
        of_64_reservations_at_once_one_is_fresh,
        of_64_settlements_at_once_one_is_fresh,
        of_64_batches_at_once_one_claims,
        at_or_before_the_horizon_is_too_old,
        after_the_horizon_nothing_is_forgotten,
        the_horizon_never_goes_back,
    ]
    rules: [
        versions_are_appended_in_order_and_move_the_head,
        a_version_out_of_turn_is_refused,
        of_64_first_versions_at_once_one_is_appended,
        rules_of_two_sub_accounts_do_not_mix,
        a_head_as_of_an_instant_is_the_last_made_by_then,
        a_base_is_any_earlier_version,
        markups_come_back_digit_for_digit,
        versions_are_paged_newest_first,
        among_very_many_versions_a_page_and_a_head_as_of_an_instant_are_found,
        a_rule_of_nobody_is_refused,
        a_malformed_version_is_refused,
        a_page_is_ordered_by_id_then_version,
        a_page_follows_the_time,
        a_page_is_cut_by_offset_and_limit_and_counts_all,
        a_page_obeys_its_filters,
        a_page_shows_only_the_tenants_own_sub_accounts,
    ]
    people: [
        merchant_ids_and_numbers_are_new,
        merchants_are_listed_by_number,
        an_application_is_seen_with_its_merchant_and_live_secrets,
        client_ids_and_application_numbers_are_new,
        an_application_changes_by_revision,
        what_cannot_change_in_an_application_stays,
        applications_are_listed_by_number,
        public_ids_are_read_by_the_numbers_behind_them,
        secret_ids_are_new,
        a_secret_changes_only_if_it_is_there,
        a_secret_is_sealed_again_once,
        secrets_under_another_master_key_are_listed_with_those_that_are_revoked,
        a_token_is_found_by_its_digest,
        a_token_is_revoked_only_if_it_is_there,
        a_convert_order_is_seen_by_its_owner_only,
        a_convert_order_number_is_new,
        a_convert_order_moves_by_revision,
        an_application_of_nobody_is_refused,
    ]
    identities: [
        a_merchant_changes_by_revision,
        what_a_merchant_may_do_decides_what_is_held,
        an_application_without_open_events_gets_no_note_from_its_merchant,
        what_was_decided_before_a_merchant_changed_is_refused,
        uses_of_a_secret_add_up_and_are_forgotten_by_age,
        of_64_that_add_uses_at_once_none_is_lost,
        tokens_are_listed_by_id_with_their_last_use,
        a_last_use_of_a_clock_that_was_ahead_gives_way_to_the_next_one,
        a_token_stays_revoked_as_it_was_first,
        a_batch_may_rest_on_a_token,
    ]
    events: [
        events_are_numbered_by_application_and_business,
        numbers_have_no_gap_after_a_refusal,
        numbers_have_no_gap_under_64_commits_at_once,
        event_numbers_and_ids_are_new,
        pending_events_come_by_kind_and_due_time,
        who_is_owed_something_comes_once_with_the_first_due_time,
        an_event_waits_behind_a_pending_one_until_that_is_over,
        an_event_that_went_out_of_turn_keeps_to_its_own_schedule,
        what_is_sent_by_hand_is_noted_until_it_is_over,
        an_attempt_moves_the_delivery,
        an_attempt_out_of_turn_is_refused,
        held_deliveries_wait_until_released,
        only_what_is_over_is_delivered_again,
        what_is_pending_is_due_sooner_and_only_that,
        a_merchant_pulls_events_in_order,
        a_pulled_page_ends_where_it_is_large_enough,
        a_due_time_belongs_to_pending_deliveries_only,
        what_was_decided_about_an_application_is_refused_once_it_has_changed,
        nobody_writes_under_a_term_that_nobody_holds,
        a_backlog_is_turned_in_portions_until_the_note_goes,
        a_portion_that_was_decided_before_a_change_back_is_refused_and_leaves_its_note,
        nobody_notes_anything_for_another_tenants_application,
        what_is_open_is_listed_as_its_application_stands,
    ]
    event_lists: [
        events_are_listed_newest_first_by_filter,
        pages_of_events_join_without_gap_whatever_is_looked_at,
        a_page_of_events_looks_at_so_many_unless_an_index_leads_to_them,
        a_list_of_events_goes_on_behind_one_that_is_gone,
    ]
    attempt_log: [
        an_attempt_keeps_its_phases_and_what_went_over_the_wire,
        an_attempt_of_which_nothing_is_known_is_kept_without,
        bytes_are_found_by_all_of_their_attempt_only,
        a_refused_attempt_leaves_no_bytes,
        bytes_are_forgotten_by_the_age_of_their_attempt,
        bytes_are_forgotten_in_portions,
        events_are_forgotten_up_to_the_first_that_is_open_or_young,
        what_is_held_goes_by_an_age_of_its_own,
        what_was_tried_lately_or_is_sent_again_by_hand_stays_while_it_is_held,
        a_look_for_old_events_says_how_far_it_came,
        old_events_of_an_application_are_counted_stretch_by_stretch,
        old_bytes_of_a_tenant_are_counted_stretch_by_stretch,
        the_last_event_of_an_application_is_never_forgotten,
        numbers_go_on_after_events_were_forgotten,
        nobody_forgets_another_tenants_events,
        many_that_forget_at_once_leave_no_gap,
    ]
    backlog: [
        what_is_open_and_what_is_dead_is_counted_up_to_a_bound,
        what_is_pending_and_dead_of_all_is_counted_up_to_a_bound,
        the_backlog_of_another_tenant_is_not_there,
        applications_with_dead_events_are_found_one_after_the_other,
        the_place_of_an_application_is_found_by_its_client_id,
        dead_events_come_newest_first_with_their_last_attempt,
        what_is_sent_again_is_dead_no_more,
        dead_events_of_all_tenants_come_in_one_list,
    ]
    redelivery: [
        events_that_are_meant_are_found_by_state_business_and_age_in_order,
        events_that_are_meant_are_counted_among_the_first_of_a_stretch,
        of_an_application_one_redelivery_runs_at_a_time,
        a_portion_moves_the_cursor_and_what_is_still_meant_and_nothing_twice,
        events_that_are_meant_are_found_by_what_they_died_of,
        how_its_events_fare_is_counted_until_a_later_redelivery_takes_them,
        a_portion_takes_nothing_of_another_application,
        a_redelivery_that_was_stopped_makes_nothing_pending,
        who_stops_a_redelivery_has_seen_how_far_it_came,
        redeliveries_are_listed_newest_first,
        a_portion_has_a_bound,
        what_a_redelivery_has_yet_to_come_to_is_not_forgotten_by_age,
    ]
    conversion: [
        a_rate_changes_by_revision_and_comes_back_digit_for_digit,
        rates_are_listed_by_pair,
        that_a_rate_is_too_old_is_told_once_for_each_revision,
        a_quote_is_seen_by_its_merchant_only,
        quotes_that_ended_are_forgotten_a_few_with_each_new_one,
        an_order_uses_its_quote_up_and_answers_its_request_for_ever,
        an_order_is_made_of_a_merchants_own_quote_only,
        a_quote_is_left_where_it_is_the_merchants_and_not_used_and_nothing_is_written,
        of_64_with_one_request_at_once_one_makes_an_order,
        every_state_of_an_order_is_in_its_history,
        orders_are_listed_by_number_in_pages_that_look_at_so_many,
    ]
    payment_orders: [
        a_payment_order_is_seen_by_its_owner_only,
        what_holds_until_an_instant_is_refused_from_it_on,
        what_holds_from_an_instant_on_is_refused_before_it,
        the_time_of_the_database_decides_where_it_has_one,
        whoever_rests_on_an_order_is_refused_once_it_has_moved,
        a_trade_number_is_one_order_of_its_merchant_for_ever,
        of_64_that_add_one_trade_number_at_once_one_does,
        a_payment_order_moves_by_revision_and_keeps_its_history,
        a_fee_without_a_rule_is_kept_as_such,
        what_is_no_order_or_no_move_is_refused,
        a_batch_may_rest_on_a_rule_head,
        payment_orders_are_listed_newest_first_by_filter,
        pages_of_payment_orders_join_without_gap_whatever_is_looked_at,
        what_has_expired_is_found_until_it_is_moved,
    ]
    order: [
        an_event_waits_behind_nothing_that_is_over_or_not_there,
        the_open_event_before_one_is_of_its_own_business,
        the_open_event_before_one_is_found_behind_many_that_are_over,
        what_was_delivered_and_is_sent_again_holds_up_no_later_event,
        an_event_waits_behind_one_that_is_held_as_behind_a_pending_one,
    ]
    last_paid: [
        a_version_is_made_after_whatever_was_paid_before_it,
        what_was_paid_by_a_clock_that_is_behind_lowers_nothing,
        what_is_paid_elsewhere_or_not_at_all_holds_no_version_up,
        a_batch_that_pays_and_makes_a_version_is_judged_in_order,
        of_64_that_pay_and_make_a_version_at_once_the_next_is_later_than_all_that_was_paid,
    ]
    paid_orders: [
        what_was_paid_is_walked_over_by_number,
        pages_of_paid_orders_join_whenever_they_were_paid,
        what_is_not_paid_or_not_in_the_span_is_not_walked_over,
    ]
    chain: [
        lines_are_linked_and_the_walk_finds_them_in_order,
        lines_of_many_commits_at_once_hang_together,
        a_refused_batch_leaves_no_link,
        lines_of_before_the_chain_are_covered_by_its_digest,
        a_page_goes_on_where_the_one_before_ended,
        who_has_a_chain_is_read_by_the_page,
        what_is_known_of_a_line_is_read_by_the_place_before_it,
    ]
    batches: [
        a_refused_batch_leaves_no_trace,
        a_batch_that_depends_on_itself_is_applied_in_order,
        a_refused_batch_that_depends_on_itself_leaves_no_trace,
        a_batch_of_two_tenants_is_refused,
        every_pair_of_writes_of_two_tenants_is_refused,
        what_is_another_tenants_is_not_there,
        an_empty_batch_does_nothing,
        batches_that_are_handed_over_together_are_each_answered_for_themselves,
        an_answer_is_remembered_once,
        an_answer_that_has_ended_is_replaced_and_no_other,
        answers_are_forgotten_by_age,
        audit_lines_are_numbered_without_gap,
        audit_lines_of_a_tenant_are_numbered_by_themselves,
        a_setting_is_replaced,
        a_setting_moves_from_the_value_it_has,
        a_batch_may_rest_on_a_setting,
        everybody_reads_his_own_writes,
        a_store_answers_a_ping,
    ]
}
