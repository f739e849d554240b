//! Callbacks that were freed, and those that tell of moves.

use super::*;

#[test]
fn callbacks_that_were_freed_are_told_of_and_numbers_go_on_behind_them() {
    let freed = |through_sequence| Entry::CallbacksFreed { through_sequence, is_at_least: false };
    let mut entries = story(&key(1));
    entries.insert(7, freed(4));
    let Entry::Callback(callback) = &mut entries[8] else { panic!("a callback") };
    callback.sequence = 5;
    let verified = judged(file(entries, &key(1)).as_bytes()).expect("it is good");
    assert_eq!((verified.callbacks_freed, verified.callbacks.len()), (4, 1));
    let mut entries = story(&key(1));
    entries.truncate(7);
    let fault = judged(file(entries.clone(), &key(1)).as_bytes()).expect_err("a move without its callback");
    assert!(fault.what.contains("none tells of PAID"), "{fault}");
    entries.push(freed(1));
    assert!(judged(file(entries, &key(1)).as_bytes()).is_ok());
}

/// The story of an order that was being processed first, with callbacks of these words behind its moves.
fn told_by(callbacks: &[(&str, &str)], freed: i64) -> Result<Verified, Fault> {
    let mut entries = story(&key(1));
    entries.truncate(6);
    let Entry::Order(order) = &mut entries[1] else { panic!("an order") };
    order.revision = 3;
    entries.push(step(2, Some("PENDING"), "PROCESS", "2026-01-02T00:05:00.000Z"));
    entries.push(step(3, Some("PROCESS"), "PAID", "2026-01-02T00:10:00.000Z"));
    if freed > 0 {
        entries.push(Entry::CallbacksFreed { through_sequence: freed, is_at_least: false });
    }
    for (sequence, (biz_type, biz_status)) in (freed + 1..).zip(callbacks) {
        let body = format!(
            r#"{{"bizType":"{biz_type}","bizId":"1234567000042","bizStatus":"{biz_status}","client_id":"app_1","data":"{{}}"}}"#
        );
        entries.push(Entry::Callback(Callback {
            sequence,
            biz_type: (*biz_type).to_owned(),
            biz_status: (*biz_status).to_owned(),
            state: "held".to_owned(),
            attempts: 0,
            body: Octets::of(body.as_bytes()),
            body_sha256: digest(body.as_bytes()),
            ..callback()
        }));
    }
    judged(file(entries, &key(1)).as_bytes())
}

#[test]
fn each_move_is_told_of_in_its_words_whatever_else_the_back_end_has_told() {
    let (process, paid) = (("PAYMENT_ORDER", "PROCESS"), ("PAYMENT_ORDER", "SUCCESS"));
    let (in_family, of_back_end) = (("PAY", "PAY_SUCCESS"), ("ADDRESS", "SUCCESS"));
    for (callbacks, freed) in [
        (vec![process, paid], 0),
        (vec![process, in_family], 0),
        (vec![of_back_end, process, of_back_end, paid, of_back_end], 0),
        (vec![paid], 1),
        (vec![of_back_end, paid], 3),
        (vec![], 2),
    ] {
        told_by(&callbacks, freed).unwrap_or_else(|fault| panic!("{callbacks:?} behind {freed}: {fault}"));
    }
    for (callbacks, freed, untold) in [
        (vec![process, of_back_end], 0, "PAID"),
        (vec![of_back_end, paid], 0, "PROCESS"),
        (vec![paid, process], 0, "PAID"),
        (vec![process, of_back_end], 1, "PAID"),
    ] {
        let fault = told_by(&callbacks, freed).expect_err("a move is not told of");
        assert!(fault.what.ends_with(&format!("none tells of {untold}")), "{callbacks:?} behind {freed}: {fault}");
    }
}
