//! The example `institution`, against a server that answers what it was told to.

use std::process::ExitCode;

use countersign_sdk::Decimal;
use countersign_sdk::protocol::code::Code;
use countersign_sdk::protocol::endpoint::rule_upgrade;
use serde_json::json;

use crate::stub::{Canned, Stub, failure, success};

#[expect(dead_code, reason = "the example's own main reads the command line")]
#[path = "../../examples/institution.rs"]
mod example;

fn upgraded() -> Canned {
    success(&json!({
        "config_id": "cfg_01", "previous_config_id": null, "version_no": 1, "sub_merchant_id": "10002", "r_markup": 0.3, "f_markup": 0,
        "status": "EFFECTIVE", "effective_date": "2026-01-02 00:00:00", "due_date": null,
        "created_at": "2026-01-02T00:00:00.000Z", "updated_at": "2026-01-02T00:00:00.000Z"
    }))
}

fn no_rule() -> Canned {
    success(&json!({
        "sub_merchant_id": "10002", "has_markup": false, "config_id": null, "version_no": null, "r_markup": null, "f_markup": null,
        "status": null, "effective_date": null, "due_date": null, "expired_date": null,
        "actual_rate": {"r_total": 0, "f_total": 0}, "updated_at": null
    }))
}

fn no_records() -> Canned {
    success(&json!({"records": [], "total": 0, "size": 100, "current": 1, "pages": 0}))
}

#[tokio::test]
async fn a_script_that_does_not_know_whether_the_rule_was_made_lists_the_rules_and_fails() {
    let ask = rule_upgrade::Request::new("10002", Decimal::ONE, "2026-01-02 00:00:00");
    for (answer, code) in [
        (upgraded(), ExitCode::SUCCESS),
        (failure(Code::InternalError, "outcome unknown"), ExitCode::FAILURE),
        (failure(Code::NonceReused, "sent twice on the way"), ExitCode::FAILURE),
    ] {
        let stub = Stub::start().await;
        stub.answers([answer, no_rule(), no_records()]);
        let client = stub.client().build().expect("a client");
        let ended = example::run(&client, &ask).await.expect("it is listed");
        assert_eq!(format!("{ended:?}"), format!("{code:?}"));
        assert_eq!(stub.seen().len(), 3);
    }
}
