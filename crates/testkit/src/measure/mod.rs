//! Measurements by slices: everything that is compared is up at once, takes turns in short slices, and is reported as the median of
//! the ratios within each round, since these machines move by a third from minute to minute.

use std::fmt::Write as _;

pub mod bare;
pub mod callbacks;
pub mod callers;
pub mod hmac;
pub mod load;
pub mod orders;
pub mod pace;
pub mod postgres;
pub mod query;
pub mod tls;
pub mod upgrades;

/// Median and quartiles of a list of ratios or rates.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// A quarter is below.
    pub low: f64,
    /// A quarter is above.
    pub high: f64,
}

/// Median and quartiles; all zero for an empty list.
pub fn spread(values: &[f64]) -> Spread {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |quarter: usize| sorted.get((sorted.len().saturating_sub(1)) * quarter / 4).copied().unwrap_or(0.0);
    Spread { median: at(2), low: at(1), high: at(3) }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} [{:.2}-{:.2}]", self.median, self.low, self.high)
    }
}

/// CPU time of all live threads of a process, in ns, from the scheduler's own counters.
pub fn cpu_ns(pid: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// CPU time of a process's children, those that have ended too, in ns: in steps of 10 ms.
pub fn cpu_ns_of_children(pid: u32) -> u64 {
    const TICK_NS: u64 = 10_000_000;
    let fields = |pid: &str| -> Option<Vec<u64>> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program stands in brackets and may hold anything.
        let (_, rest) = text.rsplit_once(") ")?;
        Some(rest.split(' ').skip(1).map(|field| field.parse().unwrap_or(0)).collect())
    };
    // After the state: 0 parent, 10 and 11 own time, 12 and 13 that of children that have ended.
    let ended = fields(&pid.to_string()).map_or(0, |own| own[12] + own[13]);
    let Ok(all) = std::fs::read_dir("/proc") else { return 0 };
    let names = all.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let live = names.filter(|name| name.bytes().all(|b| b.is_ascii_digit())).filter_map(|name| fields(&name));
    let live: u64 = live.filter(|of| of.first() == Some(&u64::from(pid))).map(|of| of[10] + of[11]).sum();
    (ended + live) * TICK_NS
}

/// A table in Markdown.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out
}
