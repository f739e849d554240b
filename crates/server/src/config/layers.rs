//! One layer over another: a file's text, a variable's, a flag's. A name that is no setting is refused where it stands.

use std::path::Path;

use toml::{Table, Value};

use super::{ConfigRefused, first_line, refused};

/// Where the text is no TOML. Never the line itself: it may hold a password, or a key that does not belong there.
fn syntax(error: &toml::de::Error, text: &str, origin: &str) -> ConfigRefused {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |begun| begun.chars().count()) + 1;
    ConfigRefused(format!("{origin}: line {line}, column {column}: {}", in_words(error.message())))
}

/// What is said of a text in the place of an address to listen on.
pub(crate) const ADDRESS_WANTED: &str = "an IP address and its port are wanted, such as \"127.0.0.1:8080\"";

/// What is wrong with a value. Of a number that is too small or too large serde says only the kind that Rust has for it.
pub(super) fn in_words(error: &str) -> String {
    let line = first_line(error);
    if line.contains("invalid socket address syntax") {
        return ADDRESS_WANTED.to_owned();
    }
    if line.contains("invalid IP address syntax") {
        return "an IP address is wanted, such as \"198.51.100.7\"".to_owned();
    }
    let number = line.split_once("integer `").and_then(|(_, rest)| rest.split_once('`'));
    let Some((number, (_, expected))) = number.and_then(|(number, rest)| Some((number, rest.split_once("expected ")?)))
    else {
        return line.to_owned();
    };
    let most = match expected {
        "u8" => i64::from(u8::MAX),
        "u16" => i64::from(u16::MAX),
        "u32" => i64::from(u32::MAX),
        // No larger number can be written in TOML.
        "u64" | "usize" => i64::MAX,
        "any valid TOML value" => return format!("{number} is further from 0 than any number that TOML has"),
        _ => return line.to_owned(),
    };
    format!("{number} is too small or too large: a whole number from 0 to {most} is wanted")
}

pub(super) fn lay_file(table: &mut Table, text: &str, origin: &str) -> Result<(), ConfigRefused> {
    let over: Table = text.parse().map_err(|error: toml::de::Error| syntax(&error, text, origin))?;
    for name in ["master_key", "master_key_previous", "callback_proxy_credentials"] {
        if over.get(name).is_some_and(|key| key.as_str() != Some("")) {
            return refused(format!(
                "{origin}: {name} does not belong into a settings file: use {name}_file, or COUNTERSIGN_{} in the environment",
                name.to_uppercase()
            ));
        }
    }
    lay_table(table, over, origin, "")
}

/// Refuses a settings file that everybody may read and that holds the password of the database.
pub(super) fn guard_password(table: &Table, file: &Path) -> Result<(), ConfigRefused> {
    let url = table.get("database_url").and_then(Value::as_str).unwrap_or_default();
    let user = url.split_once("://").and_then(|(_, rest)| rest.split_once('@')).map_or("", |(user, _)| user);
    let has_password = user.contains(':') || url.contains("password=");
    if has_password && crate::datadir::mode_of(file).is_ok_and(crate::datadir::is_open_to_everybody) {
        let path = file.display();
        return refused(format!(
            "{path}: database_url holds a password, and everybody on this machine may read the file: run `chmod 600 {path}` if it is the server's own, \
             or use COUNTERSIGN_DATABASE_URL (systemd: in an EnvironmentFile)"
        ));
    }
    Ok(())
}

fn lay_table(table: &mut Table, over: Table, origin: &str, path: &str) -> Result<(), ConfigRefused> {
    for (name, value) in over {
        let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (table.get_mut(&name), value) {
            (None, _) => return refused(format!("{origin}: there is no setting {full}")),
            (Some(Value::Table(inner)), Value::Table(over)) => lay_table(inner, over, origin, &full)?,
            (Some(known), value) if known.same_type(&value) => *known = value,
            (Some(known), value) => {
                return refused(format!("{origin}: {full} must be {}, not {}", kind(known), kind(&value)));
            }
        }
    }
    Ok(())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number with a point",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a section",
    }
}

/// Sets `setting` (`limits__connections` for a key of a section) from a text, read as what the default is.
pub(super) fn lay_text(table: &mut Table, setting: &str, text: &str, origin: &str) -> Result<(), ConfigRefused> {
    let unknown = || ConfigRefused(format!("{origin}: there is no setting {}", setting.replace("__", ".")));
    let slot = match setting.split_once("__") {
        Some((section, name)) => {
            table.get_mut(section).and_then(Value::as_table_mut).and_then(|inner| inner.get_mut(name))
        }
        None => table.get_mut(setting),
    };
    let slot = slot.ok_or_else(unknown)?;
    *slot = read_as(slot, text, origin)?;
    Ok(())
}

fn read_as(known: &Value, text: &str, origin: &str) -> Result<Value, ConfigRefused> {
    let bad = || ConfigRefused(format!("{origin}: {text:?} is not {}", kind(known)));
    match known {
        Value::String(_) => Ok(Value::String(text.to_owned())),
        Value::Integer(_) => text.trim().parse().map(Value::Integer).map_err(|_| bad()),
        Value::Boolean(_) => text.trim().parse().map(Value::Boolean).map_err(|_| bad()),
        Value::Array(items) => {
            let numbers = items.first().is_some_and(Value::is_integer);
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            let read = |part: &str| {
                if numbers {
                    part.parse().map(Value::Integer).map_err(|_| bad())
                } else {
                    Ok(Value::String(part.to_owned()))
                }
            };
            parts.map(read).collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Table(_) => refused(format!("{origin}: this is a section; name one of its settings after __")),
        Value::Float(_) | Value::Datetime(_) => Err(bad()),
    }
}
