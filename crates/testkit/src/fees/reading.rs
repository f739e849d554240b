//! Statements, read as anybody would who has nothing but the files.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::value::RawValue;

use super::books::Sums;
use crate::on_paper::Figure;

/// An order of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) trade_no: String,
    pub(super) merchant_id: String,
    pub(super) paid_at: String,
    pub(super) currency: String,
    pub(super) amount: String,
    pub(super) actual_amount: String,
    pub(super) r_fee: String,
    pub(super) f_fee: String,
    pub(super) version_no: String,
    pub(super) r_markup: String,
    pub(super) f_markup: String,
    pub(super) worked_sum: String,
}

/// A whole statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) orders: Vec<Listed>,
    /// By sub-account and currency.
    pub(super) sums: BTreeMap<(String, String), Sums>,
    /// By currency.
    pub(super) totals: BTreeMap<String, Sums>,
}

/// What a row has in its columns, by name.
type Row<'a> = BTreeMap<&'a str, String>;

impl Listed {
    fn of(row: &Row<'_>) -> Result<Self> {
        let get = |name: &str| row.get(name).cloned().with_context(|| format!("no {name} in {row:?}"));
        ensure!(get("f_fee_currency")? == "USDT", "fixed parts are in USDT");
        Ok(Self {
            trade_no: get("merchantTradeNo")?,
            merchant_id: get("merchant_id")?,
            paid_at: get("paid_at")?,
            currency: get("currency")?,
            amount: get("amount")?,
            actual_amount: get("actualAmount")?,
            r_fee: get("r_fee")?,
            f_fee: get("f_fee")?,
            version_no: get("version_no")?,
            r_markup: get("r_markup")?,
            f_markup: get("f_markup")?,
            worked_sum: get("worked_sum")?,
        })
    }
}

impl Sums {
    fn read(row: &Row<'_>) -> Result<Self> {
        let figure =
            |name: &str| row.get(name).map(|text| Figure::read(text)).with_context(|| format!("no {name} in {row:?}"));
        let orders = row.get("orders").context("orders")?.parse()?;
        Ok(Self { orders, amount: figure("actualAmount")?, r_fee: figure("r_fee")?, f_fee: figure("f_fee")? }.plain())
    }
}

/// Members of an object, as they are written.
type Members<'a> = BTreeMap<&'a str, &'a RawValue>;

/// Members as texts: numbers digit for digit, null as nothing.
fn row<'a>(object: &'a RawValue) -> Result<Row<'a>> {
    let members: Members<'a> = serde_json::from_str(object.get())?;
    let text = |value: &RawValue| match value.get() {
        "null" => Ok(String::new()),
        text if text.starts_with('"') => serde_json::from_str(text),
        other => Ok(other.to_owned()),
    };
    Ok(members.into_iter().map(|(name, value)| Ok((name, text(value)?))).collect::<serde_json::Result<_>>()?)
}

/// Reads JSON lines to the last one.
pub(super) fn jsonl(file: &str) -> Result<Statement> {
    let (mut found, mut is_over) = (Statement::default(), false);
    for line in file.lines() {
        ensure!(!is_over, "nothing comes behind the totals");
        let members: Members<'_> = serde_json::from_str(line)?;
        let (kind, content) = members.first_key_value().context("a member")?;
        match *kind {
            "order" => found.orders.push(Listed::of(&row(content)?)?),
            "account" => {
                let row = row(content)?;
                found.sums.insert((row["merchant_id"].clone(), row["currency"].clone()), Sums::read(&row)?);
            }
            "totals" => {
                let totals: Members<'_> = serde_json::from_str(content.get())?;
                let currencies: Vec<&RawValue> =
                    serde_json::from_str(totals.get("currencies").context("currencies")?.get())?;
                for sums in currencies {
                    let row = row(sums)?;
                    found.totals.insert(row["currency"].clone(), Sums::read(&row)?);
                }
                let orders = totals.get("orders").context("orders")?;
                ensure!(orders.get().parse() == Ok(found.orders.len()), "as many orders as it says");
                is_over = true;
            }
            other => bail!("{other} is no line of a statement"),
        }
    }
    ensure!(is_over && file.ends_with('\n'), "a statement ends with its totals");
    Ok(found)
}

/// Reads CSV to the last record.
pub(super) fn csv(file: &str) -> Result<Statement> {
    let mut records = records(file)?.into_iter();
    let head = records.next().context("a head")?;
    let (mut found, mut is_over) = (Statement::default(), false);
    for record in records {
        ensure!(
            !is_over && record.len() == head.len(),
            "{record:?} is as wide as the head, and nothing comes behind the end"
        );
        let row: Row<'_> = head.iter().map(String::as_str).zip(record.iter().map(|field| unguarded(field))).collect();
        match row["record"].as_str() {
            "order" => found.orders.push(Listed::of(&row)?),
            "account" => {
                found.sums.insert((row["merchant_id"].clone(), row["currency"].clone()), Sums::read(&row)?);
            }
            "currency" => {
                found.totals.insert(row["currency"].clone(), Sums::read(&row)?);
            }
            "complete" | "incomplete" => {
                ensure!(row["orders"].parse() == Ok(found.orders.len()), "as many orders as it says");
                is_over = true;
            }
            other => bail!("{other} is no record of a statement"),
        }
    }
    ensure!(is_over && file.ends_with("\r\n"), "a statement ends with its last record");
    Ok(found)
}

/// A text without what keeps a spreadsheet from running it.
fn unguarded(field: &str) -> String {
    field.strip_prefix('\'').unwrap_or(field).to_owned()
}

/// The records of a file, RFC 4180.
fn records(file: &str) -> Result<Vec<Vec<String>>> {
    let (mut all, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut signs = file.chars().peekable();
    let mut is_quoted = false;
    while let Some(sign) = signs.next() {
        match sign {
            '"' if is_quoted && signs.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => is_quoted = !is_quoted,
            sign if is_quoted => field.push(sign),
            ',' => record.push(std::mem::take(&mut field)),
            '\r' => {
                ensure!(signs.next() == Some('\n'), "lines end with CR LF");
                record.push(std::mem::take(&mut field));
                all.push(std::mem::take(&mut record));
            }
            '\n' => bail!("lines end with CR LF"),
            sign => field.push(sign),
        }
    }
    ensure!(!is_quoted && field.is_empty() && record.is_empty(), "the file ends within a record");
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_with_their_quotes() {
        let read = records("a,\"b,\"\"c\"\"\r\n\",\r\n,,\r\n").expect("is read");
        assert_eq!(read, [vec!["a", "b,\"c\"\r\n", ""], vec!["", "", ""]]);
        for broken in ["a,b", "a\nb\r\n", "\"a\r\n", "a\rb"] {
            assert!(records(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn what_broke_off_is_no_statement() {
        assert!(jsonl("").is_err() && jsonl("{\"totals\":{\"orders\":1,\"currencies\":[]}}\n").is_err());
        assert!(jsonl("{\"totals\":{\"orders\":0,\"currencies\":[]}}\n").is_ok());
        assert!(csv("record,orders\r\n").is_err() && csv("record,orders\r\ncomplete,0\r\n").is_ok());
    }
}
