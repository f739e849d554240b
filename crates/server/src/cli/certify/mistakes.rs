//! What a receiver that refuses a good callback may have got wrong: callbacks signed as usual mistakes would have it, until one is taken.

use std::io;
use std::ops::RangeInclusive;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_protocol::callback::CallbackBody;
use countersign_protocol::signing::{Encoding, signed_text};
use serde::Serialize as _;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::super::courier::{Courier, Letter, Reaction};
use super::patience::until_judged;
use crate::chance::{hex, unhex};

/// What the receiver does, and a good letter signed as it would have it; none where that is as it should be.
struct Mistake {
    told: &'static str,
    made: fn(&Courier, &str, Letter) -> Option<Letter>,
}

const LOOKS_AT_NONE: &str = "does not go by the signature: it takes callbacks that somebody else has signed, and refuses some good ones for another reason";

const MINUTE_MS: i64 = 60_000;
const OTHER_MINUTES: &str = "takes what is stamped some minutes from now: its clock or that of this machine is wrong, or it allows for no difference between them";
/// As far as clocks go wrong that nobody sets. Whoever allows for 30 s takes one of them.
const MINUTES_OFF: RangeInclusive<i64> = -10..=10;
const OTHER_HOURS: &str = "takes what is stamped whole or half hours from now: it reads the timestamp, which counts from 1970 in UTC, as a time of its own zone, or \
                           its clock or that of this machine is wrong";
/// Zones of the world, in hours, and those between, in minutes.
const ZONES: RangeInclusive<i64> = -12..=14;
const ZONES_BETWEEN: [i64; 9] = [330, 345, 210, 270, 390, 570, 630, -210, -570];

const MISTAKES: &[Mistake] = &[
    Mistake {
        told: "leaves out the LF behind the body",
        made: |courier, _, letter| {
            let text = [letter.timestamp.as_bytes(), b"\n", letter.nonce.as_bytes(), b"\n", &letter.body].concat();
            Some(of_text(courier, letter, &text))
        },
    },
    Mistake {
        told: "joins timestamp, nonce and body without an LF behind each",
        made: |courier, _, letter| {
            let text = [letter.timestamp.as_bytes(), letter.nonce.as_bytes(), &letter.body].concat();
            Some(of_text(courier, letter, &text))
        },
    },
    Mistake {
        told: "ends each part with CR and LF in place of LF",
        made: |courier, _, letter| {
            let parts = [letter.timestamp.as_bytes(), letter.nonce.as_bytes(), &letter.body];
            let text = parts.map(|part| [part, b"\r\n"].concat()).concat();
            Some(of_text(courier, letter, &text))
        },
    },
    Mistake {
        told: "takes the signature for one of the body alone, without timestamp and nonce",
        made: |courier, _, letter| {
            let text = letter.body.clone();
            Some(of_text(courier, letter, &text))
        },
    },
    Mistake {
        told: "leaves out the nonce",
        made: |courier, _, letter| {
            let text = [letter.timestamp.as_bytes(), b"\n", &letter.body, b"\n"].concat();
            Some(of_text(courier, letter, &text))
        },
    },
    Mistake {
        told: "puts the nonce before the timestamp",
        made: |courier, _, letter| {
            let text = signed_text(&letter.nonce, &letter.timestamp, &letter.body);
            Some(of_text(courier, letter, &text))
        },
    },
    Mistake {
        told: "takes the timestamp for seconds: it is in milliseconds",
        made: |courier, _, letter| {
            let seconds = letter.timestamp[..letter.timestamp.len().saturating_sub(3)].to_owned();
            Some(courier.with_signature(Letter { timestamp: seconds, ..letter }))
        },
    },
    Mistake {
        told: "wants the signature in Base64: here say --encoding base64, and set callback_encoding of the application to base64",
        made: |courier, _, letter| {
            (courier.encoding() == Encoding::Hex).then(|| written(courier, letter, Encoding::Base64))
        },
    },
    Mistake {
        told: "wants the signature in hex: here say --encoding hex, and set callback_encoding of the application to hex",
        made: |courier, _, letter| {
            (courier.encoding() == Encoding::Base64).then(|| written(courier, letter, Encoding::Hex))
        },
    },
    Mistake {
        told: "compares hex digits in capitals: they come in small letters, and better than the text the 64 bytes are compared",
        made: |courier, _, letter| {
            let letter = written(courier, letter, Encoding::Hex);
            Some(Letter { signature: letter.signature.map(|digits| digits.to_ascii_uppercase()), ..letter })
        },
    },
    Mistake {
        told: "leaves sk_ out of the secret: the key is the whole text",
        made: |courier, secret, letter| Some(with_key(courier, letter, secret.strip_prefix("sk_")?.as_bytes())),
    },
    Mistake {
        told: "decodes the secret from hex: the key is the text as it stands, sk_ and all",
        made: |courier, secret, letter| Some(with_key(courier, letter, &unhex(without_prefix(secret))?)),
    },
    Mistake {
        told: "decodes the secret from Base64: the key is the text as it stands, sk_ and all",
        made: |courier, secret, letter| Some(with_key(courier, letter, &STANDARD.decode(without_prefix(secret)).ok()?)),
    },
    Mistake {
        told: "computes an HMAC-SHA256: the signature is an HMAC-SHA512",
        made: |_, secret, letter| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
            let text = signed_text(&letter.timestamp, &letter.nonce, &letter.body);
            Some(Letter { signature: Some(hex(hmac::sign(&key, &text).as_ref())), ..letter })
        },
    },
    Mistake {
        told: "writes the body anew, its fields by name, before it looks at the signature: the bytes as they came are signed",
        made: |courier, _, letter| {
            let sorted: serde_json::Value = serde_json::from_slice(&letter.body).ok()?;
            Some(of_body(courier, letter, sorted.to_string().into_bytes()))
        },
    },
    Mistake {
        told: "writes the body anew, with blanks, before it looks at the signature: the bytes as they came are signed",
        made: |courier, _, letter| {
            let spaced = spaced(&letter.body)?;
            Some(of_body(courier, letter, spaced))
        },
    },
];

/// Tries one after the other, and gives the first that the receiver takes; none where it takes none, or answers no more.
pub(super) async fn look_for(courier: &Courier, secret: &str) -> Option<&'static str> {
    // Whoever takes a stranger's takes each of them, and shows nothing by it.
    let letter = courier.good();
    let strange = Letter { signature: Some(courier.signature_of_a_stranger(&letter)), ..letter };
    match until_judged(async || courier.bring(&strange).await).await {
        Reaction::Taken { .. } => return Some(LOOKS_AT_NONE),
        Reaction::NotTaken(_) | Reaction::Busy { .. } => {}
        Reaction::Silent(_) | Reaction::Late(_) | Reaction::Unreached(_) => return None,
    }
    let signed_otherwise =
        MISTAKES.iter().map(|mistake| (mistake.told, (mistake.made)(courier, secret, courier.good())));
    let by_a_clock_that_is_off = MINUTES_OFF.map(|minutes| (OTHER_MINUTES, minutes));
    let in_another_zone = ZONES.map(|hours| hours * 60).chain(ZONES_BETWEEN).map(|minutes| (OTHER_HOURS, minutes));
    let stamped_otherwise = by_a_clock_that_is_off
        .chain(in_another_zone)
        .filter(|(_, minutes)| *minutes != 0)
        .map(|(told, minutes)| (told, Some(courier.signed_at(courier.good(), minutes * MINUTE_MS))));
    for (told, letter) in signed_otherwise.chain(stamped_otherwise) {
        let Some(letter) = letter else { continue };
        match until_judged(async || courier.bring(&letter).await).await {
            Reaction::Taken { .. } => return Some(told),
            Reaction::NotTaken(_) | Reaction::Busy { .. } => {}
            Reaction::Silent(_) | Reaction::Late(_) | Reaction::Unreached(_) => return None,
        }
    }
    None
}

fn of_text(courier: &Courier, letter: Letter, text: &[u8]) -> Letter {
    Letter { signature: Some(courier.signature_of_text(text)), ..letter }
}

/// The body as it is, and the signature of what the receiver makes of it.
fn of_body(courier: &Courier, letter: Letter, body: Vec<u8>) -> Letter {
    let signature = courier.signature_of(&Letter { body, ..letter.clone() });
    Letter { signature: Some(signature), ..letter }
}

fn with_key(courier: &Courier, letter: Letter, key: &[u8]) -> Letter {
    Letter { signature: Some(courier.signature_with(key, &letter)), ..letter }
}

fn written(courier: &Courier, letter: Letter, encoding: Encoding) -> Letter {
    courier.spelled(letter, encoding, |_| {})
}

fn without_prefix(secret: &str) -> &str {
    secret.strip_prefix("sk_").unwrap_or(secret)
}

/// As some libraries write JSON: a blank behind each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

fn spaced(body: &[u8]) -> Option<Vec<u8>> {
    let parsed: CallbackBody = serde_json::from_slice(body).ok()?;
    let mut spaced = Vec::with_capacity(body.len() + 16);
    parsed.serialize(&mut Serializer::with_formatter(&mut spaced, Spaced)).ok()?;
    Some(spaced)
}
