//! A certificate or key that is no good is told by what is wrong with it, and takes the place of none that is good.

use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

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

#[test]
fn what_is_no_file_is_refused_before_it_is_opened() {
    let good = Files::of(2020, 2040);
    let [chain_file, key_file] = good.paths();
    let certificate = Certificate::read(&chain_file, &key_file).map(Arc::new).expect("a good pair");
    for (at, path) in good.paths().iter().enumerate() {
        let kept = path.with_extension("kept");
        std::fs::rename(path, &kept).expect("is moved");
        let made = Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
        assert!(made.success() && certificate.is_due(Y2030));
        let wanted = format!("{} is a pipe: name a regular file", path.display());
        let (files, renewed) = (good.paths(), certificate.clone());
        // Elsewhere: nobody ever writes to it, and a thread that waits for that waits for ever.
        let (said, heard) = channel();
        std::thread::spawn(move || {
            let read = Certificate::read(&files[0], &files[1]).map(drop);
            said.send([read, renewed.renew(Y2030)].map(|outcome| outcome.map_err(|error| error.to_string())))
        });
        let outcomes = heard.recv_timeout(Duration::from_secs(20)).expect("it waits for nobody");
        assert_eq!(outcomes, [Err(wanted.clone()), Err(wanted)], "file {at}");
        std::fs::remove_file(path).expect("is removed");
        std::fs::rename(&kept, path).expect("is moved back");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let refused =
        Certificate::read(folder.path(), &key_file).map_or_else(|error| error.to_string(), |_| "fine".to_owned());
    assert!(refused.ends_with("is a folder: name a regular file"), "{refused}");
}

#[test]
fn a_file_that_no_certificate_is_as_large_as_is_refused_before_it_is_read() {
    let good = Files::of(2020, 2040);
    let [chain_file, key_file] = good.paths();
    let certificate = Certificate::read(&chain_file, &key_file).expect("a good pair");
    for path in [&chain_file, &key_file] {
        let kept = std::fs::read(path).expect("is there");
        let file = std::fs::File::options().write(true).open(path).expect("is there");
        file.set_len(PEM_BYTES_MAX + 1).expect("grows");
        let said =
            Certificate::read(&chain_file, &key_file).map_or_else(|error| error.to_string(), |_| "fine".to_owned());
        let wanted = format!(
            "{} has 1048577 bytes, and a chain or key has at most 1048576: name the file that holds it",
            path.display()
        );
        assert_eq!(said, wanted);
        assert!(certificate.is_due(Y2030) && certificate.renew(Y2030).is_err(), "the one in use stays");
        std::fs::write(path, kept).expect("is as it was");
    }
}

/// The first instants of some years.
const Y2020: UnixMillis = UnixMillis(1_577_836_800_000);
const Y2030: UnixMillis = UnixMillis(1_893_456_000_000);
const Y2040: UnixMillis = UnixMillis(2_208_988_800_000);

/// Files whose pair is good from the beginning of a year to that of another.
struct Files(tempfile::TempDir);

impl Files {
    fn of(from: i32, end: i32) -> Self {
        let files = Self(tempfile::tempdir().expect("a folder"));
        files.put(from, end);
        files
    }

    fn paths(&self) -> [PathBuf; 2] {
        ["chain.pem", "key.pem"].map(|name| self.0.path().join(name))
    }

    fn put(&self, from: i32, end: i32) {
        let mut wanted = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        (wanted.not_before, wanted.not_after) = (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(end, 1, 1));
        let key = rcgen::KeyPair::generate().expect("a key");
        let [chain_file, key_file] = self.paths();
        std::fs::write(chain_file, wanted.self_signed(&key).expect("signed").pem()).expect("is written");
        std::fs::write(key_file, key.serialize_pem()).expect("is written");
    }

    fn read(&self) -> Certificate {
        let [chain_file, key_file] = self.paths();
        Certificate::read(&chain_file, &key_file).expect("dates are no reason to refuse the first pair")
    }
}

/// What a renewal says, and the end of what is in use after it.
fn renewed(certificate: &Certificate, now: UnixMillis) -> (String, Option<UnixMillis>) {
    let said = certificate.renew(now).map_or_else(|error| error.to_string(), |()| "taken".to_owned());
    (said, certificate.dates().end)
}

#[test]
fn a_pair_that_has_ended_takes_the_place_of_none_that_is_good() {
    let files = Files::of(2010, 2040);
    let certificate = files.read();
    files.put(2010, 2030);
    let (said, in_use) = renewed(&certificate, Y2030.plus_ms(1));
    let words = "chain.pem ended at 2030-01-01T00:00:00.000Z, and by this server's clock it is 2030-01-01T00:00:00.001Z: put one";
    assert!(said.contains(words), "{said}");
    assert_eq!(in_use, Some(Y2040), "the one before stays in use");
    assert!(!certificate.is_due(Y2030.plus_ms(1)), "it is told once");
    // Its last instant is one of those that it is good for.
    assert_eq!(renewed(&certificate, Y2030), ("taken".to_owned(), Some(Y2030)));
}

#[test]
fn a_pair_that_is_not_valid_yet_is_taken_when_it_is() {
    let files = Files::of(2010, 2040);
    let certificate = files.read();
    files.put(2020, 2030);
    let early = Y2020.plus_ms(-1);
    assert!(certificate.is_due(early), "the files are others");
    let (said, in_use) = renewed(&certificate, early);
    let words = "chain.pem is not valid before 2020-01-01T00:00:00.000Z, and by this server's clock it is 2019-12-31T23:59:59.999Z: leave it there";
    assert!(said.contains(words), "{said}");
    assert_eq!(in_use, Some(Y2040), "the one before stays in use");
    assert!(!certificate.is_due(early), "it is told once");
    assert!(certificate.is_due(Y2020), "its time has come, though the files are the same");
    assert_eq!(renewed(&certificate, Y2020), ("taken".to_owned(), Some(Y2030)));
    assert!(!certificate.is_due(Y2020), "it is taken once");
}

#[test]
fn what_is_outside_its_dates_gives_way_to_any_pair() {
    for (new, now) in [((2010, 2020), Y2030.plus_ms(1)), ((2035, 2040), Y2030.plus_ms(1)), ((2025, 2040), Y2020)] {
        // By then it has ended, or is not valid yet.
        let files = if now == Y2020 { Files::of(2030, 2035) } else { Files::of(2010, 2030) };
        let certificate = files.read();
        files.put(new.0, new.1);
        assert_eq!(renewed(&certificate, now).0, "taken", "{new:?}");
    }
    let files = Files::of(2010, 2030);
    let certificate = files.read();
    files.put(2035, 2040);
    let (said, in_use) = renewed(&certificate, Y2030);
    assert!(said.contains("is not valid before 2035-01-01"), "good to its last instant: {said}");
    assert_eq!(in_use, Some(Y2030));
}
