//! After the walk: how to go on by hand.

use super::screen::Screen;
use super::stage::{Cast, Stage};

/// Says how to call the server that goes on running. Its identities are the demo's own, so their secrets are shown.
pub fn how_to_call(screen: &Screen, stage: &Stage, cast: &Cast) {
    let program = std::env::current_exe().map_or_else(|_| "countersign".to_owned(), |path| path.display().to_string());
    let shop = &cast.sub_account;
    screen.line("");
    screen.title("The server goes on until Ctrl-C. In another terminal, as the merchant:");
    screen.line(&format!("  export COUNTERSIGN_URL={}", stage.merchant_url));
    screen.line(&format!("  export COUNTERSIGN_CLIENT_ID={} COUNTERSIGN_SECRET={}", shop.client_id, shop.secret));
    screen.line(&format!("  {program} call GET '/v1/pay/events?limit=10'"));
    screen.line("");
    screen.title("As the operator:");
    screen.line(&format!("  export COUNTERSIGN_OPERATOR_URL={}", stage.operator_url));
    screen.line(&format!("  export COUNTERSIGN_OPERATOR_TOKEN={}", stage.token.expose()));
    screen.line(&format!("  {program} event list"));
    screen.line(&format!("  {program} fee-rule list {}", shop.merchant_id));
    screen.line(&format!(
        "  {program} event emit --client-id {} --biz-type PAYMENT_ORDER --biz-id PO-1 --biz-status SUCCESS --data '{{\"merchantTradeNo\":\"t-1\"}}'",
        shop.client_id
    ));
    screen.line("");
    screen.line(&format!("Both APIs are described at {}/docs", stage.operator_url));
}
