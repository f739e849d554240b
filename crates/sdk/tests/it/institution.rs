//! The example `institution`, against a server that answers what it was told to.

use std::process::ExitCode;

use countersign_sdk::protocol::code::Code;
use countersign_sdk::protocol::endpoint::{rule_list, rule_query, rule_upgrade};
use countersign_sdk::{Decimal, Error};
use serde_json::{Value, json};

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

fn records(versions: &[i64], current: u64, pages: u64) -> Canned {
    let record = |version: &i64| {
        json!({
            "sub_merchant_id": "10002", "has_markup": true, "config_id": format!("cfg_{version}"), "version_no": version, "r_markup": 0.25,
            "f_markup": 0, "status": "EFFECTIVE", "effective_date": "2025-12-30 00:00:00", "due_date": null, "expired_date": null,
            "actual_rate": {"r_total": 0.85, "f_total": 0.1}, "updated_at": "2025-12-29T08:30:00.000Z"
        })
    };
    let records: Vec<_> = versions.iter().map(record).collect();
    success(&json!({"records": records, "total": 3, "size": 100, "current": current, "pages": pages}))
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
        stub.answers([records(&[2, 3], 1, 2), records(&[4], 2, 2), answer, no_rule(), no_records()]);
        let client = stub.client().build().expect("a client");
        let ended = example::run(&client, &ask).await.expect("it is listed");
        assert_eq!(format!("{ended:?}"), format!("{code:?}"));
        let seen = stub.seen();
        let paths: Vec<_> = seen.iter().map(|seen| seen.uri.path()).collect();
        let list = rule_list::PATH;
        assert_eq!(paths, [list, list, rule_upgrade::PATH, rule_query::PATH, list], "noted before it is asked for");
        for (seen, page) in seen.iter().zip([1, 2]) {
            let wanted = json!({"pageNum": page, "pageSize": 100, "sub_merchant_id": "10002"});
            assert_eq!(serde_json::from_slice::<Value>(&seen.body).expect("JSON"), wanted);
        }
    }
}

#[tokio::test]
async fn who_does_not_know_is_told_the_version_before_and_when_a_list_tells() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    for (pages, highest, wanted) in [
        (vec![records(&[2, 3], 1, 2), records(&[4], 2, 2)], Some(4), "before was: 4. "),
        (vec![no_records()], None, "before was: none. "),
    ] {
        stub.answers(pages);
        let before = example::highest_version(&client, "10002").await.expect("listed");
        assert_eq!(before, highest);
        let said = example::not_known(&Error::Usage("why".to_owned()), before);
        assert!(said.contains(wanted) && said.contains("no sooner than 40 s from now"), "{said}");
    }
}
