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

pub(crate) use is_not_awaited;

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
