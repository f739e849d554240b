use countersign_domain::conversion::{
    Direction, Given, Limits, Pair, PriceRefused, Quote, QuoteRefused, Side, Terms, WayOut, possible, price,
};
use countersign_domain::ids::OrderId;
use countersign_domain::money::{Amount, Currency, TRANSACTION_MAX, TRANSACTION_MIN};
use countersign_domain::time::UnixMillis;
use proptest::prelude::*;
use rust_decimal::Decimal;

use Direction::{SellsBase, SellsQuote};

fn code(text: &str) -> Currency {
    Currency::parse(text).expect("a code")
}

fn amount(text: &str) -> Amount {
    Amount::parse(text).expect("an amount")
}

fn rate(text: &str) -> Decimal {
    text.parse().expect("a number")
}

#[test]
fn a_pair_is_two_different_currencies_and_goes_both_ways() {
    let pair = Pair::parse("GT_USDT").expect("a pair");
    assert_eq!((pair.base.as_str(), pair.quote.as_str(), pair.to_string()), ("GT", "USDT", "GT_USDT".to_owned()));
    for text in
        ["", "GT", "_", "GT_", "_USDT", "GT_GT", "gt_USDT", "GT-USDT", "GT_USDT_BTC", "G_USDT", " GT_USDT", "GT _USDT"]
    {
        assert_eq!(Pair::parse(text), None, "{text}");
    }
    let (gt, usdt, btc) = (code("GT"), code("USDT"), code("BTC"));
    assert_eq!(pair.direction(&gt, &usdt), Some(SellsBase));
    assert_eq!(pair.direction(&usdt, &gt), Some(SellsQuote));
    for (sell, buy) in [(&gt, &gt), (&usdt, &usdt), (&btc, &usdt), (&gt, &btc)] {
        assert_eq!(pair.direction(sell, buy), None);
    }
    assert_eq!(pair.sides(SellsBase), (&gt, &usdt));
    assert_eq!(pair.sides(SellsQuote), (&usdt, &gt));
}

#[test]
fn what_is_bought_is_rounded_down_and_what_is_sold_up() {
    // Rate, way, whether the sale is given, the given amount; what comes out: sold, bought.
    let table = [
        ("22.38741462", SellsBase, true, "0.044667", "0.044667", "0.999978"),
        ("22.38741462", SellsBase, false, "1", "0.044668", "1"),
        ("22.38741462", SellsQuote, true, "1", "1", "0.044667"),
        ("22.38741462", SellsQuote, false, "0.044667", "0.999979", "0.044667"),
        ("2", SellsBase, true, "1.5", "1.5", "3"),
        ("2", SellsBase, false, "3", "1.5", "3"),
        ("3", SellsBase, false, "1", "0.333334", "1"),
        ("3", SellsQuote, true, "1", "1", "0.333333"),
        ("1", SellsBase, true, "0.0001", "0.0001", "0.0001"),
        ("1", SellsQuote, false, "5000000", "5000000", "5000000"),
    ];
    for (at, way, is_sale, fixed, sold, bought) in table {
        let given = if is_sale { Given::Sell(amount(fixed)) } else { Given::Buy(amount(fixed)) };
        let found = price(rate(at), way, &Limits::default(), given);
        assert_eq!(found, Ok((amount(sold), amount(bought))), "{at} {way:?} {given:?}");
    }
}

#[test]
fn amounts_outside_their_limits_have_no_price() {
    let none = Limits::default();
    let limits = Limits {
        base_min: Some(amount("1")),
        base_max: Some(amount("10")),
        quote_min: Some(amount("5")),
        quote_max: Some(amount("50")),
    };
    let wide = Limits { base_min: Some(Amount::ZERO), base_max: Some(amount("9000000")), ..none };
    let two = rate("2");
    let ask = |limits: &Limits, way, given| price(two, way, limits, given);
    let sell = |text| Given::Sell(amount(text));
    let buy = |text| Given::Buy(amount(text));
    assert_eq!(ask(&limits, SellsBase, sell("2.5")), Ok((amount("2.5"), amount("5"))));
    let outside = |min, max, found| PriceRefused::Outside {
        side: Side::Sell,
        min: amount(min),
        max: amount(max),
        found: amount(found),
    };
    assert_eq!(ask(&limits, SellsBase, sell("0.999999")), Err(outside("1", "10", "0.999999")));
    assert_eq!(ask(&limits, SellsBase, sell("10.000001")), Err(outside("1", "10", "10.000001")));
    let (side, min, max) = (Side::Buy, amount("5"), amount("50"));
    let computed =
        PriceRefused::ComesOutside { side, min, max, found: Some(amount("4.999998")), way_out: WayOut::More };
    assert_eq!(ask(&limits, SellsBase, sell("2.499999")), Err(computed), "what is computed has limits, too");
    assert_eq!(ask(&limits, SellsBase, buy("51")), Err(PriceRefused::Outside { side, min, max, found: amount("51") }));
    assert_eq!(ask(&limits, SellsQuote, sell("4")), Err(outside("5", "50", "4")), "the other way, the other limits");
    // What the back end allows is never more than what every transaction may be.
    assert_eq!((wide.base(), none.quote()), ((TRANSACTION_MIN, TRANSACTION_MAX), (TRANSACTION_MIN, TRANSACTION_MAX)));
    assert_eq!(ask(&wide, SellsBase, sell("0.000099")), Err(outside("0.0001", "5000000", "0.000099")));
}

/// Least and most of the base coin, and of the quote coin; an empty text is no limit.
fn limits([base_min, base_max, quote_min, quote_max]: [&str; 4]) -> Limits {
    let [base_min, base_max, quote_min, quote_max] =
        [base_min, base_max, quote_min, quote_max].map(|text| (!text.is_empty()).then(|| amount(text)));
    Limits { base_min, base_max, quote_min, quote_max }
}

const NONE: [&str; 4] = ["", "", "", ""];
const STUCK: &str = "at the present rate of this pair no amount is within the limits of both";

#[test]
fn what_a_sale_comes_to_outside_the_limits_is_told_them_and_the_way_out_if_there_is_one() {
    // Rate, limits, what is sold; from, to, what it comes to, and what to do.
    let table = [
        ("0.00001", NONE, "0.05", "0.0001", "5000000", "less than 0.000001", "sell more"),
        ("0.00001", NONE, "1", "0.0001", "5000000", "0.00001", "sell more"),
        ("0.00001", ["", "", "2", ""], "1", "2", "5000000", "0.00001", "sell more"),
        ("0.00000000001", NONE, "5000000", "0.0001", "5000000", "0.00005", STUCK),
        ("0.00001", ["", "9", "", ""], "9", "0.0001", "5000000", "0.00009", STUCK),
        ("0.00001", ["", "10", "", ""], "9", "0.0001", "5000000", "0.00009", "sell more"),
        ("2", NONE, "5000000", "0.0001", "5000000", "10000000", "sell less"),
        ("2", ["9", "", "", "17"], "9", "0.0001", "17", "18", STUCK),
        ("2", ["9", "", "", "18"], "10", "0.0001", "18", "20", "sell less"),
        // In steps of 1 it goes past what is allowed.
        ("1000000", ["", "", "100.5", "100.9"], "0.0001", "100.5", "100.9", "100", STUCK),
        ("99999999999999999999", NONE, "5000000", "0.0001", "5000000", "more than can be counted", STUCK),
    ];
    for (at, bounds, sold, min, max, comes_to, what) in table {
        let refused = price(rate(at), SellsBase, &limits(bounds), Given::Sell(amount(sold))).expect_err(sold);
        let said = format!("buyAmount: must be from {min} to {max}, and comes to {comes_to}; {what}");
        assert_eq!(told(refused), said, "{sold} at {at}");
    }
    let back = price(rate("1000000"), SellsQuote, &limits(NONE), Given::Sell(amount("1"))).expect_err("too little");
    assert!(back.to_string().ends_with("comes to 0.000001; sell more"), "{back}");
}

#[test]
fn what_a_purchase_costs_outside_the_limits_is_told_them_and_the_way_out_if_there_is_one() {
    let dust = "0.0000000000000000001";
    let table = [
        ("2", ["", "3", "", ""], "8", "0.0001", "3", "4", "buy less"),
        ("2", ["3", "", "", ""], "4", "3", "5000000", "2", "buy more"),
        ("2", ["3", "", "", "5"], "4", "3", "5000000", "2", STUCK),
        ("2", ["3", "", "", "6"], "4", "3", "5000000", "2", "buy more"),
        (dust, NONE, "1", "0.0001", "5000000", "more than can be counted", STUCK),
    ];
    for (at, bounds, bought, min, max, comes_to, what) in table {
        let refused = price(rate(at), SellsBase, &limits(bounds), Given::Buy(amount(bought))).expect_err(bought);
        let said = format!("sellAmount: must be from {min} to {max}, and comes to {comes_to}; {what}");
        assert_eq!(told(refused), said, "{bought} at {at}");
    }
}

fn told(refused: PriceRefused) -> String {
    format!("{}: {refused}", refused.field())
}

#[test]
fn what_no_rate_could_make_right_is_known_without_one() {
    let none = Limits::default();
    let limits = Limits { base_min: Some(amount("1")), quote_max: Some(amount("9")), ..none };
    let said = |limits: &Limits, way, given| possible(way, limits, given).map_err(told);
    for text in ["0", "0.000099", "5000000.000001", "9000000"] {
        let text = amount(text);
        let outside = |field| Err(format!("{field}: must be from 0.0001 to 5000000, and is {text}"));
        assert_eq!(said(&none, SellsBase, Given::Sell(text)), outside("sellAmount"));
        assert_eq!(said(&none, SellsQuote, Given::Buy(text)), outside("buyAmount"));
    }
    assert_eq!(
        said(&limits, SellsBase, Given::Sell(Amount::ZERO)),
        Err("sellAmount: must be from 1 to 5000000, and is 0".to_owned())
    );
    assert_eq!(
        said(&limits, SellsQuote, Given::Sell(amount("9000000"))),
        Err("sellAmount: must be from 0.0001 to 9, and is 9000000".to_owned())
    );
    // The limits of a pair come with its rate.
    assert_eq!(said(&limits, SellsBase, Given::Sell(amount("0.5"))), Ok(()));
}

/// A whole number of any size, in digits of a milliard, the lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Big(Vec<u64>);

const DIGIT: u64 = 1_000_000_000;

impl Big {
    fn of(mut number: u128) -> Self {
        let mut digits = Vec::new();
        while number > 0 {
            digits.push(u64::try_from(number % u128::from(DIGIT)).expect("a digit"));
            number /= u128::from(DIGIT);
        }
        Self(digits)
    }

    fn times(&self, other: &Self) -> Self {
        let mut digits = vec![0; self.0.len() + other.0.len() + 1];
        for (i, one) in self.0.iter().enumerate() {
            let mut carry = 0;
            for (j, two) in other.0.iter().enumerate() {
                let sum = digits[i + j] + one * two + carry;
                (digits[i + j], carry) = (sum % DIGIT, sum / DIGIT);
            }
            digits[i + other.0.len()] += carry;
        }
        while digits.last() == Some(&0) {
            digits.pop();
        }
        Self(digits)
    }

    fn is_most(&self, other: &Self) -> bool {
        let by_digit = || self.0.iter().rev().cmp(other.0.iter().rev());
        self.0.len().cmp(&other.0.len()).then_with(by_digit).is_le()
    }
}

fn big(amount: Amount) -> Big {
    Big::of(u128::try_from(amount.micros()).expect("not negative"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// By the definition of a quotient, in whole numbers that have no end: what is bought is the most that its price does not exceed what is
    /// sold, and what is sold is the least that pays for what is bought.
    #[test]
    fn prices_are_what_whole_numbers_without_end_say(
        mantissa in prop_oneof![1..100_u64, 1..100_000_000_000_u64, 1..=u64::MAX],
        scale in 0..20_u32,
        micros in prop_oneof![100..100_000_i64, 100..=5_000_000_000_000_i64],
        sells_base: bool,
        gives_sale: bool,
    ) {
        let rate = Decimal::from_i128_with_scale(i128::from(mantissa), scale);
        let way = if sells_base { SellsBase } else { SellsQuote };
        let fixed = Amount::from_micros(micros);
        let given = if gives_sale {
            Given::Sell(fixed)
        } else {
            Given::Buy(fixed)
        };
        let Ok((sold, bought)) = price(rate, way, &Limits::default(), given) else { return Ok(()) };
        prop_assert_eq!(if gives_sale { sold } else { bought }, fixed);
        let (base_micros, unit) = (Big::of(u128::from(mantissa)), Big::of(10_u128.pow(scale)));
        // Worth of a sale, and price of a purchase, in the same unit.
        let worth = |sold: Amount| if sells_base { big(sold).times(&base_micros) } else { big(sold).times(&unit) };
        let costs = |bought: Amount| if sells_base { big(bought).times(&unit) } else { big(bought).times(&base_micros) };
        prop_assert!(costs(bought).is_most(&worth(sold)), "nobody gets more than the rate says");
        let (more, less) = (Amount::from_micros(bought.micros() + 1), Amount::from_micros(sold.micros() - 1));
        if gives_sale {
            prop_assert!(!costs(more).is_most(&worth(sold)), "not a millionth less than that, either");
        } else {
            prop_assert!(!costs(bought).is_most(&worth(less)), "nor is a millionth more taken");
        }
    }

    /// Every amount is tried: whoever is told to give more, or less, finds one that has a price; whoever is told that there is none finds none.
    #[test]
    fn the_way_out_of_a_refusal_is_one(
        mantissa in 1..400_u64,
        scale in 0..4_u32,
        sold in (100..160_i64, 0..40_i64),
        bought in (100..160_i64, 0..40_i64),
        at in 0..40_i64,
        gives_sale: bool,
        sells_base: bool,
    ) {
        let rate = Decimal::from_i128_with_scale(i128::from(mantissa), scale);
        let way = if sells_base { SellsBase } else { SellsQuote };
        let range = |(least, more): (i64, i64)| (Amount::from_micros(least), Amount::from_micros(least + more));
        let ((base_min, base_max), (quote_min, quote_max)) =
            if sells_base { (range(sold), range(bought)) } else { (range(bought), range(sold)) };
        let limits = Limits {
            base_min: Some(base_min), base_max: Some(base_max), quote_min: Some(quote_min), quote_max: Some(quote_max),
        };
        let (least, more) = if gives_sale { sold } else { bought };
        let given = |micros| if gives_sale { Given::Sell(Amount::from_micros(micros)) } else { Given::Buy(Amount::from_micros(micros)) };
        let here = least + at.min(more);
        let Err(PriceRefused::ComesOutside { way_out, .. }) = price(rate, way, &limits, given(here)) else { return Ok(()) };
        let good = |from: i64, to: i64| (from..=to).any(|micros| price(rate, way, &limits, given(micros)).is_ok());
        let (below, above) = (good(least, here - 1), good(here + 1, least + more));
        let found = match (below, above) {
            (false, false) => WayOut::None,
            (true, false) => WayOut::Less,
            (false, true) => WayOut::More,
            (true, true) => return Err(TestCaseError::fail("amounts that have a price stand together")),
        };
        prop_assert_eq!(way_out, found);
    }
}

fn quote() -> Quote {
    Quote {
        quote_id: "PAY-0a1b2c3d".to_owned(),
        pair: Pair::parse("GT_USDT").expect("a pair"),
        sell_currency: code("GT"),
        buy_currency: code("USDT"),
        sell_amount: amount("1"),
        buy_amount: amount("22.387414"),
        rate: rate("22.38741462"),
        created_at: UnixMillis(1_000),
        expires_at: UnixMillis(31_000),
        order: None,
    }
}

#[test]
fn a_quote_is_good_once_until_its_instant_and_on_its_own_terms() {
    let terms = Terms {
        quote_id: "PAY-0a1b2c3d".to_owned(),
        sell_currency: code("GT"),
        buy_currency: code("USDT"),
        sell_amount: amount("1.0"),
        buy_amount: amount("22.387414"),
    };
    let quote = quote();
    assert_eq!(quote.accepts(&terms, UnixMillis(30_999)), Ok(()));
    assert_eq!(quote.accepts(&terms, UnixMillis(31_000)), Err(QuoteRefused::Expired));
    let used = Quote { order: OrderId::new(7), ..quote.clone() };
    assert_eq!(used.accepts(&terms, UnixMillis(1_000)), Err(QuoteRefused::Expired));
    let now = UnixMillis(1_000);
    for other in
        [Terms { sell_currency: code("BTC"), ..terms.clone() }, Terms { buy_currency: code("BTC"), ..terms.clone() }]
    {
        assert_eq!(quote.accepts(&other, now), Err(QuoteRefused::Currencies));
    }
    for other in [
        Terms { sell_amount: amount("2"), ..terms.clone() },
        Terms { buy_amount: amount("22.387415"), ..terms.clone() },
    ] {
        assert_eq!(quote.accepts(&other, now), Err(QuoteRefused::Amounts));
    }
}
