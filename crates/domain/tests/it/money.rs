use countersign_domain::money::{
    Amount, AmountRefused, Currency, QR_MAX, TRANSACTION_MAX, TRANSACTION_MIN, TransactionRefused, transaction,
};
use rust_decimal::Decimal;

#[test]
fn amounts_are_read_exactly_or_refused() {
    use AmountRefused::{Form, TooFine, TooLarge};
    let table: &[(&str, Result<i64, AmountRefused>)] = &[
        ("0", Ok(0)),
        ("12", Ok(12_000_000)),
        ("12.5", Ok(12_500_000)),
        ("0.000001", Ok(1)),
        ("0.100000", Ok(100_000)),
        ("007", Ok(7_000_000)),
        ("9223372036854.775807", Ok(i64::MAX)),
        ("9223372036854.775808", Err(TooLarge)),
        ("99999999999999999999999999", Err(TooLarge)),
        ("0.0000001", Err(TooFine)),
        ("1.0000000", Err(TooFine)),
        ("", Err(Form)),
        (".", Err(Form)),
        (".5", Err(Form)),
        ("5.", Err(Form)),
        ("+1", Err(Form)),
        ("-1", Err(Form)),
        ("1e3", Err(Form)),
        ("1_000", Err(Form)),
        ("1,5", Err(Form)),
        (" 1", Err(Form)),
        ("1.2.3", Err(Form)),
        ("NaN", Err(Form)),
        ("١", Err(Form)),
    ];
    for (text, wanted) in table {
        assert_eq!(Amount::parse(text).map(Amount::micros), *wanted, "{text:?}");
    }
}

#[test]
fn amounts_are_written_without_trailing_zeros() {
    for (micros, text) in [
        (0, "0"),
        (1, "0.000001"),
        (100, "0.0001"),
        (500_000, "0.5"),
        (12_000_000, "12"),
        (5_000_000_000_000, "5000000"),
    ] {
        assert_eq!(Amount::from_micros(micros).to_string(), text);
    }
    assert_eq!(TRANSACTION_MIN.to_string(), "0.0001");
    assert_eq!(TRANSACTION_MAX.to_string(), "5000000");
}

#[test]
fn an_amount_comes_from_a_decimal_only_when_it_fits_exactly() {
    let decimal = |text: &str| Decimal::from_str_exact(text).expect("a number");
    assert_eq!(Amount::from_decimal(decimal("1.500000000")), Some(Amount::from_micros(1_500_000)));
    assert_eq!(Amount::from_decimal(decimal("0.0000001")), None);
    assert_eq!(Amount::from_decimal(decimal("9223372036854.775807")), Some(Amount::from_micros(i64::MAX)));
    assert_eq!(Amount::from_decimal(decimal("9223372036854.775808")), None);
    assert_eq!(Amount::from_decimal(Decimal::MAX), None);
    assert_eq!(Amount::from_micros(1_500_000).to_decimal(), decimal("1.5"));
}

#[test]
fn a_currency_is_2_to_10_capitals_or_digits() {
    for good in ["GT", "USDT", "1INCH", "ABCDEFGHIJ"] {
        assert_eq!(Currency::parse(good).as_ref().map(Currency::as_str), Some(good));
    }
    for bad in ["", "G", "usdt", "ABCDEFGHIJK", "US DT", "US-T", "ÜSD"] {
        assert_eq!(Currency::parse(bad), None, "{bad:?}");
    }
}

#[test]
fn an_amount_that_no_transaction_can_have_is_told_the_range_however_long_it_is() {
    let long = "9".repeat(40);
    for (text, max, said) in [
        ("0", TRANSACTION_MAX, "must be from 0.0001 to 5000000"),
        ("5000000.000001", TRANSACTION_MAX, "must be from 0.0001 to 5000000"),
        (&long, TRANSACTION_MAX, "must be from 0.0001 to 5000000"),
        (&long, QR_MAX, "must be from 0.0001 to 10000"),
        ("1.0000001", QR_MAX, "must have at most 6 decimal places"),
        ("-1", QR_MAX, "must be a plain number such as 12.5, without sign, exponent or blanks"),
    ] {
        assert_eq!(transaction(text, max).map_err(|refused| refused.to_string()), Err(said.to_owned()), "{text}");
    }
    assert_eq!(transaction(&long, QR_MAX), Err(TransactionRefused::Outside(QR_MAX)));
    assert_eq!(Amount::parse(&long).expect_err("too large").to_string(), "must be at most 9223372036854.775807");
    assert!(Amount::parse("9223372036854.775807").is_ok());
    assert!(Amount::parse("9223372036854.775808").is_err());
}
