//! Forgers, who know everything but the key: they change an entry and rebuild the chain behind it.

use anyhow::{Context as _, Result};
use countersign::evidence::{Chain, Entry, Header, KEY_BYTES, SigningKey};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::dice::Dice;

/// What a forger changes, in the text of entries.
const LIES: [(&str, &str); 6] = [
    ("\"actor\":\"token:", "\"actor\":\"token:x"),
    ("\"detail\":\"", "\"detail\":\"x"),
    ("busy", "fine"),
    ("\"address\":\"127.0.0.1", "\"address\":\"127.0.0.2"),
    ("\"made_by\":\"", "\"made_by\":\"x"),
    ("x-service-nonce: ", "x-service-nonce: x"),
];

/// Forged files, each with what was done: every lie under a key of the forger's own that the header names, one that it does not name, and the
/// true head.
pub fn forgeries(good: &[u8], dice: &mut Dice) -> Result<Vec<(String, Vec<u8>)>> {
    let text = std::str::from_utf8(good)?;
    let lines: Vec<&str> = text.lines().collect();
    let (head, entries) = lines.split_last().context("a head")?;
    let entries: Vec<&str> = entries.iter().map(|line| inside(line)).collect::<Result<_>>()?;
    let header = header(entries.first().context("a header")?)?;
    let mut seed = Zeroizing::new([0; KEY_BYTES]);
    seed.fill_with(|| dice.bits().to_le_bytes()[0]);
    let own = SigningKey::new(&seed);
    let mut all = Vec::new();
    for (from, to) in LIES {
        let at =
            entries.iter().position(|entry| entry.contains(from)).with_context(|| format!("no entry has {from}"))?;
        let lie = entries[at].replacen(from, to, 1);
        for names_own in [false, true] {
            let mut chain = Chain::default();
            let mut forged = String::new();
            for (n, entry) in entries.iter().enumerate() {
                let entry = if n == at { &lie } else { *entry };
                let renamed = entry.replace(&header.public_key, &own.public().to_hex());
                forged += &chain.append_text(if names_own && n == 0 { &renamed } else { entry });
            }
            let under_true_head = format!("{forged}{head}\n");
            all.push((
                format!("{to}, under a key of its own, named: {names_own}"),
                forged + &chain.close(&header, &own),
            ));
            all.push((format!("{to}, under the true head, named: {names_own}"), under_true_head));
        }
    }
    Ok(all.into_iter().map(|(what, text)| (what, text.into_bytes())).collect())
}

fn inside(line: &str) -> Result<&str> {
    let entry = line.split_once("\"entry\":").context("an entry")?.1;
    entry.strip_suffix('}').context("the end of a line")
}

fn header(entry: &str) -> Result<Header> {
    let entry: Value = serde_json::from_str(entry)?;
    let Entry::Header(header) = serde_json::from_value(entry)? else { anyhow::bail!("the first entry is no header") };
    Ok(header)
}
