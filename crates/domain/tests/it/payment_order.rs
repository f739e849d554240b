//! Payment orders: numbers, limits, the machine, the fee that is fixed.

use countersign_domain::fees::{MarkupUnit, fix};
use countersign_domain::ids::SortedId;
use countersign_domain::money::{Amount, Currency, QR_MAX, TRANSACTION_MAX, transaction};
use countersign_domain::payment_order::{
    Content, ExpiryRefused, LIFE_MS_DEFAULT, LIFE_MS_MAX, Mover, PaymentKind, PaymentOrder, PaymentStatus, PrepayId,
    Step, advance, expiry, is_trade_no,
};
use countersign_domain::rules::{Markup, RuleVersion};
use countersign_domain::time::UnixMillis;

const NOW: UnixMillis = UnixMillis(1_767_312_000_000);

fn order(status: PaymentStatus) -> PaymentOrder {
    let content = Content {
        kind: PaymentKind::Order,
        currency: Currency::parse("GT").expect("a code"),
        amount: Amount::parse("10.5").expect("an amount"),
        merchant_user_id: None,
        channel_id: None,
        goods_name: None,
        goods_detail: None,
    };
    PaymentOrder {
        prepay_id: PrepayId::new(7, 42),
        trade_no: "T-7".to_owned(),
        content,
        terminal_type: None,
        return_url: None,
        cancel_url: None,
        status,
        created_at: NOW,
        expires_at: NOW.plus_ms(LIFE_MS_DEFAULT),
        actual_amount: None,
        transact_at: None,
        paid_at: None,
        fee: None,
        revision: 1,
    }
}

const fn to(to: PaymentStatus) -> Step {
    Step { to, actual_amount: None, transact_at: None }
}

#[test]
fn a_public_number_is_read_as_it_is_written_and_in_no_other_way() {
    let id = PrepayId::new(31_000_000_000_000_000, 1_000_042);
    assert_eq!((id.to_string().as_str(), id.tail()), ("31000000000000000000042", 42));
    assert_eq!(PrepayId::parse("31000000000000000000042"), Some(id));
    for text in [
        "",
        "42",
        "000042",
        "0000042",
        "+1000042",
        "1 000042",
        "1000042 ",
        "\u{661}000042",
        &"9".repeat(25),
        &"9".repeat(26),
    ] {
        assert_eq!(PrepayId::parse(text), None, "{text}");
    }
    assert_eq!(PrepayId::parse("1000042").map(PrepayId::number), Some(1));
    assert!(id < id.next() && id.next().tail() == 43);
    let last = PrepayId::from_parts(1, 999_999).expect("a number");
    assert_eq!(last.next(), PrepayId::from_parts(2, 0).expect("a number"), "there is nothing between");
    assert_eq!(PrepayId::from_parts(1, 1_000_000).or(PrepayId::from_parts(0, 1)), None);
}

#[test]
fn trade_numbers_are_plain_and_not_too_long() {
    for text in ["a", "A-Z_09", &"x".repeat(100)] {
        assert!(is_trade_no(text), "{text}");
    }
    for text in ["", " ", "a.b", "a b", "\u{e9}", &"x".repeat(101)] {
        assert!(!is_trade_no(text), "{text}");
    }
}

#[test]
fn amounts_have_their_limits_exactly() {
    for (text, max, fits) in [
        ("0.0001", TRANSACTION_MAX, true),
        ("0.000099", TRANSACTION_MAX, false),
        ("5000000", TRANSACTION_MAX, true),
        ("5000000.000001", TRANSACTION_MAX, false),
        ("10000", QR_MAX, true),
        ("10000.000001", QR_MAX, false),
        ("1.0000000", TRANSACTION_MAX, false),
    ] {
        assert_eq!(transaction(text, max).is_ok(), fits, "{text}");
    }
    let refused = transaction("6000000", TRANSACTION_MAX).expect_err("too much").to_string();
    assert_eq!(refused, "must be from 0.0001 to 5000000");
}

#[test]
fn each_mover_has_its_moves_and_no_other() {
    use PaymentStatus::{Closed, Expired, Paid, Pending, Process};
    let late = NOW.plus_ms(LIFE_MS_DEFAULT);
    for from in PaymentStatus::ALL {
        for next in PaymentStatus::ALL {
            let early = [(Pending, Process), (Pending, Paid), (Pending, Closed), (Process, Paid), (Process, Closed)];
            let may = |mover, now| advance(&order(from), mover, to(next), now).is_ok();
            assert_eq!(may(Mover::BackEnd, late.plus_ms(-1)), early.contains(&(from, next)), "{from:?} {next:?}");
            let after = [(Process, Paid), (Process, Closed)];
            assert_eq!(may(Mover::BackEnd, late), after.contains(&(from, next)), "late {from:?} {next:?}");
            for now in [NOW, late] {
                assert_eq!(may(Mover::BackEndOfRestored, now), early.contains(&(from, next)), "{from:?} {next:?}");
            }
            assert_eq!(may(Mover::Merchant, NOW), (from, next) == (Pending, Closed), "{from:?} {next:?}");
            assert!(!may(Mover::Merchant, late), "{from:?} {next:?}");
            assert!(!may(Mover::Time, late.plus_ms(-1)), "{from:?} {next:?}");
            assert_eq!(may(Mover::Time, late), (from, next) == (Pending, Expired), "{from:?} {next:?}");
        }
    }
}

#[test]
fn only_what_is_pending_expires_and_at_its_exact_instant() {
    let late = NOW.plus_ms(LIFE_MS_DEFAULT);
    for status in PaymentStatus::ALL {
        assert_eq!(order(status).status_at(late.plus_ms(-1)), status);
        let then = if status == PaymentStatus::Pending { PaymentStatus::Expired } else { status };
        assert_eq!(order(status).status_at(late), then);
    }
}

#[test]
fn what_is_paid_keeps_what_was_said_before_and_else_what_was_asked_for() {
    let pending = order(PaymentStatus::Pending);
    let paid = advance(&pending, Mover::BackEnd, to(PaymentStatus::Paid), NOW).expect("it may");
    assert_eq!(
        (paid.actual_amount, paid.transact_at, paid.paid_at),
        (Some(pending.content.amount), Some(NOW), Some(NOW))
    );
    assert_eq!(paid.revision, 2);
    let (less, then) = (Amount::parse("10.4"), UnixMillis(7));
    let step = Step { to: PaymentStatus::Process, actual_amount: less.ok(), transact_at: Some(then) };
    let process = advance(&pending, Mover::BackEnd, step, NOW).expect("it may");
    let paid = advance(&process, Mover::BackEnd, to(PaymentStatus::Paid), NOW).expect("it may");
    assert_eq!((paid.actual_amount, paid.transact_at, paid.paid_at), (less.ok(), Some(then), Some(NOW)));
    let closed = advance(&pending, Mover::Merchant, to(PaymentStatus::Closed), NOW).expect("it may");
    assert_eq!((closed.actual_amount, closed.transact_at, closed.paid_at), (None, None, None));
}

#[test]
fn an_expire_time_lies_ahead_and_not_too_far() {
    let ahead = |ms| Some(NOW.plus_ms(ms));
    assert_eq!(expiry(PaymentKind::Order, None, NOW), Ok(NOW.plus_ms(LIFE_MS_DEFAULT)));
    assert_eq!(expiry(PaymentKind::Order, ahead(0), NOW), Err(ExpiryRefused::Past));
    assert_eq!(expiry(PaymentKind::Order, ahead(1), NOW), Ok(NOW.plus_ms(1)));
    assert!(expiry(PaymentKind::Order, ahead(LIFE_MS_MAX), NOW).is_ok());
    assert_eq!(expiry(PaymentKind::Order, ahead(LIFE_MS_MAX + 1), NOW), Err(ExpiryRefused::TooFar(LIFE_MS_MAX)));
    assert!(expiry(PaymentKind::Native, ahead(LIFE_MS_DEFAULT), NOW).is_ok());
    assert!(expiry(PaymentKind::Native, ahead(LIFE_MS_DEFAULT + 1), NOW).is_err());
    assert!(expiry(PaymentKind::Order, Some(UnixMillis(i64::MAX)), NOW).is_err());
    let said = |kind, asked| expiry(kind, asked, NOW).expect_err("refused").to_string();
    let seconds = Some(UnixMillis(NOW.0 / 1_000 + 600));
    assert_eq!(said(PaymentKind::Order, seconds), "must be in the future, in Unix milliseconds (13 digits)");
    assert_eq!(
        said(PaymentKind::Order, ahead(LIFE_MS_MAX + 1)),
        "must be at most 30 days ahead, in Unix milliseconds (13 digits)"
    );
    assert_eq!(
        said(PaymentKind::Native, ahead(LIFE_MS_DEFAULT + 1)),
        "must be at most 1 hour ahead, in Unix milliseconds (13 digits)"
    );
}

#[test]
fn only_what_could_expire_is_told_that_it_does_so_by_itself() {
    let step = Step { to: PaymentStatus::Expired, actual_amount: None, transact_at: None };
    for (from, said) in [
        (
            PaymentStatus::Pending,
            "a payment order that is PENDING cannot become EXPIRED: orders expire by themselves, at their expireTime",
        ),
        (
            PaymentStatus::Process,
            "a payment order that is PROCESS cannot become EXPIRED: only what is PENDING expires, and by itself",
        ),
        (PaymentStatus::Paid, "a payment order that is PAID cannot become EXPIRED: that is final"),
        (PaymentStatus::Expired, "a payment order that is EXPIRED cannot become EXPIRED: it is so already"),
        (PaymentStatus::Closed, "a payment order that is CLOSED cannot become EXPIRED: that is final"),
    ] {
        let refused = advance(&order(from), Mover::BackEnd, step, NOW).expect_err("refused");
        assert_eq!(refused.to_string(), said);
    }
}

#[test]
fn a_fee_is_fixed_with_its_version_and_its_sum() {
    let gt = Currency::parse("GT").expect("a code");
    let markup = Markup::new("0.3".parse().expect("a number"), "1".parse().expect("a number")).expect("within bounds");
    let version = RuleVersion {
        version_no: 4,
        config_id: SortedId(9),
        previous: Some(SortedId(8)),
        base_version_no: Some(3),
        markup,
        effective_at: NOW,
        due_at: None,
        created_at: NOW,
    };
    let amount = Amount::parse("10.5").expect("an amount");
    let fee = fix(amount, &gt, Some(&version), MarkupUnit::Percent).expect("within bounds");
    assert_eq!(
        (fee.config_id, fee.version_no, fee.fee.r_fee.to_string()),
        (Some(SortedId(9)), Some(4), "0.0315".to_owned())
    );
    assert_eq!(fee.worked_sum, "10.5 GT x 0.3 / 100 = 0.0315 GT; plus 1 USDT fixed");
    let none = fix(amount, &gt, None, MarkupUnit::Percent).expect("within bounds");
    assert_eq!((none.config_id, none.version_no, none.markup), (None, None, Markup::NONE));
    assert_eq!((none.fee.r_fee, none.fee.f_fee), (Amount::ZERO, Amount::ZERO));
}
