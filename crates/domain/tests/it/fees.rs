use countersign_domain::fees::{Fee, FeeRefused, MarkupUnit, fee, worked_sum};
use countersign_domain::money::{Amount, Currency};
use countersign_domain::rules::Markup;
use rust_decimal::Decimal;

use crate::trials::{Dice, trials};

fn markup(r: &str, f: &str) -> Markup {
    let exact = |text| Decimal::from_str_exact(text).expect("a number");
    Markup::new(exact(r), exact(f)).expect("within bounds")
}

fn amount(text: &str) -> Amount {
    Amount::parse(text).expect("an amount")
}

#[test]
fn fees_are_rounded_half_up_once() {
    use MarkupUnit::{Fraction, Percent};
    let table = [
        ("100", "0.3", "1", Percent, "0.3"),
        ("100", "0.3", "1", Fraction, "30"),
        ("0.0001", "0.5", "0", Percent, "0.000001"), // 0.0000005 is a half: up
        ("0.0001", "0.49", "0", Percent, "0"),       // 0.00000049
        ("0.0003", "0.5", "0", Percent, "0.000002"), // 0.0000015
        ("0.0005", "0.5", "0", Percent, "0.000003"), // 0.0000025: half up, not half even
        ("0.000001", "0.5", "0", Fraction, "0.000001"),
        ("5000000", "100", "5000000", Percent, "5000000"),
        ("5000000", "100", "0", Fraction, "500000000"),
        ("5000000", "99.99999999", "0", Percent, "4999999.9995"),
        ("4999999.999999", "12.34567891", "0", Percent, "617283.9455"),
        ("12.5", "0", "0.000001", Percent, "0"),
        ("0", "100", "0", Percent, "0"),
    ];
    for (of, r, f, unit, wanted) in table {
        let got = fee(amount(of), &markup(r, f), unit);
        assert_eq!(got, Ok(Fee { r_fee: amount(wanted), f_fee: amount(f) }), "{of} at {r} {unit:?}");
    }
}

#[test]
fn an_amount_without_a_fee_is_refused_and_never_wrapped() {
    let all = markup("100", "0");
    assert_eq!(fee(Amount::from_micros(-1), &all, MarkupUnit::Percent), Err(FeeRefused::Negative));
    assert_eq!(fee(Amount::from_micros(i64::MAX), &all, MarkupUnit::Fraction), Err(FeeRefused::TooLarge));
    let whole = fee(Amount::from_micros(i64::MAX), &all, MarkupUnit::Percent);
    assert_eq!(whole.map(|fee| fee.r_fee), Ok(Amount::from_micros(i64::MAX)));
    let finest = markup("99.99999999", "0");
    assert!(fee(Amount::from_micros(i64::MAX), &finest, MarkupUnit::Percent).is_ok());
}

#[test]
fn a_worked_sum_shows_every_figure() {
    let gt = Currency::parse("GT").expect("a code");
    let text = |of, r, f, unit| worked_sum(amount(of), &gt, &markup(r, f), unit).expect("within bounds");
    assert_eq!(text("10.5", "0.3", "1", MarkupUnit::Percent), "10.5 GT x 0.3 / 100 = 0.0315 GT; plus 1 USDT fixed");
    assert_eq!(text("10.5", "0.3", "0", MarkupUnit::Fraction), "10.5 GT x 0.3 = 3.15 GT; plus 0 USDT fixed");
    assert_eq!(
        text("100.123457", "0.12345678", "0.5", MarkupUnit::Percent),
        "100.123457 GT x 0.12345678 / 100 = 0.1236091960368846 GT, rounded half up to 6 decimals: 0.123609 GT; plus 0.5 USDT fixed"
    );
}

#[test]
fn units_are_known_by_name() {
    for unit in MarkupUnit::ALL {
        assert_eq!(MarkupUnit::from_name(unit.name()), Some(unit));
    }
    assert_eq!(MarkupUnit::from_name("Percent"), None);
}

/// An independent decimal: digits as written, never a number of the machine.
mod on_paper {
    /// Without leading and trailing zeros that say nothing.
    pub fn canonical(text: &str) -> String {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let whole = if whole.is_empty() { "0" } else { whole };
        if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
    }

    /// The product of two numbers with the point moved `shift` places to the left; every digit.
    pub fn product(a: &str, b: &str, shift: usize) -> String {
        let digits = |text: &str| -> Vec<u8> { text.bytes().rev().filter(|c| *c != b'.').map(|c| c - b'0').collect() };
        let places = |text: &str| text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let (x, y) = (digits(a), digits(b));
        let mut sum = vec![0u8; x.len() + y.len() + 1];
        for (i, p) in x.iter().enumerate() {
            let mut carry = 0;
            for (j, q) in y.iter().chain([&0]).enumerate() {
                let cell = sum[i + j] + p * q + carry;
                (sum[i + j], carry) = (cell % 10, cell / 10);
            }
        }
        let point = places(a) + places(b) + shift;
        sum.resize(sum.len().max(point + 1), 0);
        let text: String = sum.iter().rev().map(|d| char::from(b'0' + d)).collect();
        let (whole, fraction) = text.split_at(text.len() - point);
        canonical(&format!("{whole}.{fraction}"))
    }

    /// Rounded to six places, a half upwards, by looking at the seventh digit.
    pub fn rounded(text: &str) -> String {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let mut kept: Vec<u8> = format!("0{whole}{fraction:0<6.6}").into_bytes();
        if fraction.as_bytes().get(6).is_some_and(|digit| *digit >= b'5') {
            let nines = kept.iter().rev().take_while(|c| **c == b'9').count();
            let end = kept.len() - nines;
            kept[end - 1] += 1;
            kept[end..].fill(b'0');
        }
        let text = String::from_utf8(kept).expect("digits");
        let (whole, fraction) = text.split_at(text.len() - 6);
        canonical(&format!("{whole}.{fraction}"))
    }
}

/// A number of 1 to `whole` digits before and 0 to `fraction` digits after the point, each length as likely.
fn number(dice: &mut Dice, whole: u32, fraction: u32) -> String {
    const DIGITS: [char; 10] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'];
    let digits = |dice: &mut Dice, count| (0..count).map(|_| dice.one_of(&DIGITS)).collect::<String>();
    let (before, after) = (1 + dice.below(whole), dice.below(fraction + 1));
    let text = digits(dice, before);
    if after == 0 { text } else { format!("{text}.{}", digits(dice, after)) }
}

#[test]
fn figures_come_out_digit_for_digit_and_fees_equal_a_sum_on_paper() {
    const TIES: [&str; 4] = ["0.5", "0.05", "2.5", "50"];
    let mut dice = Dice(20_260_102);
    let gt = Currency::parse("GT").expect("a code");
    let mut halves = 0;
    for _ in 0..trials(100_000) {
        let of = if dice.below(8) == 0 { number(&mut dice, 1, 6) } else { number(&mut dice, 6, 6) };
        let r = if dice.below(8) == 0 { dice.one_of(&TIES).to_owned() } else { number(&mut dice, 2, 8) };
        let f = number(&mut dice, 6, 6);
        let (taken, rule) = (amount(&of), markup(&r, &f));
        assert_eq!(taken.to_string(), on_paper::canonical(&of));
        assert_eq!(rule.r().to_string(), on_paper::canonical(&r));
        assert_eq!(rule.f().to_string(), on_paper::canonical(&f));

        for (unit, shift, sign) in [(MarkupUnit::Percent, 2, " / 100"), (MarkupUnit::Fraction, 0, "")] {
            let exact = on_paper::product(&of, &r, shift);
            let rounded = on_paper::rounded(&exact);
            let got = fee(taken, &rule, unit).expect("within bounds");
            assert_eq!(got.r_fee.to_string(), rounded, "{of} at {r} {unit:?}");
            assert_eq!(got.f_fee.to_string(), on_paper::canonical(&f));
            let product = if exact == rounded {
                format!("{exact} GT")
            } else {
                format!("{exact} GT, rounded half up to 6 decimals: {rounded} GT")
            };
            let sum = format!("{taken} GT x {}{sign} = {product}; plus {} USDT fixed", rule.r(), rule.f());
            assert_eq!(worked_sum(taken, &gt, &rule, unit), Ok(sum));
            let past_six = exact.split_once('.').and_then(|(_, fraction)| fraction.get(6..));
            halves += u32::from(past_six == Some("5"));
        }
    }
    assert!(halves > 0, "exact halves are among the cases");
}
