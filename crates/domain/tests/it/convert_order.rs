use countersign_domain::convert_order::{ConvertOrder, ConvertStatus, MoveRefused, advance};
use countersign_domain::ids::OrderId;
use countersign_domain::money::{Amount, Currency};
use countersign_domain::time::UnixMillis;
use rust_decimal::Decimal;

fn order(status: ConvertStatus) -> ConvertOrder {
    ConvertOrder {
        order_id: OrderId::new(7).expect("in range"),
        user_id: 1,
        sell_currency: Currency::parse("USDT").expect("a code"),
        buy_currency: Currency::parse("GT").expect("a code"),
        sell_amount: Amount::from_micros(1_000_000),
        buy_amount: Amount::from_micros(2_000_000),
        status,
        rate: Decimal::new(5, 1),
        quote_id: "PAY-0a1b2c3d".to_owned(),
        created_at: UnixMillis(1),
        revision: 4,
    }
}

#[test]
fn only_a_created_order_moves_and_only_to_an_end() {
    use ConvertStatus::{Created, Failed, Success};
    let moves = [(Created, Success), (Created, Failed)];
    for from in [Created, Success, Failed] {
        for to in [Created, Success, Failed] {
            let before = order(from);
            let after = advance(&before, to);
            if moves.contains(&(from, to)) {
                assert_eq!(after, Ok(ConvertOrder { status: to, revision: 5, ..before }));
            } else {
                assert_eq!(after, Err(MoveRefused { from, to }));
            }
        }
    }
}

#[test]
fn statuses_are_1_3_and_6() {
    for number in -1..10 {
        let status = ConvertStatus::from_code(number);
        assert_eq!(status.map(ConvertStatus::code), [1, 3, 6].contains(&number).then_some(number));
    }
    for (from, to, said) in [
        (
            ConvertStatus::Success,
            ConvertStatus::Failed,
            "a convert order of status 3 cannot take status 6: 3 and 6 are final",
        ),
        (
            ConvertStatus::Created,
            ConvertStatus::Created,
            "a convert order of status 1 cannot take status 1: it has it already",
        ),
        (
            ConvertStatus::Failed,
            ConvertStatus::Failed,
            "a convert order of status 6 cannot take status 6: it has it already",
        ),
    ] {
        assert_eq!(MoveRefused { from, to }.to_string(), said);
    }
}
