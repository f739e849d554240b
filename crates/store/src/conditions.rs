//! Conditions on rows, in words of both dialects.

use countersign_domain::delivery::DeliveryState;

/// Whether callbacks of a delivery `d` go out, in words of both dialects. As a value and not as a join: a plan that guesses how many
/// applications do has been seen to read every delivery for every event. By the delivery: it is asked of those that are open alone.
macro_rules! goes_out {
    () => {
        "(SELECT a.callback_url IS NOT NULL AND a.callback_enabled AND m.enabled AND t.enabled FROM application a \
         JOIN merchant m ON m.merchant_no = a.merchant_no JOIN merchant t ON t.merchant_no = a.tenant_no \
         WHERE a.application_no = d.application_no)"
    };
}

pub(crate) use goes_out;

/// Whether an event `e` is not waited for by a redelivery of its application that has yet to come to it: that one promised to send it again.
macro_rules! is_not_awaited {
    () => {
        "NOT EXISTS (SELECT 1 FROM redelivery r WHERE r.tenant_no = e.tenant_no AND r.application_no = e.application_no \
         AND r.state = 'running' AND r.cursor_seq < e.seq)"
    };
}

// The last attempt as a value, and not as one that is not there: PostgreSQL might read all attempts into a table of its own for that.
/// Whether an event `e` with its delivery `d` is too old to be kept ([`crate::attempt_log::TooOld`]), by the places of its two instants.
macro_rules! is_too_old {
    ($made_before:literal, $held_before:literal) => {
        concat!(
            "coalesce(e.created_at < ",
            $made_before,
            " AND (d.state IN ('delivered', 'dead') OR d.state = 'held' AND e.created_at < ",
            $held_before,
            " AND NOT d.by_hand
             AND NOT EXISTS (SELECT 1 FROM delivery_turn t WHERE t.tenant_no = e.tenant_no AND t.application_no = e.application_no)
             AND coalesce((SELECT max(a.at) FROM attempt a WHERE a.tenant_no = e.tenant_no AND a.event_no = e.event_no) < ",
            $held_before,
            ", true)) AND ",
            $crate::conditions::is_not_awaited!(),
            ", false)"
        )
    };
}

pub(crate) use is_not_awaited;
pub(crate) use is_too_old;

/// A condition on an event `e` with its delivery `d`: whether it stands so. What is open goes by its application, as it is now. It is one that
/// could hold of no delivery, too: else the outer join would be taken for an inner one, and a plan could begin with all deliveries.
pub(crate) const fn stands_in(state: DeliveryState) -> &'static str {
    match state {
        DeliveryState::Pending => concat!(" AND coalesce(d.state, '') IN ('pending', 'held') AND ", goes_out!()),
        DeliveryState::Held => concat!(" AND coalesce(d.state, '') IN ('pending', 'held') AND NOT ", goes_out!()),
        DeliveryState::Delivered => " AND coalesce(d.state, '') = 'delivered'",
        DeliveryState::Dead => " AND coalesce(d.state, '') = 'dead'",
    }
}
