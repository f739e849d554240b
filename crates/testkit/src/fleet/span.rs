//! Spans of time that a run has measured: printed, and asserted nowhere but against a bound.

use std::fmt;
use std::time::Duration;

/// Spans, in the order of measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<Duration>);

impl Spans {
    /// One more.
    pub fn add(&mut self, span: Duration) {
        self.0.push(span);
    }

    /// The longest; nothing where there is none.
    pub fn slowest(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

impl fmt::Display for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        write!(f, "median {} ms, slowest {} ms", median.as_millis(), self.slowest().as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_slowest_are_told() {
        let mut spans = Spans::default();
        assert_eq!(spans.to_string(), "median 0 ms, slowest 0 ms");
        for ms in [900, 10, 30] {
            spans.add(Duration::from_millis(ms));
        }
        assert_eq!(spans.to_string(), "median 30 ms, slowest 900 ms");
    }
}
