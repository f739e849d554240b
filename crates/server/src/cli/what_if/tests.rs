use super::*;

/// A report of these days: day, currency, old and new of both parts.
fn report(sub: &str, days: &[(&str, &str, [&str; 4])]) -> Report {
    let days: Vec<String> = days
        .iter()
        .map(|(day, coin, [old_r, new_r, old_f, new_f])| {
            format!(
                r#"{{"day":"{day}","currency":"{coin}","orders":1,"old":{{"r_fee":"{old_r}","f_fee":"{old_f}"}},"new":{{"r_fee":"{new_r}","f_fee":"{new_f}"}}}}"#
            )
        })
        .collect();
    let text = format!(
        r#"{{"sub_merchant_id":"{sub}","r_markup":0.35,"f_markup":1,"from":null,"to":"2026-02-01T00:00:00.000Z","time_zone":"UTC",
        "orders":{},"f_fee":{{"old":"0","new":"0","difference":"0"}},"currencies":[],"days":[{}]}}"#,
        days.len(),
        days.join(",")
    );
    Report::read(&text).expect("a report")
}

fn drawn(report: &Report) -> String {
    picture::svg(report).expect("is drawn")
}

#[test]
fn a_picture_has_a_panel_for_each_currency_and_one_for_the_fixed_parts() {
    let few = [("2026-01-01", "GT", ["1", "2", "0", "1"]), ("2026-01-03", "USDT", ["3", "4", "5", "1"])];
    let picture = drawn(&report("corner-shop", &few));
    for words in [
        "corner-shop",
        "r_fee of orders in GT",
        "r_fee of orders in USDT",
        "f_fee of all orders",
        "USDT a day",
        "2026-01-02",
    ] {
        assert!(picture.contains(words), "{words} in {picture}");
    }
    assert_eq!(picture.matches("<rect").count(), 1 + 2 + 2 * 4, "paper, legend, bars: two a day and panel");
    let none = drawn(&report("corner-shop", &[]));
    assert!(none.contains("no orders were paid") && none.ends_with("</svg>\n"), "{none}");
}

#[test]
fn many_days_are_lines_that_fall_to_zero_where_there_were_no_orders() {
    let far = [("2025-01-01", "GT", ["1", "2", "0", "1"]), ("2026-02-04", "GT", ["3", "4", "5", "1"])];
    let picture = drawn(&report("s", &far));
    let lines: Vec<&str> = picture.lines().filter(|line| line.starts_with("<polyline")).collect();
    assert_eq!(lines.len(), 4, "old and new in two panels");
    assert_eq!(
        lines[0].split("points=").nth(1).expect("points").matches(',').count(),
        4,
        "two days, and beside each one at zero"
    );
}

#[test]
fn a_report_is_read_aloud_with_its_figures() {
    let order = r#"{"prepayId":"77","merchantTradeNo":"T-1","paid_at":"x","actualAmount":"1","by":"0.5","old":{"r_fee":"0","f_fee":"0"},
        "new":{"r_fee":"1","f_fee":"1"},"worked_sum":"1 GT x 100 / 100 = 1 GT; plus 1 USDT fixed"}"#;
    let change = r#"{"old":"1","new":"3","difference":"2"}"#;
    let text = format!(
        r#"{{"sub_merchant_id":"s","r_markup":100,"f_markup":1,"from":"2026-01-01T00:00:00.000Z","to":"2026-02-01T00:00:00.000Z","time_zone":"UTC",
        "orders":9,"f_fee":{change},"currencies":[{{"currency":"GT","orders":9,"amount":"12","r_fee":{change},"f_fee":{change},
        "more":4,"less":3,"same":2,"mixed":1,"at_loss":{{"orders":5,"before":1,"not_comparable":6,"worst":[{order}]}},
        "movers":{{"r_up":[{order}],"r_down":[],"f_up":[],"f_down":[]}}}}],"days":[]}}"#
    );
    let words = Report::read(&text).expect("a report").in_words();
    for part in [
        "r_markup 100, f_markup 1 USDT tried on 9 paid orders of s, from 2026-01-01T00:00:00.000Z up to 2026-02-01T00:00:00.000Z.",
        "Nothing was changed.",
        "GT: 5 orders at a loss",
        "1 are so already",
        "of 6 orders nobody can say so",
        "GT, r_fee most up:",
        "1 GT x 100 / 100 = 1 GT; plus 1 USDT fixed",
    ] {
        assert!(words.contains(part), "{part} in {words}");
    }
    assert!(!words.contains("most down") && !words.contains("f_fee (USDT), most"), "{words}");
    let none =
        Report::read(&text.replace("\"orders\":9,\"f_fee\"", "\"orders\":0,\"f_fee\"")).expect("a report").in_words();
    assert!(none.ends_with("Nothing was changed.\n"), "{none}");
}

#[test]
fn a_picture_is_an_svg_by_its_name() {
    assert!(svg("a/b.svg").is_ok() && svg("B.SVG").is_ok());
    for name in ["a.png", "a", "svg", ".svg"] {
        assert!(svg(name).is_err(), "{name}");
    }
}

#[test]
fn a_picture_of_last_time_gives_way_to_a_whole_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a.svg"), "old").expect("is written");
    std::fs::hard_link(path("a.svg"), path("b.svg")).expect("is linked");
    let report = report("s", &[]);
    draw(&report, &path("a.svg")).expect("is drawn");
    assert_eq!(std::fs::read_to_string(path("a.svg")).expect("is read"), drawn(&report));
    assert_eq!(std::fs::read_to_string(path("b.svg")).expect("is read"), "old", "it is not written over");
    assert_eq!(std::fs::read_dir(folder.path()).expect("is read").count(), 2, "nothing is left beside them");
}
