//! One layer over another: a file's text, a variable's, a flag's. A name that is no setting is refused where it stands.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use countersign_store::postgres;
use toml::{Table, Value};

use super::{ConfigRefused, DEFAULTS, ENVIRONMENT_PREFIX, Flag, NOT_SETTINGS, defaults, first_line, refused};
use crate::small_file;

/// Settings that are secrets themselves.
pub(super) const SECRETS: [&str; 3] = ["master_key", "master_key_previous", "callback_proxy_credentials"];

/// Settings as defaults, file, environment and flags leave them, and which of these set each one. They may still be no good.
pub struct Layers {
    table: Table,
    /// By the names of settings (`limits.connections`): the file, variable or flag that set it last.
    set_by: BTreeMap<String, String>,
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be keys and passwords.
        f.debug_struct("Layers").field("set_by", &self.set_by).finish_non_exhaustive()
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name, `limits.connections` for one of a section.
    pub name: String,
    /// Its value; of a secret that is set none.
    pub value: Option<Value>,
    /// The file, variable or flag that set it; none: it is as shipped.
    pub set_by: Option<String>,
}

impl Layers {
    /// Lays defaults, file, environment and flags over each other.
    pub fn laid(
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
        flags: &[Flag],
    ) -> Result<Self, ConfigRefused> {
        let mut layers = Self { table: defaults(), set_by: BTreeMap::new() };
        let file = file.map(Path::to_path_buf).or_else(|| environment.get("COUNTERSIGN_CONFIG").map(PathBuf::from));
        if let Some(file) = file {
            if file.as_os_str().is_empty() {
                return refused("COUNTERSIGN_CONFIG is empty: name a settings file, or take the variable away");
            }
            let text = small_file::read_text(&file).map_err(|error| {
                ConfigRefused(format!("the settings file {} cannot be read: {error}", file.display()))
            })?;
            layers.lay_file(&text, &file.display().to_string())?;
            guard_password(&layers.table, &file)?;
        }
        for (name, value) in environment {
            let Some(setting) = name.strip_prefix(ENVIRONMENT_PREFIX) else { continue };
            let is_other = NOT_SETTINGS.contains(&name.as_str()) || is_link_to_a_service(setting, value);
            let setting = setting.to_lowercase();
            // Whatever a Service is called, it takes no setting away.
            if slot(&mut layers.table, &setting).is_some() || !is_other {
                layers.lay_text(&setting, value, name)?;
            }
        }
        for flag in flags {
            layers.lay_text(flag.setting, &flag.text, flag.flag)?;
            if flag.text.is_empty() {
                layers.set_by.remove(flag.setting);
            }
        }
        layers.demand_address()?;
        Ok(layers)
    }

    /// Refuses a `database_url` of another kind than is known. Never shown: what is no address may hold a password anywhere.
    fn demand_address(&self) -> Result<(), ConfigRefused> {
        let url = self.table.get("database_url").and_then(Value::as_str).unwrap_or_default();
        if url.is_empty() {
            return Ok(());
        }
        let origin = self.set_by.get("database_url").map_or("database_url", String::as_str);
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return refused(format!(
                "{origin}: database_url is no address of a PostgreSQL database: postgres://USER@HOST/DATABASE is wanted, or nothing for SQLite in \
                 the data folder"
            ));
        }
        match postgres::why_not_usable(url) {
            None => Ok(()),
            Some(why) => refused(format!("{origin}: database_url is not usable: {why}")),
        }
    }

    /// The settings, and by what each was set.
    pub(super) fn into_parts(self) -> (Table, BTreeMap<String, String>) {
        (self.table, self.set_by)
    }

    /// Every setting, in the order of `defaults.toml`.
    pub fn settings(&self) -> Vec<Setting> {
        names().into_iter().map(|name| self.setting(name)).collect()
    }

    fn setting(&self, name: String) -> Setting {
        let value = match name.split_once('.') {
            Some((section, inner)) => self.table.get(section).and_then(|section| section.get(inner)),
            None => self.table.get(&name),
        };
        let is_set = value.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        let is_hidden = SECRETS.contains(&name.as_str()) && is_set;
        let shown = |value: &Value| match (name.as_str(), value) {
            ("database_url", Value::String(url)) if !url.is_empty() => Value::String(without_password(url)),
            _ => value.clone(),
        };
        let value = value.filter(|_| !is_hidden).map(shown);
        Setting { value, set_by: self.set_by.get(&name).cloned(), name }
    }

    fn lay_file(&mut self, text: &str, origin: &str) -> Result<(), ConfigRefused> {
        let over: Table = text.parse().map_err(|error: toml::de::Error| syntax(&error, text, origin))?;
        for name in SECRETS {
            if over.get(name).is_some_and(|key| key.as_str() != Some("")) {
                return refused(format!(
                    "{origin}: {name} does not belong into a settings file: use {name}_file, or COUNTERSIGN_{} in the environment",
                    name.to_uppercase()
                ));
            }
        }
        lay_table(&mut self.table, over, origin, "", &mut self.set_by)
    }

    /// Sets `setting` (`limits__connections` for a key of a section) from a text, read as what the default is.
    fn lay_text(&mut self, setting: &str, text: &str, origin: &str) -> Result<(), ConfigRefused> {
        let name = setting.replace("__", ".");
        // Not as what is there by now: an empty list of the file's does not say what belongs into it.
        let mut shipped = defaults();
        let (Some(known), Some(slot)) = (slot(&mut shipped, setting), slot(&mut self.table, setting)) else {
            return refused(unknown(origin, &name));
        };
        *slot = read_as(known, text, origin)?;
        self.set_by.insert(name, origin.to_owned());
        Ok(())
    }
}

/// Where the value of a setting is, of `limits__connections` in its section.
fn slot<'t>(table: &'t mut Table, setting: &str) -> Option<&'t mut Value> {
    match setting.split_once("__") {
        Some((section, inner)) => table.get_mut(section)?.as_table_mut()?.get_mut(inner),
        None => table.get_mut(setting),
    }
}

/// Whether it is one of the variables that Kubernetes gives every container for a Service whose name begins with ours (`countersign`,
/// `countersign-operator`), and no setting: `COUNTERSIGN_OPERATOR_SERVICE_HOST`, `COUNTERSIGN_SERVICE_PORT_HTTP`,
/// `COUNTERSIGN_PORT=tcp://10.0.0.1:8080`, `COUNTERSIGN_PORT_8080_TCP_ADDR`.
fn is_link_to_a_service(setting: &str, value: &str) -> bool {
    // Each form is looked for behind the Service's name, of which what follows ours may hold any of the same words.
    let mut forms = std::iter::once(setting).chain(setting.match_indices('_').map(|(at, _)| &setting[at + 1..]));
    forms.any(|form| is_form_of_a_link(form, value))
}

fn is_form_of_a_link(form: &str, value: &str) -> bool {
    let is_address = || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    form == "SERVICE_HOST"
        || form == "SERVICE_PORT"
        || form.strip_prefix("SERVICE_PORT_").is_some_and(|port| !port.is_empty())
        || (form == "PORT" && is_address())
        || form.strip_prefix("PORT_").is_some_and(is_of_a_port)
}

/// `8080_TCP`, alone or with `_PROTO`, `_PORT` or `_ADDR` behind it.
fn is_of_a_port(rest: &str) -> bool {
    let Some((number, rest)) = rest.split_once('_') else { return false };
    let (protocol, part) = rest.split_once('_').map_or((rest, None), |(protocol, part)| (protocol, Some(part)));
    number.parse::<u16>().is_ok()
        && ["TCP", "UDP", "SCTP"].contains(&protocol)
        && part.is_none_or(|part| ["PROTO", "PORT", "ADDR"].contains(&part))
}

/// The names of all settings in the order of the file that has them.
pub(super) fn names() -> Vec<String> {
    let mut section = String::new();
    let mut names = Vec::new();
    for line in DEFAULTS.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            names.push(format!("{section}{name}"));
        }
    }
    names
}

/// Parameters of the address of a database that are shown with their values: all that the driver knows, but the password.
const SHOWN: [&str; 18] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "port",
    "sslmode",
    "sslnegotiation",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// The address of a database with PASSWORD where its password was. Up to the last `@` stands who connects: a password may hold one that was not
/// percent-encoded. Where that `@` may be one of a password in the query, nothing behind it is shown either.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return String::new() };
    let (who, after) = rest.rsplit_once('@').map_or((None, rest), |(who, after)| (Some(who), after));
    let user = rest.split([':', '@', '/', '?', '#']).next().unwrap_or_default();
    let has_query = |who: &str| who.split_once('?').is_some_and(|(_, query)| query.contains('='));
    let who = match who {
        Some(who) if has_query(who) => return format!("{scheme}://{user}:PASSWORD@..."),
        Some(who) if who == user => format!("{user}@"),
        Some(_) => format!("{user}:PASSWORD@"),
        None if !are_hosts(rest) => return format!("{scheme}://{user}:PASSWORD"),
        None => String::new(),
    };
    let (places, query) = after.split_once('?').map_or((after, None), |(places, query)| (places, Some(query)));
    let hidden = |part: &str| match part.split_once('=') {
        Some((name, _)) if !SHOWN.contains(&name) => format!("{name}=PASSWORD"),
        Some(_) | None => part.to_owned(),
    };
    let query = query.map(|query| format!("?{}", query.split('&').map(hidden).collect::<Vec<_>>().join("&")));
    format!("{scheme}://{who}{places}{}", query.unwrap_or_default())
}

/// Whether an address without `@` begins with hosts and their ports, and not with a user and a password whose host was forgotten.
fn are_hosts(rest: &str) -> bool {
    let hosts = rest.split(['/', '?']).next().unwrap_or_default();
    let is_host = |host: &str| {
        let port = host.split_once(':').filter(|_| !host.starts_with('[')).map(|(_, port)| port);
        port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    hosts.split(',').all(is_host)
}

/// Where the text is no TOML. Never the line itself: it may hold a password, or a key that does not belong there.
fn syntax(error: &toml::de::Error, text: &str, origin: &str) -> ConfigRefused {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |begun| begun.chars().count()) + 1;
    ConfigRefused(format!("{origin}: line {line}, column {column}: {}", in_words(error.message())))
}

/// What is said of a text in the place of an address to listen on.
pub(crate) const ADDRESS_WANTED: &str = "an IP address and its port are wanted, such as \"127.0.0.1:8080\"";

/// What is wanted where a number is beyond all that TOML has.
const ANY_VALUE: &str = "any valid TOML value";

/// What is wrong with a value. Of a number that is too small or too large serde says only the kind that Rust has for it.
pub(super) fn in_words(error: &str) -> String {
    let line = first_line(error);
    if line.contains("invalid socket address syntax") {
        return ADDRESS_WANTED.to_owned();
    }
    if line.contains("invalid IP address syntax") {
        return "an IP address is wanted, such as \"198.51.100.7\"".to_owned();
    }
    let kinds = line.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "));
    if let Some((found, wanted)) = kinds.filter(|(_, wanted)| *wanted != ANY_VALUE) {
        // A setting of another kind was refused before: this is inside of a list.
        return format!("each of its entries must be {}, not {}", wanted_kind(wanted), found_kind(found));
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
        ANY_VALUE => return format!("{number} is further from 0 than any number that TOML has"),
        _ => return line.to_owned(),
    };
    format!("{number} is too small or too large: a whole number from 0 to {most} is wanted")
}

/// A kind as serde names what it has found, in our words; the value itself is left out.
fn found_kind(found: &str) -> &str {
    match found.split_once(' ').map_or(found, |(first, _)| first) {
        "integer" => "a whole number",
        "floating" => "a number with a point",
        "string" => "a text",
        "boolean" => "true or false",
        "sequence" => "a list",
        "map" => "a section",
        other => other,
    }
}

/// The same of what it wants.
fn wanted_kind(wanted: &str) -> &str {
    match wanted {
        "a string" | "IP address" => "a text",
        "u16" => "a whole number",
        other => other,
    }
}

/// Refuses a settings file that everybody may read and that holds the password of the database.
fn guard_password(table: &Table, file: &Path) -> Result<(), ConfigRefused> {
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

fn lay_table(
    table: &mut Table,
    over: Table,
    origin: &str,
    path: &str,
    set_by: &mut BTreeMap<String, String>,
) -> Result<(), ConfigRefused> {
    for (name, value) in over {
        let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (table.get_mut(&name), value) {
            (None, _) => return refused(unknown(origin, &full)),
            (Some(Value::Table(inner)), Value::Table(over)) => lay_table(inner, over, origin, &full, set_by)?,
            (Some(known), value) if known.same_type(&value) => {
                *known = value;
                set_by.insert(full, origin.to_owned());
            }
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

fn unknown(origin: &str, name: &str) -> String {
    format!("{origin}: there is no setting {name}; `countersign config --shipped` prints all of them")
}
