//! `sign` and `verify`: the signature without the network, for people who build or debug a client.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use countersign_protocol::callback;
use countersign_protocol::headers::{
    CLIENT_ID_CHARS_MAX, Header, HeaderNames, Prefixes, RESERVED_NONCE_PREFIX, is_name, is_nonce,
};
use countersign_protocol::signing::{Encoding, SigningKey, encode_signature};

use super::Usage;
use super::input::Input;
use crate::chance::Chance;
use crate::cli::numbers::whole;
use crate::clock::Clock;

/// The variable of the ClientId.
pub const CLIENT_ID_VARIABLE: &str = "COUNTERSIGN_CLIENT_ID";
/// The variable of the Payment API Secret.
pub const SECRET_VARIABLE: &str = "COUNTERSIGN_SECRET";

const SECRET_PREFIX: &str = "sk_";
const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;
const AGE_MS_RECOMMENDED: i64 = 5 * 60 * 1000;

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SignatureForm {
    /// 128 lowercase hexadecimal digits.
    Hex,
    /// Base64.
    Base64,
}

impl From<SignatureForm> for Encoding {
    fn from(form: SignatureForm) -> Self {
        match form {
            SignatureForm::Hex => Self::Hex,
            SignatureForm::Base64 => Self::Base64,
        }
    }
}

/// Flags of `sign`.
#[derive(Debug, Args)]
pub struct SignArgs {
    /// File with the body; - is standard input [default: no body]
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Unix milliseconds [default: now]
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    timestamp: Option<String>,
    /// Nonce [default: 32 random hex digits]
    #[arg(long)]
    nonce: Option<String>,
    /// MerchantId header: the institution, for fee rules
    #[arg(long, value_name = "ID")]
    merchant_id: Option<String>,
    /// On-Behalf-Of header: a sub-account of the institution
    #[arg(long, value_name = "ID")]
    on_behalf_of: Option<String>,
    /// How the signature is written
    #[arg(long, value_enum, default_value = "hex")]
    encoding: SignatureForm,
    /// What the header names begin with
    #[arg(long, default_value = "X-Service-")]
    prefix: String,
}

/// Flags of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The callback's Timestamp header
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    timestamp: String,
    /// The callback's Nonce header
    #[arg(long)]
    nonce: String,
    /// The callback's Signature header
    #[arg(long)]
    signature: String,
    /// The callback's Signature-Next header, where it has one: a secret is being replaced
    #[arg(long, value_name = "SIGNATURE")]
    signature_next: Option<String>,
    /// File with the callback's body, byte for byte as it came; - is standard input
    #[arg(long, value_name = "FILE")]
    body: PathBuf,
    /// Also refuse a timestamp farther from now than this [default: its age is only reported]
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = whole::<u32>)]
    tolerance_ms: Option<u32>,
}

/// A variable that must be set, and to more than white space, with its name in the refusal and its value nowhere. White space around the value
/// is what `$(cat FILE)` and environment files leave there, and no part of it.
fn required<'a>(environment: &'a BTreeMap<String, String>, name: &str) -> anyhow::Result<&'a str> {
    let value = environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| anyhow!("set {name} in the environment"))?;
    ensure!(
        !value.starts_with('\u{feff}'),
        "{name} begins with a byte order mark (U+FEFF), which is not seen and no part of it: set it without that"
    );
    Ok(value)
}

/// The ClientId, which a header can hold.
pub fn client_id(environment: &BTreeMap<String, String>) -> anyhow::Result<&str> {
    let client_id = required(environment, CLIENT_ID_VARIABLE)?;
    ensure!(
        client_id.bytes().all(|byte| byte.is_ascii_graphic()),
        "{CLIENT_ID_VARIABLE} is no ClientId: there is a line feed, a space or another character in it that none has; set it to the ClientId alone"
    );
    ensure!(
        client_id.len() <= CLIENT_ID_CHARS_MAX,
        "{CLIENT_ID_VARIABLE} is no ClientId: it has more than {CLIENT_ID_CHARS_MAX} characters; set it to the ClientId alone"
    );
    // It would be sent as it is, and shown to whoever reads logs.
    ensure!(
        !client_id.starts_with(SECRET_PREFIX),
        "{CLIENT_ID_VARIABLE} begins with {SECRET_PREFIX}, as secrets do: set {SECRET_VARIABLE} to the secret, and {CLIENT_ID_VARIABLE} to the ClientId"
    );
    Ok(client_id)
}

/// The Payment API Secret. What it has inside is its own.
pub fn secret(environment: &BTreeMap<String, String>) -> anyhow::Result<&str> {
    required(environment, SECRET_VARIABLE)
}

/// The bytes of a body; none without a file.
pub fn body_of(file: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let input = Input::named(file);
    // A body that was cut would be another one.
    let whole = input.whole(BODY_BYTES_MAX).with_context(|| format!("{input} cannot be read"))?;
    whole.ok_or_else(|| anyhow!("{input} is longer than 16 MiB, which no body is: give the body alone"))
}

/// The names of the signed headers under one prefix.
pub fn header_names(prefix: &str) -> anyhow::Result<HeaderNames> {
    let prefixes = Prefixes::new(&[prefix.to_owned()]).map_err(|refused| Usage(format!("--prefix: {refused}")))?;
    Ok(prefixes.first().clone())
}

/// What goes into the headers of a signed request.
#[derive(Clone, Debug)]
pub struct Signed {
    /// Unix milliseconds.
    pub timestamp: String,
    /// The nonce.
    pub nonce: String,
    /// The signature as text.
    pub signature: String,
}

/// Signs a body now, with a fresh nonce, unless given.
pub fn signed(
    secret: &str,
    body: &[u8],
    timestamp: Option<String>,
    nonce: Option<String>,
    encoding: Encoding,
) -> Signed {
    let timestamp = timestamp.unwrap_or_else(|| Clock::System.now().0.to_string());
    let nonce = nonce.unwrap_or_else(|| Chance::default().hex(16));
    let signature = encode_signature(&SigningKey::new(secret.as_bytes()).sign(&timestamp, &nonce, body), encoding);
    Signed { timestamp, nonce, signature }
}

/// Whether a server reads it (docs/PROTOCOL.md, Headers).
fn is_timestamp(text: &str) -> bool {
    text.len() == 13 && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Refuses what is no id of a merchant: no server takes it, and some of it is no header.
pub fn demand_merchant(flag: &str, id: Option<&str>) -> anyhow::Result<()> {
    ensure!(id.is_none_or(is_name), Usage(format!("{flag}: 1 to 64 of A-Z a-z 0-9 _ - are wanted")));
    Ok(())
}

/// Prints the headers of a request, one a line, as `curl -H @-` reads them.
pub fn sign(args: &SignArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    super::say(&header_lines(args, environment)?)?;
    Ok(ExitCode::SUCCESS)
}

fn header_lines(args: &SignArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let client_id = client_id(environment)?;
    let secret = secret(environment)?;
    if args.timestamp.as_ref().is_some_and(|timestamp| !is_timestamp(timestamp)) {
        bail!(Usage("--timestamp: 13 digits without a leading zero are wanted, Unix milliseconds".to_owned()));
    }
    if args.nonce.as_ref().is_some_and(|nonce| !is_nonce(nonce) || nonce.starts_with(RESERVED_NONCE_PREFIX)) {
        bail!(Usage(format!(
            "--nonce: 1 to 64 of A-Z a-z 0-9 . _ - are wanted, and not `{RESERVED_NONCE_PREFIX}` at the beginning, which only callbacks have"
        )));
    }
    let merchants = [
        ("--merchant-id", Header::MerchantId, args.merchant_id.as_deref()),
        ("--on-behalf-of", Header::OnBehalfOf, args.on_behalf_of.as_deref()),
    ];
    merchants.iter().try_for_each(|(flag, _, id)| demand_merchant(flag, *id))?;
    let body = body_of(args.body.as_deref())?;
    let names = header_names(&args.prefix)?;
    let signed = signed(secret, &body, args.timestamp.clone(), args.nonce.clone(), args.encoding.into());
    ensure!(
        is_timestamp(&signed.timestamp),
        "the clock of this machine says {} ms, which no server takes: 13 digits are wanted; set the clock, or give --timestamp",
        signed.timestamp
    );
    let lines = [
        (Header::ClientId, client_id),
        (Header::Timestamp, &signed.timestamp),
        (Header::Nonce, &signed.nonce),
        (Header::Signature, &signed.signature),
    ];
    let merchants = merchants.into_iter().filter_map(|(_, header, id)| Some((header, id?)));
    let mut text = lines
        .into_iter()
        .chain(merchants)
        .fold(String::new(), |text, (header, value)| text + &format!("{}: {value}\n", names.display(header)));
    if !body.is_empty() {
        text.push_str("Content-Type: application/json\n");
    }
    Ok(text)
}

/// Says whether a captured callback is ours, or what about it is not.
pub fn verify(args: &VerifyArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    super::say(&verdict(args, environment, Clock::System.now().0)?)?;
    Ok(ExitCode::SUCCESS)
}

fn verdict(args: &VerifyArgs, environment: &BTreeMap<String, String>, now: i64) -> anyhow::Result<String> {
    let secret = secret(environment)?;
    let body = body_of(Some(&args.body))?;
    let stamped: i64 = args
        .timestamp
        .parse()
        .map_err(|_| Usage(format!("the timestamp {:?} is no Unix time in milliseconds", args.timestamp)))?;
    let (compared_with, tolerance) = args.tolerance_ms.map_or((stamped, 0), |tolerance| (now, i64::from(tolerance)));
    let key = SigningKey::new(secret.as_bytes());
    let judge = |body: &[u8], signature: &str| {
        callback::verify(&key, &args.timestamp, &args.nonce, body, signature.trim(), compared_with, tolerance)
    };
    let next = args.signature_next.as_deref();
    let (is_next, refused) = match (judge(&body, &args.signature), next.map(|next| judge(&body, next))) {
        (Ok(()), _) => (false, None),
        (Err(_), Some(Ok(()))) => (true, None),
        (Err(refused), Some(Err(_)) | None) => (false, Some(refused)),
    };
    if let Some(refused) = refused {
        let fits = |body: &[u8]| {
            std::iter::once(args.signature.as_str()).chain(next).any(|signature| judge(body, signature).is_ok())
        };
        let cause = likely_cause(&body, fits).map_or_else(String::new, |cause| format!(". A likely cause: {cause}"));
        bail!("this callback is not good: {refused}{cause}");
    }
    let away_s = (now - stamped).unsigned_abs() / 1000;
    let stands = if stamped > now { format!("{away_s} s ahead of this clock") } else { format!("{away_s} s old") };
    let age = if (now - stamped).abs() > AGE_MS_RECOMMENDED {
        let excuse = if stamped > now { "" } else { "fine for a captured callback; " };
        format!("Its timestamp is {stands}: {excuse}a receiver should refuse it (recommended limit: 300 s).\n")
    } else {
        format!("Its timestamp is {stands}.\n")
    };
    let whom = for_another(&body, environment).unwrap_or_default();
    let which = if is_next {
        "It is that of Signature-Next: this secret is the one that does not sign callbacks now.\n"
    } else {
        ""
    };
    Ok(format!(
        "The signature is right: this body was signed with this secret, and nobody changed it since.\n{which}{age}{whom}"
    ))
}

/// What happened to a body on its way into a file, where that is why no signature fits it.
fn likely_cause(body: &[u8], fits: impl Fn(&[u8]) -> bool) -> Option<&'static str> {
    let has_more = "the file ends with a line feed that the body did not have, as editors and echo add one";
    let less = [b"\r\n".as_slice(), b"\n"].into_iter().filter_map(|end| body.strip_suffix(end));
    if less.into_iter().any(&fits) {
        return Some(has_more);
    }
    fits(&[body, b"\n"].concat())
        .then_some("the body ended with a line feed that is not in the file, as $(...) and curl -d take it away")
}

/// A sentence where the variable names another application than the body does.
fn for_another(body: &[u8], environment: &BTreeMap<String, String>) -> Option<String> {
    let set = environment.get(CLIENT_ID_VARIABLE).map(|id| id.trim()).filter(|id| !id.is_empty())?;
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let named = body.get("client_id")?.as_str().filter(|named| *named != set)?;
    Some(format!("It is for the application {named}, which is not {set} of {CLIENT_ID_VARIABLE}.\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A known answer of crates/protocol/vectors/signing.json.
    const SECRET: &str = "sk_test_secret";
    const TIMESTAMP: &str = "1700000000000";
    const SIGNATURE: &str = "2ddbf4a0a71f9534ade9681692beb92c030239b50a9087eda8adb27b75c6e6d2dcf7bd8d1d441ec909efcd869e7985c7b1222f1a1374dc6db7cab7c6f46252c0";

    fn environment() -> BTreeMap<String, String> {
        BTreeMap::from([
            (CLIENT_ID_VARIABLE.to_owned(), "app_1".to_owned()),
            (SECRET_VARIABLE.to_owned(), SECRET.to_owned()),
        ])
    }

    fn sign_args(timestamp: &str) -> SignArgs {
        SignArgs {
            body: None,
            timestamp: Some(timestamp.to_owned()),
            nonce: Some("abc123".to_owned()),
            merchant_id: None,
            on_behalf_of: None,
            encoding: SignatureForm::Hex,
            prefix: "X-Other-".to_owned(),
        }
    }

    #[test]
    fn sign_prints_the_headers_of_the_known_answer() {
        let text = header_lines(&sign_args(TIMESTAMP), &environment()).expect("it signs");
        let wanted = format!(
            "X-Other-Certificate-ClientId: app_1\nX-Other-Timestamp: {TIMESTAMP}\nX-Other-Nonce: abc123\nX-Other-Signature: {SIGNATURE}\n"
        );
        assert_eq!(text, wanted);
        assert!(header_lines(&sign_args("1700000000"), &environment()).is_err(), "seconds are no milliseconds");
        for nonce in ["", "a b", "a\nX-Other: 1", "callback1", &"x".repeat(65)] {
            let args = SignArgs { nonce: Some(nonce.to_owned()), ..sign_args(TIMESTAMP) };
            let refused = header_lines(&args, &environment()).expect_err("no server takes it").to_string();
            assert!(refused.starts_with("--nonce: 1 to 64 of"), "{refused}");
        }
        let refused = header_lines(&sign_args(TIMESTAMP), &BTreeMap::new()).expect_err("nothing is set").to_string();
        assert_eq!(refused, "set COUNTERSIGN_CLIENT_ID in the environment");
        for nothing in ["", " ", "\n"] {
            let mut environment = environment();
            environment.insert(SECRET_VARIABLE.to_owned(), nothing.to_owned());
            let refused = header_lines(&sign_args(TIMESTAMP), &environment).expect_err("nothing is in it").to_string();
            assert_eq!(refused, "set COUNTERSIGN_SECRET in the environment", "{nothing:?}");
        }
    }

    #[test]
    fn sign_names_whom_a_request_is_for() {
        let named = |merchant_id: &str| SignArgs {
            merchant_id: Some(merchant_id.to_owned()),
            on_behalf_of: Some("shop-1".to_owned()),
            ..sign_args(TIMESTAMP)
        };
        let text = header_lines(&named("10001"), &environment()).expect("it signs");
        assert!(text.ends_with("X-Other-MerchantId: 10001\nX-Other-On-Behalf-Of: shop-1\n"), "{text}");
        for id in ["", "a b", "a\nX-Other: 1", &"x".repeat(65)] {
            let refused = header_lines(&named(id), &environment()).expect_err("no header").to_string();
            assert_eq!(refused, "--merchant-id: 1 to 64 of A-Z a-z 0-9 _ - are wanted");
        }
    }

    #[test]
    fn what_stands_around_a_variable_is_no_part_of_it_and_what_stands_inside_is() {
        let set = |name: &str, value: &str| {
            let mut environment = environment();
            environment.insert(name.to_owned(), value.to_owned());
            environment
        };
        for around in ["\n", "\r\n", " ", "\t"] {
            let padded = |text: &str| format!("{around}{text}{around}");
            assert_eq!(secret(&set(SECRET_VARIABLE, &padded("sk a\tb"))).expect("is taken"), "sk a\tb", "{around:?}");
            assert_eq!(client_id(&set(CLIENT_ID_VARIABLE, &padded("app_1"))).expect("is taken"), "app_1", "{around:?}");
        }
        let long = "canary".repeat(22);
        for text in ["canary\n1", "canary 1", "canary\t1", "canary\u{e4}", "canary\u{7f}", &long] {
            let refused = client_id(&set(CLIENT_ID_VARIABLE, text)).expect_err("no header holds it").to_string();
            assert!(refused.starts_with("COUNTERSIGN_CLIENT_ID is no ClientId: "), "{refused}");
            assert!(!refused.contains("canary"), "{refused}");
        }
        let refused = client_id(&set(CLIENT_ID_VARIABLE, " sk_canary\n")).expect_err("it is a secret").to_string();
        assert!(
            refused.starts_with("COUNTERSIGN_CLIENT_ID begins with sk_") && !refused.contains("canary"),
            "{refused}"
        );
        for text in ["\u{feff}canary", "\n\u{feff}canary\n"] {
            let refused = secret(&set(SECRET_VARIABLE, text)).expect_err("nobody means it").to_string();
            assert!(refused.starts_with("COUNTERSIGN_SECRET begins with a byte order mark (U+FEFF)"), "{refused}");
            assert!(!refused.contains("canary"), "{refused}");
        }
    }

    #[test]
    fn a_body_that_is_too_long_is_refused_and_never_cut() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("body");
        let of_length = |length| {
            std::fs::File::create(&path).and_then(|file| file.set_len(length)).expect("it can be made");
            body_of(Some(&path)).map(|bytes| bytes.len() as u64).map_err(|error| error.to_string())
        };
        assert_eq!(of_length(BODY_BYTES_MAX), Ok(BODY_BYTES_MAX));
        let wanted = format!("{} is longer than 16 MiB, which no body is: give the body alone", path.display());
        assert_eq!(of_length(BODY_BYTES_MAX + 1), Err(wanted));
    }

    #[test]
    fn verify_takes_the_genuine_callback_and_refuses_each_change_of_it() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("body.json");
        std::fs::write(&path, r#"{"bizId":"1"}"#).expect("it can be written");
        let nonce = "callback0123456789abcdef01234567";
        let body = std::fs::read(&path).expect("it is there");
        let signature =
            signed(SECRET, &body, Some(TIMESTAMP.to_owned()), Some(nonce.to_owned()), Encoding::Base64).signature;
        let args = |timestamp: &str, nonce: &str, tolerance_ms| VerifyArgs {
            timestamp: timestamp.to_owned(),
            nonce: nonce.to_owned(),
            signature: signature.clone(),
            signature_next: None,
            body: path.clone(),
            tolerance_ms,
        };
        let now = 1_700_000_010_000;
        let said = verdict(&args(TIMESTAMP, nonce, None), &environment(), now).expect("it is genuine");
        assert!(said.contains("10 s old"), "{said}");
        assert!(verdict(&args(TIMESTAMP, nonce, Some(10_000)), &environment(), now).is_ok());
        let said =
            verdict(&args(TIMESTAMP, nonce, None), &environment(), now + 3_600_000).expect("it is old, but captured");
        assert!(said.contains("a receiver should refuse it"), "{said}");
        let ahead = |ms: i64| verdict(&args(TIMESTAMP, nonce, None), &environment(), now - ms).expect("it is genuine");
        assert!(ahead(15_000).contains("Its timestamp is 5 s ahead of this clock.\n"), "{}", ahead(15_000));
        let said = ahead(410_000);
        assert!(said.contains("400 s ahead of this clock: a receiver should refuse it"), "{said}");
        for (refused, why) in [
            (args(TIMESTAMP, nonce, Some(9_999)), "10000 ms behind the present"),
            (args(TIMESTAMP, "abc", None), "does not begin with"),
            (args("1700000000001", nonce, None), "does not fit"),
            (args("yesterday", nonce, None), "no Unix time"),
        ] {
            let said = verdict(&refused, &environment(), now).expect_err(why).to_string();
            assert!(said.contains(why), "{said}");
        }
        std::fs::write(&path, r#"{"bizId":"2"}"#).expect("it can be written");
        assert!(verdict(&args(TIMESTAMP, nonce, None), &environment(), now).is_err(), "the body was changed");
    }

    #[test]
    fn verify_knows_a_rotation_and_what_becomes_of_a_body_in_a_file() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("body.json");
        let nonce = "callback0123456789abcdef01234567";
        let of = |secret: &str, body: &str| {
            let (timestamp, nonce) = (Some(TIMESTAMP.to_owned()), Some(nonce.to_owned()));
            signed(secret, body.as_bytes(), timestamp, nonce, Encoding::Hex).signature
        };
        let said = |written: &str, signature: String, signature_next: Option<String>| {
            std::fs::write(&path, written).expect("it can be written");
            let (timestamp, nonce, body) = (TIMESTAMP.to_owned(), nonce.to_owned(), path.clone());
            let args = VerifyArgs { timestamp, nonce, signature, signature_next, body, tolerance_ms: None };
            verdict(&args, &environment(), 1_700_000_000_000).map_err(|error| error.to_string())
        };
        let next = said("{}", of("another", "{}"), Some(of(SECRET, "{}"))).expect("one of both fits");
        assert!(next.contains("It is that of Signature-Next"), "{next}");
        let first = said("{}", of(SECRET, "{}"), Some("cut short".to_owned())).expect("one of both fits");
        assert!(!first.contains("Signature-Next"), "{first}");
        let mismatch =
            "this callback is not good: the signature of the callback does not fit its timestamp, nonce and body";
        assert_eq!(said("{}", of("another", "{}"), Some(of("a third", "{}"))), Err(mismatch.to_owned()));
        let more =
            ". A likely cause: the file ends with a line feed that the body did not have, as editors and echo add one";
        for written in ["{}\n", "{}\r\n"] {
            assert_eq!(said(written, of(SECRET, "{}"), None), Err(format!("{mismatch}{more}")));
            assert_eq!(said(written, of("x", "{}"), Some(of(SECRET, "{}"))), Err(format!("{mismatch}{more}")));
        }
        let less = said("{}", of(SECRET, "{}\n"), None).expect_err("a line feed is missing");
        assert!(less.contains(". A likely cause: the body ended with a line feed that is not in the file"), "{less}");
    }

    #[test]
    fn verify_says_whom_a_callback_is_for_where_another_is_expected() {
        let said = |body: &str| for_another(body.as_bytes(), &environment());
        let wanted = "It is for the application app_2, which is not app_1 of COUNTERSIGN_CLIENT_ID.\n";
        assert_eq!(said(r#"{"client_id":"app_2"}"#).as_deref(), Some(wanted));
        for body in [r#"{"client_id":"app_1"}"#, r#"{"client_id":2}"#, "{}", "no JSON", ""] {
            assert_eq!(said(body), None, "{body}");
        }
        assert_eq!(for_another(br#"{"client_id":"app_2"}"#, &BTreeMap::new()), None, "nobody is expected");
        let padded = BTreeMap::from([(CLIENT_ID_VARIABLE.to_owned(), "app_1\r\n".to_owned())]);
        assert_eq!(for_another(br#"{"client_id":"app_1"}"#, &padded), None, "it is the one that is expected");
    }
}
