//! Files that are made here, and every way of spoiling them.

mod callbacks;

use zeroize::Zeroizing;

use super::*;
use crate::listen::PARSER_HEAD_BYTES_MAX;

fn key(byte: u8) -> SigningKey {
    SigningKey::new(&Zeroizing::new([byte; KEY_BYTES]))
}

fn at(text: &str) -> At {
    serde_json::from_value(text.into()).expect("an instant")
}

fn digest(bytes: &[u8]) -> String {
    crate::chance::hex(&crate::digest::sha256(bytes))
}

fn header(key: &SigningKey) -> Header {
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        deployment: at("2026-01-01T00:00:00.000Z"),
        prepay_id: "1234567000042".to_owned(),
        made_at: at("2026-01-03T00:00:00.000Z"),
        made_by: "token:tok_1".to_owned(),
        request_id: "ab".to_owned(),
        markup_unit: "percent".to_owned(),
        rule_timezone: "UTC".to_owned(),
        public_key: key.public().to_hex(),
    }
}

fn order() -> Order {
    Order {
        prepay_id: "1234567000042".to_owned(),
        trade_no: "T-1".to_owned(),
        merchant_id: "corner-shop".to_owned(),
        merchant_kind: "sub_account".to_owned(),
        client_id: "app_1".to_owned(),
        order_kind: "order".to_owned(),
        currency: "USDT".to_owned(),
        amount: "10.5".to_owned(),
        merchant_user_id: None,
        channel_id: None,
        goods_name: Some("Tea \u{1f375}".to_owned()),
        goods_detail: None,
        terminal_type: None,
        return_url: None,
        cancel_url: None,
        status: "PAID".to_owned(),
        created_at: at("2026-01-02T00:00:00.000Z"),
        expire_at: at("2026-01-02T01:00:00.000Z"),
        actual_amount: Some("10.5".to_owned()),
        transact_at: Some(at("2026-01-02T00:10:00.000Z")),
        paid_at: Some(at("2026-01-02T00:10:00.000Z")),
        revision: 2,
    }
}

fn request() -> Request {
    let body = "{\"merchantTradeNo\":\"T-1\",\"currency\":\"USDT\",\"orderAmount\":\"10.50\",\"goods\":{\"goodsName\":\"Tea \u{1f375}\"}}";
    Request {
        head: "POST /v1/pay/order\nx-service-signature: 00".to_owned(),
        body: Octets::of(body.as_bytes()),
        body_sha256: digest(body.as_bytes()),
    }
}

fn rule() -> RuleVersion {
    RuleVersion {
        config_id: "cfg_1".to_owned(),
        version_no: 3,
        r_markup: "0.3".to_owned(),
        f_markup: "1".to_owned(),
        effective_at: at("2026-01-01T12:00:00.000Z"),
        due_at: None,
        created_at: at("2026-01-01T11:00:00.000Z"),
        made_by: Some("application:app_2".to_owned()),
        request_id: Some("cd".to_owned()),
    }
}

fn sum() -> Sum {
    Sum {
        config_id: Some("cfg_1".to_owned()),
        version_no: Some(3),
        amount: "10.5".to_owned(),
        currency: "USDT".to_owned(),
        r_markup: "0.3".to_owned(),
        f_markup: "1".to_owned(),
        markup_unit: "percent".to_owned(),
        product: "0.0315".to_owned(),
        rounding: "none".to_owned(),
        r_fee: "0.0315".to_owned(),
        f_fee: "1".to_owned(),
        worked_sum: "10.5 USDT x 0.3 / 100 = 0.0315 USDT; plus 1 USDT fixed".to_owned(),
    }
}

fn step(revision: i64, from: Option<&str>, to: &str, when: &str) -> Entry {
    let (from, to) = (from.map(str::to_owned), to.to_owned());
    Entry::Move(Move { revision, from, to, at: at(when), actor: "token:tok_1".to_owned(), request_id: String::new() })
}

fn callback() -> Callback {
    let body =
        r#"{"bizType":"PAYMENT_ORDER","bizId":"1234567000042","bizStatus":"SUCCESS","client_id":"app_1","data":"{}"}"#;
    Callback {
        event_id: "evt_1".to_owned(),
        event_seq: 7,
        sequence: 1,
        biz_type: "PAYMENT_ORDER".to_owned(),
        biz_status: "SUCCESS".to_owned(),
        created_at: at("2026-01-02T00:10:00.000Z"),
        state: "delivered".to_owned(),
        attempts: 2,
        body: Octets::of(body.as_bytes()),
        body_sha256: digest(body.as_bytes()),
    }
}

fn attempt(number: i64, outcome: &str, answer: &[u8]) -> Entry {
    Entry::Attempt(Box::new(Attempt {
        event_id: "evt_1".to_owned(),
        attempt: number,
        at: at("2026-01-02T00:10:01.000Z"),
        outcome: outcome.to_owned(),
        http_status: Some(200),
        duration_ms: 1,
        address: Some("127.0.0.1:9000".to_owned()),
        detail: String::new(),
        dns_us: None,
        connect_us: Some(40),
        tls_us: None,
        first_byte_us: Some(900),
        total_us: Some(1_000),
        reused: Some(false),
        wire: Wire::Kept,
        sent_head: Some(Octets::of(b"POST /callback HTTP/1.1\r\n\r\n")),
        answer_head: Some(Octets::of(b"HTTP/1.1 200 OK\r\n\r\n")),
        answer_body: Some(Octets::of(answer)),
        answer_body_bytes: Some(i64::try_from(answer.len()).expect("small")),
        answer_body_is_cut: false,
    }))
}

/// A paid order whose callback failed first.
fn story(key: &SigningKey) -> Vec<Entry> {
    vec![
        Entry::Header(header(key)),
        Entry::Order(order()),
        Entry::Request(request()),
        Entry::RuleVersion(rule()),
        Entry::Fee(Fee { sum: Some(sum()), none_because: None }),
        step(1, None, "PENDING", "2026-01-02T00:00:00.000Z"),
        step(2, Some("PENDING"), "PAID", "2026-01-02T00:10:00.000Z"),
        Entry::Callback(callback()),
        attempt(1, "unreadable", &[0xff, 0x00, 0xc3]),
        attempt(2, "delivered", br#"{"returnCode":"SUCCESS"}"#),
    ]
}

fn file(entries: Vec<Entry>, key: &SigningKey) -> String {
    let mut chain = Chain::default();
    let lines: String = entries.into_iter().map(|entry| chain.append(entry)).collect();
    lines + &chain.close(&header(key), key)
}

fn judged(file: &[u8]) -> Result<Verified, Fault> {
    verify(file, key(1).public()).map_err(|failed| match failed {
        Failed::Wrong(fault) => fault,
        Failed::Read(error) => panic!("{error}"),
    })
}

fn good() -> String {
    file(story(&key(1)), &key(1))
}

#[test]
fn a_file_as_it_was_made_is_good_and_says_what_it_shows() {
    let verified = judged(good().as_bytes()).expect("it is good");
    assert_eq!((verified.entries, verified.callbacks.len(), verified.moves.len()), (10, 1, 2));
    let said = verified.to_string();
    for part in
        ["1234567000042 (T-1) of corner-shop: 10.5 USDT, PAID", "PENDING", "x 0.3 / 100 = 0.0315", "attempts: 2"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn the_longest_request_that_a_server_takes_fits_on_its_line() {
    let (mut entries, plain) = (story(&key(1)), request());
    let plain = String::from_utf8(plain.body.bytes().expect("a text")).expect("a text");
    // Each quote of a header and each blank of a body is written as two bytes.
    let body = format!("{plain}{}", "\n".repeat(REQUEST_BODY_BYTES_MAX - plain.len()));
    entries[2] = Entry::Request(Request {
        head: format!("POST /v1/pay/order\nx-service-on-behalf-of: {}", "\"".repeat(PARSER_HEAD_BYTES_MAX)),
        body: Octets::of(body.as_bytes()),
        body_sha256: digest(body.as_bytes()),
    });
    let file = file(entries, &key(1));
    let longest = file.lines().map(str::len).max().expect("it has lines");
    assert!(longest > LINE_BYTES_MAX * 9 / 10, "the bound is no tighter than it must be: {longest}");
    judged(file.as_bytes()).expect("it is good");
}

#[test]
fn every_byte_that_is_changed_taken_out_or_put_in_is_found_and_its_line_named() {
    let good = good();
    let bytes = good.as_bytes();
    let mut line = 1;
    for at in 0..bytes.len() {
        for other in [bytes[at] ^ 1, b'\n', 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] = other;
            if other != bytes[at] {
                let fault = judged(&changed).expect_err("it was changed");
                assert_eq!(fault.line, line, "byte {at} as {other}: {fault}");
            }
        }
        let mut less = bytes.to_vec();
        less.remove(at);
        assert_eq!(judged(&less).expect_err("a byte is missing").line, line, "byte {at} taken out");
        let mut more = bytes.to_vec();
        more.insert(at, b'x');
        assert_eq!(judged(&more).expect_err("a byte is too many").line, line, "byte {at} put in");
        line += u64::from(bytes[at] == b'\n');
    }
    assert_eq!(line, 12, "ten entries and a head");
}

#[test]
fn lines_that_are_missing_moved_doubled_or_added_are_found_where_they_are() {
    let good = good();
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    for at in 0..lines.len() {
        let named = |lines: &[&str]| judged(lines.concat().as_bytes()).expect_err("it was changed").line;
        let place = at as u64 + 1;
        assert_eq!(named(&lines[..at]), place, "cut off before line {place}");
        let without = [&lines[..at], &lines[at + 1..]].concat();
        assert_eq!(named(&without), place, "without line {place}");
        let doubled = [&lines[..=at], &lines[at..]].concat();
        assert_eq!(named(&doubled), place + 1, "line {place} twice");
        if at > 0 {
            let mut swapped = lines.clone();
            swapped.swap(at - 1, at);
            assert_eq!(named(&swapped), place - 1, "lines {} and {place} swapped", place - 1);
        }
    }
    assert!(judged(b"").expect_err("nothing is there").what.contains("ends before its head"));
}

#[test]
fn a_forger_without_the_key_is_refused_whatever_they_sign_with() {
    let changed = |key: &SigningKey| {
        let mut entries = story(key);
        let Entry::Move(paid) = &mut entries[6] else { panic!("a move") };
        paid.actor = "token:tok_somebody_else".to_owned();
        entries
    };
    let own = key(2);
    let fault = judged(file(changed(&own), &own).as_bytes()).expect_err("another key");
    assert_eq!((fault.line, fault.kind), (11, Some(Kind::Head)));
    assert!(fault.what.starts_with("signed by another key"), "{fault}");
    // The header names the right key, and another one has signed.
    let fault = judged(file(changed(&key(1)), &own).as_bytes()).expect_err("another key");
    assert!(fault.what.starts_with("the signature is not that of the key"), "{fault}");
    // The signature of the true file under the rebuilt chain.
    let (forged, good) = (file(changed(&key(1)), &own), good());
    let true_head = good.lines().last().expect("a head");
    let lines: Vec<&str> = forged.lines().collect();
    let patched = [&lines[..10], &[true_head]].concat().join("\n") + "\n";
    let fault = judged(patched.as_bytes()).expect_err("the head of another chain");
    assert_eq!(fault.line, 11);
    assert!(fault.what.contains("another chain"), "{fault}");
    assert!(judged(good.as_bytes()).is_ok());
}

/// Entry `at` becomes what `change` makes of it, and the deployment's own key signs that: the line that is named, and why.
fn told_otherwise(at: usize, change: impl FnOnce(&mut Entry)) -> (u64, String) {
    let mut entries = story(&key(1));
    change(&mut entries[at]);
    let fault = judged(file(entries, &key(1)).as_bytes()).expect_err("it cannot be so");
    (fault.line, fault.what)
}

macro_rules! otherwise {
    ($at:expr, $kind:ident, $what:ident => $change:expr, $line:expr, $why:expr) => {
        let (line, why) = told_otherwise($at, |entry| match entry {
            Entry::$kind($what) => $change,
            other => panic!("{other:?}"),
        });
        assert_eq!(line, $line, "{why}");
        assert!(why.contains($why), "{why}");
    };
}

#[test]
fn what_was_delivered_and_was_sent_again_in_vain_is_a_story_that_can_be() {
    let mut entries = story(&key(1));
    for (at, outcome) in [(8, "delivered"), (9, "fail")] {
        let Entry::Attempt(attempt) = &mut entries[at] else { panic!("an attempt") };
        attempt.outcome = outcome.to_owned();
    }
    judged(file(entries, &key(1)).as_bytes()).expect("it holds");
}

#[test]
fn a_story_that_cannot_be_is_refused_though_the_deployment_signed_it() {
    otherwise!(0, Header, h => h.version = 2, 1, "use a newer one");
    otherwise!(1, Order, o => o.prepay_id = "9999999000042".to_owned(), 2, "another order");
    otherwise!(1, Order, o => o.amount = "10.6".to_owned(), 3, "asks for something else");
    otherwise!(1, Order, o => o.amount = "10.50".to_owned(), 2, "orderAmount");
    otherwise!(1, Order, o => o.goods_name = None, 3, "asks for something else");
    otherwise!(1, Order, o => o.terminal_type = Some("APP".to_owned()), 3, "asks for something else");
    otherwise!(1, Order, o => o.return_url = Some("https://a.example".to_owned()), 3, "asks for something else");
    otherwise!(1, Order, o => o.cancel_url = Some("https://a.example".to_owned()), 3, "asks for something else");
    otherwise!(1, Order, o => o.merchant_kind = "shop".to_owned(), 2, "merchant_kind is none");
    otherwise!(1, Order, o => o.actual_amount = None, 2, "no actualAmount");
    otherwise!(1, Order, o => o.order_kind = "native".to_owned(), 3, "another operation");
    otherwise!(1, Order, o => o.revision = 3, 8, "moves are missing");
    otherwise!(1, Order, o => { o.status = "CLOSED".to_owned(); }, 2, "paid_at");
    otherwise!(2, Request, r => r.body_sha256 = digest(b"x"), 3, "body_sha256");
    otherwise!(2, Request, r => r.head = "GET /v1/pay/order".to_owned(), 3, "another operation");
    otherwise!(2, Request, r => r.head += "\nx-service-certificate-clientid: app_2", 3, "another application");
    otherwise!(2, Request, r => r.head += "\nx-service-certificate-sn: app_2", 3, "another application");
    let later = r#"{"merchantTradeNo":"T-1","currency":"USDT","orderAmount":"10.5","goods":{"goodsName":"Tea \u{1f375}"},"orderExpireTime":1767315600001}"#;
    let later = later.replace("\\u{1f375}", "\u{1f375}");
    otherwise!(2, Request, r => { r.body = Octets::of(later.as_bytes()); r.body_sha256 = digest(later.as_bytes()); }, 3, "something else");
    otherwise!(3, RuleVersion, r => r.r_markup = "0.2".to_owned(), 5, "does not rest on");
    otherwise!(3, RuleVersion, r => r.effective_at = at("2026-01-02T00:10:00.001Z"), 5, "not in force");
    otherwise!(3, RuleVersion, r => r.due_at = Some(at("2026-01-02T00:10:00.000Z")), 5, "not in force");
    let fee = |change: fn(&mut Sum)| move |fee: &mut Fee| change(fee.sum.as_mut().expect("a sum"));
    otherwise!(4, Fee, f => fee(|s| s.r_fee = "0.0316".to_owned())(f), 5, "its r_fee is");
    otherwise!(4, Fee, f => fee(|s| s.f_fee = "2".to_owned())(f), 5, "its f_fee is");
    otherwise!(4, Fee, f => fee(|s| s.product = "0.03150".to_owned())(f), 5, "its product is");
    otherwise!(4, Fee, f => fee(|s| s.rounding = "half_up_to_6_decimals".to_owned())(f), 5, "its rounding is");
    otherwise!(4, Fee, f => fee(|s| s.worked_sum = "nothing".to_owned())(f), 5, "its worked_sum is");
    otherwise!(4, Fee, f => fee(|s| s.amount = "1".to_owned())(f), 5, "not on what was paid");
    otherwise!(4, Fee, f => fee(|s| s.markup_unit = "fraction".to_owned())(f), 5, "than the header says");
    otherwise!(4, Fee, f => { f.sum = None; f.none_because = Some("not_paid".to_owned()); }, 5, "has a fee");
    otherwise!(6, Move, m => m.revision = 3, 7, "2 comes next");
    otherwise!(6, Move, m => m.from = Some("PROCESS".to_owned()), 7, "where the move before it ended");
    otherwise!(6, Move, m => m.to = "PENDING".to_owned(), 7, "PENDING cannot become PENDING");
    otherwise!(6, Move, m => m.to = "CLOSED".to_owned(), 8, "lead to another status");
    let late = |m: &mut Move| m.at = at("2026-01-02T01:00:00.000Z");
    otherwise!(6, Move, m => { late(m); m.actor = "application:app_1".to_owned(); }, 7, "expires at its expire time");
    // By the back end it may be: after a restore.
    otherwise!(6, Move, m => late(m), 7, "paid at another time");
    otherwise!(6, Move, m => { m.to = "EXPIRED".to_owned(); m.at = at("2026-01-02T01:00:00.001Z"); }, 7, "expires at its expire time");
    otherwise!(6, Move, m => m.at = at("2026-01-02T00:10:00.001Z"), 7, "paid at another time");
    otherwise!(7, Callback, c => c.sequence = 2, 8, "1 comes next");
    otherwise!(7, Callback, c => c.biz_status = "CLOSED".to_owned(), 8, "about something else");
    otherwise!(7, Callback, c => c.body_sha256 = digest(b"x"), 8, "body_sha256");
    otherwise!(7, Callback, c => c.attempts = 3, 11, "attempts are missing");
    otherwise!(7, Callback, c => c.attempts = 1, 10, "fewer attempts");
    otherwise!(8, Attempt, a => a.attempt = 2, 9, "1 comes next");
    otherwise!(8, Attempt, a => a.wire = Wire::NotKept, 9, "bytes that it says are not there");
    otherwise!(8, Attempt, a => a.answer_body = Some(Octets::Base64("/wDD=".to_owned())), 9, "not written as bytes");
    otherwise!(8, Attempt, a => a.answer_body = Some(Octets::Base64("eA==".to_owned())), 9, "not written as bytes");
    otherwise!(9, Attempt, a => a.outcome = "fail".to_owned(), 11, "no attempt delivered it");
    otherwise!(9, Attempt, a => a.event_id = "evt_2".to_owned(), 10, "another event");
}

#[test]
fn heads_that_older_programs_kept_are_good() {
    for head in [
        "POST /v1/pay/order?shop=7\nx-service-certificate-clientid: app_1",
        "POST https://pay.example/v1/pay/order\nx-service-certificate-sn: app_1",
        "POST /v1/pay/order\nx-ssl-client-certificate-sn: 04:A3:11\nx-service-certificate-clientid: app_1",
    ] {
        let mut entries = story(&key(1));
        let Entry::Request(request) = &mut entries[2] else { panic!("a request") };
        head.clone_into(&mut request.head);
        judged(file(entries, &key(1)).as_bytes()).unwrap_or_else(|fault| panic!("{head}: {fault}"));
    }
}

#[test]
fn kinds_come_in_their_order_and_none_is_left_out() {
    for at in 0..10 {
        let mut entries = story(&key(1));
        entries.remove(at);
        let refused = judged(file(entries, &key(1)).as_bytes()).expect_err("an entry is missing");
        // What is missing shows where the next thing is, or at the head.
        assert!(refused.line > at as u64, "without entry {}: {refused}", at + 1);
    }
    let mut entries = story(&key(1));
    entries.swap(1, 2);
    let fault = judged(file(entries, &key(1)).as_bytes()).expect_err("out of order");
    assert_eq!(fault.to_string(), "line 2 (request): a request cannot come behind header");
}

#[test]
fn an_entry_is_written_in_one_way_and_no_other_is_taken_even_with_the_key() {
    let signed = |spoil: &dyn Fn(String) -> String| {
        let mut chain = Chain::default();
        let mut text = String::new();
        for line in good().lines().take(10) {
            let inside = line.split_once("\"entry\":").expect("an entry").1;
            text += &chain.append_text(&spoil(inside[..inside.len() - 1].to_owned()));
        }
        judged((text + &chain.close(&header(&key(1)), &key(1))).as_bytes())
    };
    assert!(signed(&|entry| entry).is_ok());
    for (from, to) in [
        ("\"kind\":\"order\"", "\"kind\": \"order\""),
        ("\"revision\":2,\"from\"", "\"revision\":2.0,\"from\""),
        ("\"goodsName\":\"Tea", "\"goodsName\":\"\\u0054ea"),
        ("\"currency\":\"USDT\",\"orderAmount\"", "\"currency\":\"USDT\",\"currency\":\"USDT\",\"orderAmount\""),
        ("\"channelId\":null,", ""),
        ("\"channelId\":null,", "\"channelId\":null,\"more\":1,"),
        ("\"seq\":2,", "\"seq\":3,"),
        ("2026-01-02T01:00:00.000Z", "2026-01-02T02:00:00.000+01:00"),
    ] {
        let refused = signed(&|entry| entry.replacen(from, to, 1)).expect_err(to);
        assert!(refused.what.starts_with("it cannot be read"), "{to}: {refused}");
    }
}

#[test]
fn keys_are_read_in_two_forms_and_named_by_neither_their_seed_nor_their_debug() {
    let (secret, public) = (key(1), key(1).public());
    assert_eq!(PublicKey::parse(&format!(" {}\n", public.to_hex())), Some(public));
    let base64 = Octets::of(&[0xff]);
    assert_eq!(base64, Octets::Base64("/w==".to_owned()));
    for wrong in ["", "00", &"0".repeat(63), &"g".repeat(64), "AAAA"] {
        assert_eq!(PublicKey::parse(wrong), None, "{wrong}");
    }
    assert_eq!(format!("{secret:?}"), "SigningKey(..)");
    assert_ne!(public.id(), key(2).public().id());
}

#[test]
fn the_signature_is_ed25519_as_rfc_8032_has_it() {
    // Its first test: an empty message.
    let seed = crate::chance::unhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60").expect("hex");
    let key = SigningKey::new(&Zeroizing::new(seed.try_into().expect("32 bytes")));
    assert_eq!(key.public().to_hex(), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    let signature = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";
    assert_eq!(crate::chance::hex(&key.sign(b"")), signature);
}

#[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the program")]
fn is_blessing() -> bool {
    std::env::var("COUNTERSIGN_BLESS").is_ok_and(|value| value == "1")
}

#[test]
fn the_example_of_the_page_is_what_is_written_here_and_good() {
    const BEGIN: &str = "<!-- example -->\n```\n";
    const END: &str = "```\n<!-- end of example -->";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/EVIDENCE.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("the example begins");
    let (example, after) = rest.split_once(END).expect("the example ends");
    if is_blessing() {
        return std::fs::write(&path, [before, BEGIN, &good(), END, after].concat()).expect("the page can be written");
    }
    assert!(example == good(), "the example is old: run with COUNTERSIGN_BLESS=1 and look at the difference");
    assert!(before.contains(&key(1).public().to_hex()), "the key of the example");
    assert!(judged(example.as_bytes()).is_ok());
}
