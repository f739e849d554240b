use countersign_domain::fees::{Fee, MarkupUnit, fee};
use countersign_domain::money::{Amount, Currency, Total};
use countersign_domain::payment_order::PrepayId;
use countersign_domain::rules::Markup;
use countersign_domain::time::{RuleZone, UnixMillis};
use countersign_domain::what_if::{
    CURRENCIES_MAX, DAYS_MAX, InCurrency, NAMED_MAX, Paid, Tally, Top, Turns, WhatIf, WhatIfRefused,
};
use rust_decimal::Decimal;

use crate::trials::{Dice, trials};

const DAY_MS: i64 = 86_400_000;

fn markup(r: &str, f: &str) -> Markup {
    let exact = |text| Decimal::from_str_exact(text).expect("a number");
    Markup::new(exact(r), exact(f)).expect("within bounds")
}

fn amount(text: &str) -> Amount {
    Amount::parse(text).expect("an amount")
}

fn coin(text: &str) -> Currency {
    Currency::parse(text).expect("a code")
}

/// An order by number: what was paid in which coin at which instant, and its two fees then.
struct Was(i64, &'static str, &'static str, i64, (&'static str, &'static str));

fn tried(r: &str, f: &str, orders: &[Was]) -> WhatIf {
    let mut what_if = WhatIf::new(markup(r, f), MarkupUnit::Percent, RuleZone::utc());
    for Was(number, of, currency, at, (r_fee, f_fee)) in orders {
        let paid = Paid {
            prepay_id: PrepayId::new(*number, 0),
            trade_no: "T",
            currency: &coin(currency),
            amount: amount(of),
            paid_at: UnixMillis(*at),
            fee: Some(Fee { r_fee: amount(r_fee), f_fee: amount(f_fee) }),
        };
        what_if.add(&paid).expect("it is priced");
    }
    what_if
}

fn of<'w>(what_if: &'w WhatIf, currency: &str) -> &'w InCurrency {
    &what_if.currencies()[&coin(currency)]
}

fn named(top: &Top) -> Vec<(String, i64)> {
    top.orders().iter().map(|(measure, order)| (measure.to_string(), order.prepay_id.number())).collect()
}

#[test]
fn a_total_is_exact_far_beyond_an_amount_and_below_zero() {
    let mut total = Total::ZERO;
    for _ in 0..3 {
        total += Amount::from_micros(i64::MAX);
    }
    assert_eq!(total.to_string(), "27670116110564.327421");
    assert_eq!((Total::ZERO - total).to_string(), "-27670116110564.327421");
    for (micros, text) in [(0, "0"), (1, "0.000001"), (-1, "-0.000001"), (1_500_000, "1.5"), (-20_000_000, "-20")] {
        assert_eq!(Total::from(Amount::from_micros(micros)).to_string(), text);
    }
}

#[test]
fn old_and_new_are_added_up_by_currency_and_by_day() {
    let what_if = tried(
        "1",
        "0.5",
        &[
            Was(1, "100", "GT", 0, ("0.3", "1")),
            Was(2, "100", "USDT", DAY_MS - 1, ("2", "0")),
            Was(3, "0.00005", "GT", DAY_MS, ("0", "0")),
        ],
    );
    assert_eq!(what_if.orders(), 3);
    let Tally { orders, amount, old, new } = of(&what_if, "GT").tally;
    let said = [amount, old.r, old.f, new.r, new.f].map(|total| total.to_string());
    assert_eq!((orders, said), (2, ["100.00005", "0.3", "1", "1.000001", "1"].map(str::to_owned)));
    let days: Vec<String> = what_if
        .days()
        .iter()
        .flat_map(|(day, of)| {
            of.iter().map(move |(coin, t)| format!("{day} {} {} {}", coin.as_str(), t.old.r, t.new.r))
        })
        .collect();
    assert_eq!(days, ["1970-01-01 GT 0.3 1", "1970-01-01 USDT 2 1", "1970-01-02 GT 0 0.000001"]);
}

#[test]
fn what_moves_most_is_named_each_part_and_way_by_itself_and_of_equals_the_earlier() {
    let mut orders: Vec<Was> = (1..=14).map(|number| Was(number, "100", "GT", number, ("0", "0"))).collect();
    orders.push(Was(20, "200", "GT", 20, ("0", "9")));
    orders.push(Was(21, "300", "GT", 21, ("5", "1")));
    orders.push(Was(22, "100", "GT", 22, ("1", "1")));
    let what_if = tried("1", "1", &orders);
    let movers = &of(&what_if, "GT").movers;
    let mut expected = vec![("2".to_owned(), 20)];
    expected.extend((1..=9).map(|number| ("1".to_owned(), number)));
    assert_eq!((named(&movers.r_up), expected.len()), (expected, NAMED_MAX));
    assert_eq!(named(&movers.r_down), [("2".to_owned(), 21)]);
    assert_eq!(named(&movers.f_up), (1..=10).map(|number| ("1".to_owned(), number)).collect::<Vec<_>>());
    assert_eq!(named(&movers.f_down), [("8".to_owned(), 20)]);
    let sum = what_if.worked_sum(&movers.r_up.orders()[0].1, &coin("GT")).expect("within bounds");
    assert_eq!(sum, "200 GT x 1 / 100 = 2 GT; plus 1 USDT fixed");
}

#[test]
fn an_order_that_brings_more_of_one_coin_and_less_of_another_is_mixed() {
    let turns = |currency| {
        let what_if = tried(
            "1",
            "1",
            &[
                Was(1, "100", currency, 0, ("1", "1")),
                Was(2, "100", currency, 0, ("0.5", "1")),
                Was(3, "100", currency, 0, ("2", "1")),
                Was(4, "100", currency, 0, ("0", "5")),
                Was(5, "100", currency, 0, ("1.5", "0.5")),
            ],
        );
        of(&what_if, currency).turns
    };
    assert_eq!(turns("GT"), Turns { more: 1, less: 1, same: 1, mixed: 2 });
    assert_eq!(turns("USDT"), Turns { more: 1, less: 2, same: 2, mixed: 0 }, "USDT and USDT can be added up");
}

#[test]
fn an_order_at_loss_is_one_whose_fee_takes_it_all() {
    let orders = |currency| {
        [
            Was(1, "0.5", currency, 0, ("0", "0")),
            Was(2, "1", currency, 0, ("0", "2")),
            Was(3, "1.010101", currency, 0, ("2", "0")),
            Was(4, "1.010102", currency, 0, ("0", "0")),
            Was(5, "50", currency, 0, ("0", "0")),
        ]
    };
    // Of the third and the fourth the percentage leaves just what the fixed part takes.
    let usdt = tried("99", "0.010101", &orders("USDT"));
    let losses = &of(&usdt, "USDT").losses;
    assert_eq!((losses.orders, losses.before, losses.not_comparable), (4, 2, 0));
    assert_eq!(
        named(&losses.worst),
        [("0.005101".to_owned(), 1), ("0.000101".to_owned(), 2), ("0".to_owned(), 3), ("0".to_owned(), 4)]
    );
    let gt = tried("99", "0.010101", &orders("GT"));
    let losses = &of(&gt, "GT").losses;
    assert_eq!((losses.orders, losses.before, losses.not_comparable), (0, 1, 5), "USDT says nothing about GT");
    let all = tried("100", "3", &orders("GT"));
    let losses = &of(&all, "GT").losses;
    assert_eq!((losses.orders, losses.not_comparable), (5, 0), "what the percentage takes needs no rate");
    let free = tried("0", "0", &orders("GT"));
    assert_eq!((of(&free, "GT").losses.orders, of(&free, "GT").losses.not_comparable), (0, 0));
}

#[test]
fn what_a_what_if_keeps_has_a_bound() {
    let paid = |currency: &Currency, at: i64, what_if: &mut WhatIf| {
        let (prepay_id, amount) = (PrepayId::new(1, 0), Amount::from_micros(1_000_000));
        what_if.add(&Paid { prepay_id, trade_no: "T", currency, amount, paid_at: UnixMillis(at), fee: None })
    };
    let fresh = || WhatIf::new(markup("1", "1"), MarkupUnit::Percent, RuleZone::utc());
    let mut what_if = fresh();
    for number in 0..CURRENCIES_MAX {
        paid(&coin(&format!("C{number}")), 0, &mut what_if).expect("it is one of so many");
    }
    assert_eq!(paid(&coin("LAST"), 0, &mut what_if), Err(WhatIfRefused::Currencies));
    paid(&coin("C0"), 0, &mut what_if).expect("a known one is counted");
    let mut what_if = fresh();
    for day in 0..i64::try_from(DAYS_MAX).expect("small") {
        paid(&coin("GT"), day * DAY_MS, &mut what_if).expect("it is one of so many");
    }
    assert_eq!(paid(&coin("GT"), i64::MAX / 2, &mut what_if), Err(WhatIfRefused::Days));
    paid(&coin("GT"), 5, &mut what_if).expect("a known one is counted");
    let mut what_if = fresh();
    let (prepay_id, currency) = (PrepayId::new(1, 0), coin("GT"));
    let (amount, paid_at) = (Amount::from_micros(-1), UnixMillis(0));
    let order = Paid { prepay_id, trade_no: "T", currency: &currency, amount, paid_at, fee: None };
    assert!(matches!(what_if.add(&order), Err(WhatIfRefused::Fee(of, _)) if of == prepay_id));
    assert_eq!(what_if.orders(), 0);
}

#[test]
fn sums_are_those_of_the_orders_one_by_one() {
    let mut dice = Dice(7);
    for _ in 0..trials(50) {
        let rule = markup(&Decimal::new(i64::from(dice.below(100_000_000)), 7).to_string(), "0.25");
        let mut what_if = WhatIf::new(rule, MarkupUnit::Percent, RuleZone::utc());
        let (mut expected, gt) = (0i128, coin("GT"));
        for number in 1..=200 {
            let amount = Amount::from_micros(1 + i64::from(dice.below(u32::MAX)) * 1_000);
            let (prepay_id, paid_at) = (PrepayId::new(number, 0), UnixMillis(i64::from(dice.below(40)) * DAY_MS));
            what_if
                .add(&Paid { prepay_id, trade_no: "T", currency: &gt, amount, paid_at, fee: None })
                .expect("is priced");
            expected += i128::from(fee(amount, &rule, MarkupUnit::Percent).expect("within bounds").r_fee.micros());
        }
        assert_eq!(of(&what_if, "GT").tally.new.r.micros(), expected);
        let by_day: i128 = what_if.days().values().map(|of| of[&gt].new.r.micros()).sum();
        assert_eq!(by_day, expected);
    }
}
