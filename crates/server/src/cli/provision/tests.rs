//! Which words make which call.

use clap::Parser as _;

use super::super::{Cli, Command};
use super::*;

fn call(words: &str) -> Call {
    let cli = Cli::try_parse_from(std::iter::once("countersign").chain(words.split(' '))).expect(words);
    let call = match &cli.command {
        Command::Institution(group) => group.command.call(),
        Command::Merchant(group) => group.command.call(),
        Command::SubAccount(group) => group.command.call(),
        Command::Application(group) => group.command.call(),
        Command::Secret(group) => group.command.call(),
        Command::Token(group) => group.command.call(),
        Command::Node(group) => group.command.call(),
        Command::Delivery(group) => group.command.call(),
        Command::Event(group) => group.command.call(),
        Command::FeeRule(group) => group.command.call(),
        Command::ConvertOrder(group) => group.command.call(),
        Command::Rate(group) => group.command.call(),
        Command::PaymentOrder(group) => group.command.call(),
        other => panic!("{other:?} makes no call of the operator API"),
    };
    call.expect(words)
}

fn written(words: &str) -> String {
    let call = call(words);
    let query = call.query.iter().fold(String::new(), |query, (name, value)| query + &format!(" {name}={value}"));
    let body = call.body_bytes().map_or_else(String::new, |body| format!(" {}", String::from_utf8_lossy(&body)));
    format!("{} {}{query}{body}", call.method, call.path)
}

#[test]
fn each_command_about_identities_makes_its_call() {
    let table = [
        ("institution create --name N", r#"POST /institutions {"name":"N"}"#),
        (
            "institution create --name N --merchant-id M --base-r 0.10 --base-f 2 --json",
            r#"POST /institutions {"name":"N","merchant_id":"M","base_rate":{"r_total":0.10,"f_total":2}}"#,
        ),
        ("institution create --name N --base-r 0.5", r#"POST /institutions {"name":"N","base_rate":{"r_total":0.5}}"#),
        ("institution list --limit 5 --after 7", "GET /institutions limit=5 after=7"),
        ("institution show M", "GET /merchants/M"),
        ("institution update M --name N", r#"PATCH /merchants/M {"name":"N"}"#),
        ("institution update M --base-f 1.50", r#"PATCH /merchants/M {"base_rate":{"f_total":1.50}}"#),
        ("merchant create --name N --user-id 7", r#"POST /merchants {"name":"N","user_id":7}"#),
        ("merchant list", "GET /merchants"),
        ("merchant list --kind sub_account --limit 5", "GET /merchants kind=sub_account limit=5"),
        ("merchant show M", "GET /merchants/M"),
        ("merchant update M --enabled false", r#"PATCH /merchants/M {"enabled":false}"#),
        ("sub-account show S", "GET /merchants/S"),
        ("sub-account update S --name N --enabled true", r#"PATCH /merchants/S {"name":"N","enabled":true}"#),
        (
            "sub-account create M --name N --sub-merchant-id S",
            r#"POST /institutions/M/sub-accounts {"name":"N","sub_merchant_id":"S"}"#,
        ),
        ("sub-account list M", "GET /institutions/M/sub-accounts"),
        (
            "token create --name N --role viewer --life-days 7",
            r#"POST /tokens {"name":"N","role":"viewer","life_days":7}"#,
        ),
        ("token revoke T", "DELETE /tokens/T"),
        ("token list --limit 2", "GET /tokens limit=2"),
        ("token show T", "GET /tokens/T"),
        ("node list", "GET /nodes"),
        ("delivery show", "GET /delivery"),
        ("delivery release", "POST /delivery/release {}"),
        ("secret retire A S", "POST /applications/A/secrets/S/retire {}"),
        ("secret rotate A", "POST /applications/A/secrets {}"),
        ("secret rotate A --overlap-s 60", r#"POST /applications/A/secrets {"overlap_s":60}"#),
        ("secret list A", "GET /applications/A/secrets"),
        ("secret revoke A S", "DELETE /applications/A/secrets/S"),
        ("secret use-for-callbacks A S", "POST /applications/A/secrets/S/use-for-callbacks {}"),
    ];
    for (words, wanted) in table {
        assert_eq!(written(words), wanted, "{words}");
    }
}

#[test]
fn each_command_about_applications_makes_its_call() {
    let table = [
        (
            "application create M --name N --callback-url https://a.example/c",
            r#"POST /merchants/M/applications {"name":"N","callback_url":"https://a.example/c"}"#,
        ),
        (
            "application update A --enabled false --rate-limit-per-s 0",
            r#"PATCH /applications/A {"enabled":false,"rate_limit_per_s":0}"#,
        ),
        (
            "application update A --no-callback-url --no-rate-limit-per-s --no-timestamp-tolerance-ms",
            r#"PATCH /applications/A {"callback_url":null,"timestamp_tolerance_ms":null,"rate_limit_per_s":null}"#,
        ),
        (
            "application create M --name N --callback-rate-per-s 5 --callback-concurrency 2 --callback-schedule 5s,2m",
            r#"POST /merchants/M/applications {"name":"N","callback_rate_per_s":5,"callback_concurrency":2,"callback_schedule":["5s","2m"]}"#,
        ),
        (
            "application update A --callback-rate-per-s 0 --callback-schedule 1h",
            r#"PATCH /applications/A {"callback_rate_per_s":0,"callback_schedule":["1h"]}"#,
        ),
        (
            "application update A --no-callback-rate-per-s --no-callback-concurrency --no-callback-schedule",
            r#"PATCH /applications/A {"callback_rate_per_s":null,"callback_concurrency":null,"callback_schedule":null}"#,
        ),
        ("application callbacks A", "GET /applications/A/callbacks"),
        ("application pause-callbacks A", "POST /applications/A/callbacks/pause {}"),
        (
            "application pause-callbacks A --reason mending",
            r#"POST /applications/A/callbacks/pause {"reason":"mending"}"#,
        ),
        ("application resume-callbacks A", "POST /applications/A/callbacks/resume {}"),
        ("application test-callback A", "POST /applications/A/callbacks/test {}"),
        ("application list", "GET /applications"),
        ("application list --merchant-id M --limit 2", "GET /applications merchant_id=M limit=2"),
        ("application list --callback-enabled false", "GET /applications callback_enabled=false"),
        ("application failing", "GET /callbacks/failing"),
        ("application failing --limit 3", "GET /callbacks/failing limit=3"),
        ("application show A", "GET /applications/A"),
    ];
    for (words, wanted) in table {
        assert_eq!(written(words), wanted, "{words}");
    }
}

#[test]
fn each_command_about_events_makes_its_call() {
    let table = [
        (
            r#"event emit --client-id A --biz-type T --biz-id 1 --biz-status S --data {"a":0.10}"#,
            r#"POST /events {"client_id":"A","bizType":"T","bizId":"1","bizStatus":"S","data":{"a":0.10}}"#,
        ),
        (
            "event emit --client-id A --biz-type T --biz-id 1 --biz-status S --data plain",
            r#"POST /events {"client_id":"A","bizType":"T","bizId":"1","bizStatus":"S","data":"plain"}"#,
        ),
        ("event list --biz-id 1 --state dead", "GET /events bizId=1 state=dead"),
        ("event show E", "GET /events/E"),
        ("event attempt E 2", "GET /events/E/attempts/2"),
        ("event redeliver E", "POST /events/E/redeliver {}"),
        (
            "event redeliver-many --all-applications --biz-id 1 --after A --outcome http_status --http-status 503",
            r#"POST /events/redeliver {"all_applications":true,"after":"A","bizId":"1","outcome":"http_status","http_status":503}"#,
        ),
        ("event redeliver-many --client-id A --preview", r#"POST /events/redeliver {"client_id":"A","preview":true}"#),
        (
            "event redeliver-many --client-id A --state delivered --biz-id 1 --from F --to T --rate-per-s 9",
            r#"POST /events/redeliver {"client_id":"A","state":"delivered","bizId":"1","from":"F","to":"T","rate_per_s":9}"#,
        ),
        ("event redeliveries --client-id A --limit 2", "GET /redeliveries client_id=A limit=2"),
        ("event dead-causes", "GET /events/dead-causes"),
        (
            "event dead-causes --client-id A --from F --to T --limit 3",
            "GET /events/dead-causes client_id=A from=F to=T limit=3",
        ),
        ("event redelivery R", "GET /redeliveries/R"),
        ("event redelivery-outcomes R", "GET /redeliveries/R/outcomes"),
        ("event stop-redelivery R", "POST /redeliveries/R/stop {}"),
    ];
    for (words, wanted) in table {
        assert_eq!(written(words), wanted, "{words}");
    }
}

#[test]
fn each_command_of_the_daily_business_makes_its_call() {
    let table = [
        ("fee-rule list S", "GET /fee-rules sub_merchant_id=S"),
        (
            "convert-order create M --sell-currency GT --buy-currency USDT --sell-amount 1 --buy-amount 2 --rate 2.50",
            r#"POST /merchants/M/convert-orders {"sellCurrency":"GT","buyCurrency":"USDT","sellAmount":"1","buyAmount":"2","rate":2.50}"#,
        ),
        (
            "convert-order create M --sell-currency GT --buy-currency USDT --sell-amount 1 --buy-amount 2 --rate 2 --status success --create-time 1767225600000",
            r#"POST /merchants/M/convert-orders {"sellCurrency":"GT","buyCurrency":"USDT","sellAmount":"1","buyAmount":"2","rate":2,"createTime":1767225600000,"status":3}"#,
        ),
        ("convert-order show 17", "GET /convert-orders/17"),
        ("convert-order list", "GET /convert-orders"),
        (
            "convert-order list --state created --merchant M --after 17 --limit 5",
            "GET /convert-orders state=1 merchant_id=M limit=5 after=17",
        ),
        ("convert-order list --state 6", "GET /convert-orders state=6"),
        ("rate set GT_USDT 22.50", r#"PUT /rates/GT_USDT {"rate":22.50}"#),
        (
            "rate set GT_USDT 2 --base-min 0.1 --base-max 5 --quote-min 1 --quote-max 9",
            r#"PUT /rates/GT_USDT {"rate":2,"base_min":"0.1","base_max":"5","quote_min":"1","quote_max":"9"}"#,
        ),
        ("rate list --limit 3", "GET /rates limit=3"),
        ("rate show GT_USDT", "GET /rates/GT_USDT"),
        ("convert-order move 17 --status success", r#"PATCH /convert-orders/17 {"status":3}"#),
        (
            "payment-order list --state PENDING --merchant M --trade-no T --amount-from 1 --limit 5",
            "GET /payment-orders state=PENDING merchant_id=M merchantTradeNo=T amount_from=1 limit=5",
        ),
        ("payment-order show 17", "GET /payment-orders/17"),
        ("payment-order move 17 --status CLOSED", r#"PATCH /payment-orders/17 {"status":"CLOSED"}"#),
        (
            "payment-order move 17 --status PAID --actual-amount 1.5 --transact-time 7",
            r#"PATCH /payment-orders/17 {"status":"PAID","actualAmount":"1.5","transactTime":7}"#,
        ),
        ("convert-order move 17 --status 6", r#"PATCH /convert-orders/17 {"status":6}"#),
    ];
    for (words, wanted) in table {
        assert_eq!(written(words), wanted, "{words}");
    }
}

#[test]
fn numbers_are_plain_json_numbers() {
    for good in ["0", "-1", "0.10", "123456789012345678.5"] {
        assert_eq!(json_number(good).as_deref(), Ok(good));
    }
    for bad in ["", "1e3", "01", "+1", ".5", "NaN", "\"1\"", "{}", "1 ", "true"] {
        assert!(json_number(bad).is_err(), "{bad}");
    }
}

#[test]
fn whose_events_are_sent_again_is_said_and_both_ways_to_say_it_are_named() {
    let refused = |more: &[&str]| {
        let words = ["countersign", "event", "redeliver-many"].iter().chain(more);
        Cli::try_parse_from(words).expect_err("it is refused").to_string()
    };
    assert!(refused(&[]).contains("<--client-id <CLIENT_ID>|--all-applications>"), "{}", refused(&[]));
    refused(&["--client-id", "A", "--all-applications"]);
    refused(&["--client-id", "A", "--after", "B"]);
}

#[test]
fn an_update_that_changes_nothing_is_refused() {
    let cli = Cli::try_parse_from(["countersign", "application", "update", "A"]).expect("clap takes it");
    let Command::Application(group) = &cli.command else { panic!("it is an application command") };
    assert!(group.command.call().is_err());
    let cli = Cli::try_parse_from(["countersign", "merchant", "update", "M"]).expect("clap takes it");
    let Command::Merchant(group) = &cli.command else { panic!("it is a merchant command") };
    assert!(group.command.call().is_err());
    let both =
        ["countersign", "application", "update", "A", "--callback-url", "https://a.example", "--no-callback-url"];
    assert!(Cli::try_parse_from(both).is_err(), "set and cleared at once");
    let both = ["countersign", "application", "update", "A", "--callback-schedule", "5s", "--no-callback-schedule"];
    assert!(Cli::try_parse_from(both).is_err(), "set and cleared at once");
}

#[test]
fn a_redelivery_that_is_over_names_where_it_is_said_how_its_events_fared() {
    let notice = |words: &str, state: &str| {
        let cli = Cli::try_parse_from(["countersign"].into_iter().chain(words.split(' '))).expect("clap takes it");
        let Command::Event(group) = &cli.command else { panic!("it is an event command") };
        group.command.notice(&format!(r#"{{"redelivery_id":"rd_1","state":"{state}"}}"#))
    };
    let named = Some("How its events fared: `countersign event redelivery-outcomes rd_1`.".to_owned());
    assert_eq!(notice("event redelivery rd_1", "running"), None);
    assert_eq!(notice("event redelivery rd_1", "done"), named);
    assert_eq!(notice("event stop-redelivery rd_1", "stopped"), named);
    assert_eq!(notice("event redelivery-outcomes rd_1", "done"), None);
}

#[test]
fn whoever_ends_a_secret_hears_how_long_the_application_has_one() {
    let notice = |words: &str, answer: &str| {
        let cli = Cli::try_parse_from(std::iter::once("countersign").chain(words.split(' '))).expect(words);
        let Command::Secret(group) = &cli.command else { panic!("{words}") };
        group.command.notice(answer).unwrap_or_default()
    };
    let (lasting, ending, none) = (
        r#"{"live_secrets":1,"live_secrets_end_at":null}"#,
        r#"{"live_secrets":1,"live_secrets_end_at":"2026-01-02T00:00:00.000Z"}"#,
        r#"{"live_secrets":0,"live_secrets_end_at":null}"#,
    );
    for words in ["secret revoke A S", "secret retire A S"] {
        assert_eq!(notice(words, lasting), "");
        assert!(notice(words, ending).starts_with("The last live secret of A ends at 2026-01-02T00:00:00.000Z"));
        assert!(notice(words, none).starts_with("A has no live secret now"));
        assert!(notice(words, none).contains("`countersign secret rotate A`"));
    }
    assert_eq!(notice("secret use-for-callbacks A S", ending), "");
    // A server of before it said so.
    assert_eq!(notice("secret revoke A S", r#"{"secret_id":"S"}"#), "");
}
