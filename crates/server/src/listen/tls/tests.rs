//! A certificate or key that is no good is told by what is wrong with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

fn pem(kind: &str, der: &[u8]) -> String {
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", STANDARD.encode(der))
}

/// A certificate in DER and its key in PEM.
fn made() -> (Vec<u8>, String) {
    let wanted = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let key = rcgen::KeyPair::generate().expect("a key");
    (wanted.self_signed(&key).expect("signed").der().to_vec(), pem("PRIVATE KEY", key.serialized_der()))
}

/// What reading these says.
fn said(chain: &[&[u8]], key: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let [chain_file, key_file] = ["chain.pem", "key.pem"].map(|name| folder.path().join(name));
    let chain: String = chain.iter().map(|der| pem("CERTIFICATE", der)).collect();
    std::fs::write(&chain_file, chain).expect("is written");
    std::fs::write(&key_file, key).expect("is written");
    Certificate::read(&chain_file, &key_file).map_or_else(|error| error.to_string(), |_| "fine".to_owned())
}

#[test]
fn a_certificate_or_key_that_is_no_good_is_told_by_what_is_wrong_with_it() {
    let ((own, key), (other, _)) = (made(), made());
    let version = own.windows(5).position(|part| part == [0xa0, 3, 2, 1, 2]).expect("it is version 3");
    let mut old = own.clone();
    old[version + 4] = 0;
    let encrypted = pem("ENCRYPTED PRIVATE KEY", b"none");
    let legacy = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    for (chain, key, words) in [
        (vec![&own[..]], key.as_str(), "fine"),
        (vec![&own[..], &other[..]], &key, "fine"),
        (vec![&other[..], &own[..]], &key, "the server's own must stand first, and is number 2 there"),
        (vec![&other[..]], &key, "is for another key"),
        (vec![&old[..]], &key, "has not version 3 of X.509"),
        (vec![], &key, "holds no certificate"),
        (vec![&own[..]], "", "holds no private key in PEM"),
        (vec![&own[..]], &encrypted, "key.pem is encrypted"),
        (vec![&own[..]], legacy, "key.pem is encrypted"),
        (vec![&own[..]], &pem("PRIVATE KEY", b"none"), "holds a key that cannot be used: RSA of 2048"),
    ] {
        let said = said(&chain, key);
        assert!(said.contains(words), "{words}: {said}");
    }
}
