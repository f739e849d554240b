//! Measurements by slices: everything that is compared is up at once, takes turns in short slices, and is reported as the median of
//! the ratios within each round, since these machines move by a third from minute to minute.

use std::fmt::Write as _;

pub mod bare;
pub mod hmac;
pub mod load;
pub mod query;
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

/// A table in Markdown.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out
}
