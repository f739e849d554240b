//! Decimals from end to end, in small; `cargo xtask decimals` is the same in large.

use countersign_testkit::decimals::run;

const CASES: usize = 4_000;
const SEED: u64 = 20_260_102;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_come_out_of_the_service_digit_for_digit_and_fees_are_what_paper_says() {
    let counts = run(CASES, SEED).await.expect("every figure is what went in");
    assert_eq!((counts.cases, counts.figures, counts.fees), (CASES, 12 * CASES, 2 * CASES));
    assert!(counts.rounded > CASES / 4 && counts.halves > 10, "{counts:?}");
}
