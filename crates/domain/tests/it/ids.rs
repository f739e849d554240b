use countersign_domain::ids::{ORDER_ID_MAX, OrderId, SortedId, is_name, time_ordered};
use countersign_domain::time::UnixMillis;

use crate::trials::Dice;

#[test]
fn an_order_id_is_1_to_18_digits_without_leading_zero() {
    for good in ["1", "9", "10", "999999999999999999", "123456789012345678"] {
        assert_eq!(OrderId::parse(good).map(|id| id.to_string()).as_deref(), Some(good));
    }
    for bad in ["", "0", "01", "1234567890123456789", "-1", "+1", "1 ", " 1", "1.0", "1e3", "٣", "12a"] {
        assert_eq!(OrderId::parse(bad), None, "{bad:?}");
    }
    assert_eq!(OrderId::new(0), None);
    assert_eq!(OrderId::new(ORDER_ID_MAX + 1), None);
    assert_eq!(OrderId::new(ORDER_ID_MAX).map(OrderId::get), Some(ORDER_ID_MAX));
}

#[test]
fn numbers_grow_with_time_and_stay_within_18_digits_until_2085() {
    let mut dice = Dice(1);
    let mut now = UnixMillis(1_735_689_600_001);
    let mut last = 0;
    for _ in 0..1_000 {
        let number = time_ordered(now, dice.bits());
        assert!(last < number && number <= ORDER_ID_MAX);
        last = number;
        now = now.plus_ms(1 + i64::from(dice.below(1_000_000_000)));
    }
    let new_year_2085 = UnixMillis(3_629_059_200_000);
    assert!(time_ordered(new_year_2085, u64::MAX) <= ORDER_ID_MAX);
    for before in [i64::MIN, -1, 0] {
        assert_eq!(time_ordered(UnixMillis(before), 7), 7, "before 2025 there is only chance");
    }
    let last = time_ordered(UnixMillis(i64::MAX), 0);
    assert!(time_ordered(new_year_2085, u64::MAX) < last && last <= time_ordered(UnixMillis(i64::MAX), u64::MAX));
}

#[test]
fn sorted_ids_read_back_and_sort_by_creation() {
    let mut dice = Dice(2);
    let mut last = String::new();
    for ms in 1_700_000_000_000..1_700_000_001_000 {
        let chance = u128::from(dice.bits()) << 64 | u128::from(dice.bits());
        let id = SortedId::new(UnixMillis(ms), chance);
        let text = id.to_string();
        assert_eq!(text.len(), 26);
        assert!(last < text);
        assert_eq!(SortedId::parse(&text), Some(id));
        last = text;
    }
    assert_eq!(SortedId(u128::MAX).to_string(), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    assert_eq!(SortedId(0).to_string(), "00000000000000000000000000");
    for bad in [
        "",
        "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "7zzzzzzzzzzzzzzzzzzzzzzzzz",
        "7ZZZZZZZZZZZZZZZZZZZZZZZZI",
        "7ZZZZZZZZZZZZZZZZZZZZZZZZ",
    ] {
        assert_eq!(SortedId::parse(bad), None, "{bad:?}");
    }
}

#[test]
fn a_name_is_1_to_64_letters_digits_underscores_or_hyphens() {
    for good in ["a", "10002", "main_merchant-7", &"x".repeat(64)] {
        assert!(is_name(good), "{good:?}");
    }
    for bad in ["", "a b", "a.b", "ä", "a\n", &"x".repeat(65)] {
        assert!(!is_name(bad), "{bad:?}");
    }
}
