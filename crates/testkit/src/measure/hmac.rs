//! Our check of a signature beside the bare primitive.

use std::hint::black_box;
use std::time::Instant;

use aws_lc_rs::hmac;
use countersign_protocol::signing::{Encoding, SigningKey, decode_signature, encode_signature};

use super::{spread, table};

const ROUNDS: usize = 12;
const CHECKS: u32 = 40_000;

/// ns per check of `run`.
fn time(mut run: impl FnMut() -> bool) -> f64 {
    let started = Instant::now();
    for _ in 0..CHECKS {
        assert!(black_box(run()), "a right signature is right");
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(CHECKS)
}

/// Prints the table.
pub fn run() {
    let mut rows = Vec::new();
    for size in [0usize, 100, 300, 1024] {
        let (timestamp, nonce, body) = ("1767225600000", "0123456789abcdef0123456789abcdef", vec![b'x'; size]);
        let key = SigningKey::new(b"demo-secret-not-for-production-0123456789ABCDEFabcdef");
        let bare = hmac::Key::new(hmac::HMAC_SHA512, b"demo-secret-not-for-production-0123456789ABCDEFabcdef");
        let text = encode_signature(&key.sign(timestamp, nonce, &body), Encoding::Hex);
        let message = [timestamp.as_bytes(), b"\n", nonce.as_bytes(), b"\n", &body, b"\n"].concat();
        let tag = hmac::sign(&bare, &message);
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let a = time(|| {
                decode_signature(black_box(text.as_bytes())).is_some_and(|s| key.verify(timestamp, nonce, &body, &s))
            });
            let b = time(|| hmac::verify(&bare, black_box(&message), tag.as_ref()).is_ok());
            ours.push(a);
            theirs.push(b);
            ratios.push(a / b);
        }
        rows.push(vec![
            size.to_string(),
            format!("{:.0}", spread(&ours).median),
            format!("{:.0}", spread(&theirs).median),
            spread(&ratios).to_string(),
        ]);
    }
    println!(
        "Check of a signature (hex decoded, text assembled, HMAC, compared) beside the bare primitive on assembled bytes\n"
    );
    println!(
        "{}",
        table(&["body, bytes", "ours, ns", "aws-lc-rs hmac::verify, ns", "ratio, median [quartiles]"], &rows)
    );
}
