//! Decimals from end to end, in small; `cargo xtask decimals` is the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::decimals::run;

const SEED: u64 = 20_260_102;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_come_out_of_the_service_digit_for_digit_and_fees_are_what_paper_says() {
    let cases = if StoreKind::of_this_run() == StoreKind::Postgres { 1_000 } else { 4_000 };
    let counts = run(cases, SEED).await.expect("every figure is what went in");
    assert_eq!((counts.cases, counts.figures, counts.fees), (cases, 12 * cases, 2 * cases));
    assert!(counts.rounded > cases / 4 && counts.halves > 10, "{counts:?}");
}
