use base64::Engine as _;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use countersign_protocol::headers::{Prefixes, is_nonce};
use countersign_protocol::signing::{SIGNATURE_BYTES, decode_signature, encode_signature};

use super::*;

#[test]
fn what_is_turned_round_is_no_request_that_the_server_would_take_and_no_callback() {
    let prefixes = Prefixes::new(&["X-Service-".to_owned()]).expect("a prefix");
    let deadline = Duration::from_secs(1);
    let courier = Courier::new("http://127.0.0.1:1/", prefixes.first(), "app_1", "sk_1", Encoding::Hex, deadline);
    let courier = courier.expect("a courier");
    for nonce_of in [with_a_strange_sign as fn(&str) -> String, too_long] {
        let Letter { nonce, .. } = reflected(&courier, nonce_of);
        assert!(!is_nonce(&nonce) && !nonce.starts_with("callback"), "{nonce}");
        assert!(is_nonce(&nonce[..nonce.len() - 1]), "but for one sign it is as any other: {nonce}");
    }
}

#[test]
fn one_of_several_at_once_is_good_none_tells_nothing_and_two_are_one_too_many() {
    let refused = || Reaction::NotTaken("status 401".to_owned());
    let busy = || Reaction::Busy { what: "status 503".to_owned(), retry_after: None };
    let silent = || Reaction::Silent("closed".to_owned());
    let unreached = || Reaction::Unreached(String::new());
    let late = || Reaction::Late(String::new());
    // Of none, one and two that are taken beside these.
    let rest = [
        (vec![refused(), refused()], [Verdict::Advice, Verdict::Pass, Verdict::Fail]),
        (vec![silent(), refused()], [Verdict::Advice, Verdict::Pass, Verdict::Fail]),
        (vec![unreached(), refused()], [Verdict::Untold, Verdict::Untold, Verdict::Fail]),
        (vec![late(), refused()], [Verdict::Fail; 3]),
        (vec![late(), busy()], [Verdict::Fail; 3]),
        // Of those that were put off nobody knows what would have become of them: two must have been judged.
        (vec![busy(), busy()], [Verdict::Untold, Verdict::Untold, Verdict::Fail]),
        (vec![busy(), refused()], [Verdict::Untold, Verdict::Pass, Verdict::Fail]),
        (vec![busy(), silent(), refused()], [Verdict::Advice, Verdict::Pass, Verdict::Fail]),
    ];
    for (others, wanted) in rest {
        let verdict = |taken| {
            let taken = std::iter::repeat_n(Reaction::Taken { took: Duration::ZERO }, taken);
            once_at_most(&taken.chain(others.clone()).collect::<Vec<_>>()).verdict
        };
        assert_eq!([0, 1, 2].map(verdict), wanted, "{others:?}");
    }
    let said = once_at_most(&[Reaction::Taken { took: Duration::ZERO }, busy(), busy(), unreached()]).came;
    assert_eq!(said, "1 of 4 taken, 1 did not reach the receiver, 2 put off");
}

#[test]
fn a_signature_spelled_otherwise_is_another_text_and_the_same_signature_to_a_lenient_reader() {
    let lenient = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let lenient = GeneralPurpose::new(&alphabet::STANDARD, lenient);
    // Each pair of bits that the last character can carry.
    for last in [0x00, 0x01, 0x02, 0x03] {
        let mut bytes = [0xab; SIGNATURE_BYTES];
        bytes[SIGNATURE_BYTES - 1] = last;
        let written = encode_signature(&bytes, Encoding::Base64);
        let other = respelled(&written, Encoding::Base64);
        assert!(other != written && decode_signature(other.as_bytes()).is_none(), "{other}");
        assert_eq!(lenient.decode(&other).expect("it is lenient"), bytes);
        let written = encode_signature(&bytes, Encoding::Hex);
        let other = respelled(&written, Encoding::Hex);
        assert!(other != written && decode_signature(other.as_bytes()) == Some(bytes), "{other}");
    }
}
