//! Decimals as they are worked out on paper: digits as written, never a number of the machine, and nothing of the product.

/// A number that is not negative, with all its digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The last digit first.
    digits: Vec<u8>,
    /// How many of them stand after the point.
    places: usize,
}

impl Figure {
    /// Reads `12` or `12.50`.
    pub fn read(text: &str) -> Self {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = whole.bytes().chain(fraction.bytes()).rev().map(|byte| {
            assert!(byte.is_ascii_digit(), "{text} is no figure");
            byte - b'0'
        });
        Self { digits: digits.collect(), places: fraction.len() }
    }

    /// Without zeros that say nothing.
    pub fn text(&self) -> String {
        let mut digits = self.digits.clone();
        digits.resize(digits.len().max(self.places + 1), 0);
        let written: String = digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect();
        let (whole, fraction) = written.split_at(written.len() - self.places);
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let whole = if whole.is_empty() { "0" } else { whole };
        if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
    }

    /// The product, every digit of it.
    #[must_use]
    pub fn times(&self, other: &Self) -> Self {
        let mut digits = vec![0; self.digits.len() + other.digits.len() + 1];
        for (i, a) in self.digits.iter().enumerate() {
            let mut carry = 0;
            for (j, b) in other.digits.iter().chain([&0]).enumerate() {
                let cell = digits[i + j] + a * b + carry;
                (digits[i + j], carry) = (cell % 10, cell / 10);
            }
        }
        Self { digits, places: self.places + other.places }
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let places = self.places.max(other.places);
        let (a, b) = (self.with_places(places), other.with_places(places));
        let mut digits = Vec::new();
        let mut carry = 0;
        for at in 0..=a.len().max(b.len()) {
            let cell = a.get(at).unwrap_or(&0) + b.get(at).unwrap_or(&0) + carry;
            digits.push(cell % 10);
            carry = cell / 10;
        }
        Self { digits, places }
    }

    /// Divided by 100: the point moves.
    #[must_use]
    pub fn hundredth(&self) -> Self {
        Self { digits: self.digits.clone(), places: self.places + 2 }
    }

    /// Rounded to `places`, a half upwards, by looking at the first digit that goes.
    #[must_use]
    pub fn rounded_half_up(&self, places: usize) -> Self {
        let Some(gone) = self.places.checked_sub(places).filter(|gone| *gone > 0) else { return self.clone() };
        let up = self.digits.get(gone - 1).is_some_and(|digit| *digit >= 5);
        let kept = Self { digits: self.digits.get(gone..).unwrap_or_default().to_vec(), places };
        if up { kept.plus(&Self { digits: vec![1], places }) } else { kept }
    }

    fn with_places(&self, places: usize) -> Vec<u8> {
        let zeros = vec![0; places - self.places];
        [zeros, self.digits.clone()].concat()
    }
}

/// The same number without zeros that say nothing.
pub fn canonical(text: &str) -> String {
    Figure::read(text).text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paper_agrees_with_sums_that_were_worked_out_by_hand() {
        let figure = Figure::read;
        for (written, plain) in [("0", "0"), ("000", "0"), ("0.50", "0.5"), ("10.00", "10"), ("7.000001", "7.000001")] {
            assert_eq!(canonical(written), plain);
        }
        assert_eq!(figure("12.5").times(&figure("0.08")).text(), "1");
        assert_eq!(figure("999").times(&figure("999")).text(), "998001");
        assert_eq!(figure("0.00000001").times(&figure("0.000001")).text(), "0.00000000000001");
        assert_eq!(figure("99.99").plus(&figure("0.011")).text(), "100.001");
        assert_eq!(figure("12.3").hundredth().text(), "0.123");
    }

    #[test]
    fn a_half_is_rounded_up_and_what_is_less_is_dropped() {
        let table = [
            ("0.0000005", "0.000001"),
            ("0.00000049", "0"),
            ("0.0000025", "0.000003"),
            ("9.9999995", "10"),
            ("0.9999994", "0.999999"),
            ("1.5", "1.5"),
            ("3", "3"),
        ];
        for (exact, rounded) in table {
            assert_eq!(Figure::read(exact).rounded_half_up(6).text(), rounded, "{exact}");
        }
    }
}
