//! Tests over all statements: whatever is a tenant's is found by its tenant, but for what is declared here, with the reason; and by an index.

use std::collections::{BTreeMap, BTreeSet};

use super::event_texts::{EVENTS, EVENTS_DEAD, EVENTS_LOOK, EVENTS_LOOK_BY_SEQ};
use super::payment_sql::{PAYMENT_ORDERS, PAYMENT_ORDERS_EDGE};
use super::schema::STEPS;
use super::statements::{NAMES, TEXTS};

#[cfg(feature = "testing")]
#[path = "plan_tests.rs"]
pub(super) mod plan_tests;

#[cfg(feature = "testing")]
#[path = "payment_plan_tests.rs"]
mod payment_plan_tests;

/// What grows with a tenant's business and is spread by its number.
const OF_TENANTS: [&str; 22] = [
    "nonce",
    "commit_mark",
    "fee_rule",
    "fee_rule_head",
    "convert_order",
    "convert_order_move",
    "convert_quote",
    "convert_request",
    "payment_order",
    "payment_order_move",
    "last_paid",
    "payment_order_request",
    "event",
    "delivery",
    "delivery_turn",
    "redelivery",
    "attempt",
    "attempt_bytes",
    "event_counter",
    "biz_counter",
    "audit_head",
    "audit",
];

/// What is the same everywhere, or spread by its own key: `order_directory`.
const OTHERS: [&str; 16] = [
    "setting",
    "replay",
    "merchant",
    "application",
    "secret",
    "secret_use",
    "operator_token",
    "idempotency",
    "order_directory",
    "pair_rate",
    "move_record",
    "move_progress",
    "delivery_lane",
    "node",
    "node_program",
    "directory",
];

/// Statements that go across tenants, and why they may.
const ACROSS: [(&str, &str); 29] = [
    ("Waiting", "a metric of all that waits"),
    ("Owed", "the dispatcher looks for who has something due, whoever that is"),
    ("Turning", "as Owed"),
    ("RedeliveriesRunning", "as Owed"),
    ("PaymentOrdersExpired", "as Owed"),
    ("PaymentOrdersExpiredLast", "as Owed"),
    ("PaymentOrderOwner", "as Event"),
    ("PAYMENT_ORDERS", "an operator's list over all"),
    ("PAYMENT_ORDERS_EDGE", "as PAYMENT_ORDERS"),
    ("ConvertOrders", "an operator's list over all"),
    ("ConvertOrdersOpen", "as ConvertOrders"),
    ("Redelivery", "as Event"),
    ("Redeliveries", "an operator's list over all"),
    ("DeadOfAll", "an operator's look at all that is dead"),
    ("WithDead", "as DeadOfAll"),
    ("Event", "an operator names an event by its id alone; its key begins with it"),
    ("EVENTS", "an operator's list over all"),
    ("EVENTS_DEAD", "as EVENTS"),
    ("EVENTS_LOOK", "as EVENTS"),
    ("EVENTS_LOOK_BY_SEQ", "as EVENTS"),
    ("Audit", "an operator's list over all"),
    ("AuditChain", "a walk over the chains of all"),
    ("AuditHeads", "as AuditChain"),
    ("UnreadableLine", "as AuditChain"),
    ("OldBytes", "housekeeping: a look at each tenant in turn"),
    ("OldEvents", "housekeeping: a look at each application in turn"),
    ("NonceNewest", "as NoncesForget"),
    ("NoncesForget", "housekeeping: what is behind the horizon, in transactions of its own"),
    ("MarksForget", "housekeeping: what lanes that are gone left behind"),
];

fn statements() -> impl Iterator<Item = (&'static str, &'static str)> {
    NAMES.iter().copied().zip(TEXTS.iter().copied()).chain([
        ("EVENTS", EVENTS),
        ("EVENTS_DEAD", EVENTS_DEAD),
        ("EVENTS_LOOK", EVENTS_LOOK),
        ("EVENTS_LOOK_BY_SEQ", EVENTS_LOOK_BY_SEQ),
        ("PAYMENT_ORDERS", PAYMENT_ORDERS),
        ("PAYMENT_ORDERS_EDGE", PAYMENT_ORDERS_EDGE),
    ])
}

/// Words in lower case, parameters, names with their dots; every other sign by itself.
fn tokens(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut goes_on = false;
    for sign in text.chars() {
        let is_word = sign.is_ascii_alphanumeric() || "_.$".contains(sign);
        match all.last_mut() {
            Some(last) if is_word && goes_on => last.push(sign.to_ascii_lowercase()),
            _ if sign.is_whitespace() => {}
            _ => all.push(sign.to_ascii_lowercase().to_string()),
        }
        goes_on = is_word;
    }
    all
}

/// The names in the parentheses that open at `at`.
fn list(tokens: &[String], at: usize) -> Vec<&str> {
    assert_eq!(tokens[at], "(", "a list begins in {tokens:?}");
    tokens[at + 1..].iter().map(String::as_str).take_while(|token| *token != ")").filter(|t| *t != ",").collect()
}

/// Where a table is named: what is done, which table, its alias if it has one, and where the text goes on.
fn places(tokens: &[String]) -> Vec<(&str, &str, Option<&str>, usize)> {
    const NO_ALIAS: [&str; 14] = [
        "where",
        "on",
        "set",
        "order",
        "left",
        "join",
        "limit",
        "using",
        "values",
        "returning",
        "(",
        ")",
        "union",
        "group",
    ];
    let mut found = Vec::new();
    for at in 1..tokens.len() {
        if !OF_TENANTS.contains(&tokens[at].as_str()) {
            continue;
        }
        let verb = tokens[at - 1].as_str();
        if !["from", "join", "into", "update", "using"].contains(&verb) {
            // A column has that name, too. Another table behind a comma would not be seen.
            assert_eq!(tokens[at], "attempt", "behind {verb}");
            continue;
        }
        let mut next = at + 1;
        if tokens.get(next).is_some_and(|token| token == "as") {
            next += 1;
        }
        let alias = tokens.get(next).map(String::as_str).filter(|token| !NO_ALIAS.contains(token));
        found.push((verb, tokens[at].as_str(), alias, next + usize::from(alias.is_some())));
    }
    found
}

/// Names that are equal to a parameter, or to a column of the parameters, maybe by way of others.
fn bound(tokens: &[String]) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = tokens.iter().filter(|token| token.starts_with('$')).cloned().collect();
    for (at, token) in tokens.iter().enumerate() {
        if token == "unnest" {
            let close = at + tokens[at..].iter().position(|token| token == ")").expect("it is closed");
            let Some(named) = tokens[close..].iter().take(5).position(|token| token == "as") else { continue };
            let alias = &tokens[close + named + 1];
            known.extend(list(tokens, close + named + 2).iter().map(|column| format!("{alias}.{column}")));
        }
    }
    let other = |at: usize| {
        let is_listed = tokens[at..].iter().take(4).eq(["any", "(", "array", "["]);
        &tokens[if is_listed { at + 4 } else { at }]
    };
    let equal: Vec<(&String, &String)> =
        (1..tokens.len() - 1).filter(|at| tokens[*at] == "=").map(|at| (&tokens[at - 1], other(at + 1))).collect();
    loop {
        let before = known.len();
        for (one, other) in &equal {
            if known.contains(*one) || known.contains(*other) {
                known.extend([(*one).clone(), (*other).clone()]);
            }
        }
        if known.len() == before {
            return known;
        }
    }
}

/// What is wrong with a statement: each table of tenants that it does not find, or write, by the tenant.
fn faults(text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let known = bound(&tokens);
    let mut found = Vec::new();
    for (verb, table, alias, next) in places(&tokens) {
        if verb == "into" {
            if !list(&tokens, next).contains(&"tenant_no") {
                found.push(format!("{table} gets a row without a tenant"));
            }
            let conflict = (next..tokens.len() - 2).find(|at| tokens[*at] == "conflict" && tokens[*at + 1] == "(");
            if conflict.is_some_and(|at| !list(&tokens, at + 1).contains(&"tenant_no")) {
                found.push(format!("{table} is guarded without a tenant"));
            }
        } else if !known.contains(&alias.map_or_else(|| "tenant_no".to_owned(), |alias| format!("{alias}.tenant_no"))) {
            found.push(format!("{table} is looked into without a tenant"));
        }
    }
    found
}

#[test]
fn a_statement_that_misses_the_tenant_is_found_out() {
    for (text, count) in [
        ("SELECT 1 FROM event WHERE tenant_no = $1 AND event_no = $2", 0),
        ("SELECT 1 FROM event WHERE event_no = $2", 1),
        ("SELECT 1 FROM event WHERE tenant_no = ANY(ARRAY[$1]) AND event_no = $2", 0),
        ("SELECT 1 FROM event WHERE tenant_no = ANY(ARRAY[event_no]) AND client_id = $2", 1),
        ("SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.event_no WHERE e.tenant_no = $1", 1),
        ("SELECT 1 FROM event e JOIN delivery d ON d.tenant_no = e.tenant_no WHERE e.event_no = $1", 2),
        ("SELECT 1 FROM event e JOIN delivery d ON d.tenant_no = e.tenant_no WHERE e.tenant_no = $1", 0),
        ("SELECT 1 FROM event e LEFT JOIN merchant m ON m.tenant_no = e.tenant_no WHERE m.merchant_id = $1", 1),
        (
            "UPDATE delivery d SET state = a.s FROM unnest($1::bigint[]) AS a (tenant_no) WHERE d.tenant_no = a.tenant_no",
            0,
        ),
        (
            "UPDATE delivery d SET state = a.s FROM unnest($1::bigint[]) AS a (event_no) WHERE d.event_no = a.event_no",
            1,
        ),
        ("DELETE FROM nonce WHERE claim = ANY($1::bytea[])", 1),
        ("INSERT INTO nonce (claim) VALUES ($1)", 1),
        ("INSERT INTO nonce (tenant_no, claim) VALUES ($1, $2) ON CONFLICT (claim) DO NOTHING", 1),
        ("INSERT INTO nonce AS n (tenant_no, claim) VALUES ($1, $2) ON CONFLICT (tenant_no, claim) DO NOTHING", 0),
    ] {
        assert_eq!(faults(text).len(), count, "{text}: {:?}", faults(text));
    }
}

#[test]
fn every_statement_finds_what_is_a_tenants_by_its_tenant() {
    let across: BTreeMap<&str, &str> = ACROSS.into_iter().collect();
    for (name, text) in statements() {
        let found = faults(text);
        match across.get(name) {
            Some(_) => assert!(!found.is_empty(), "{name} need not be declared to go across tenants"),
            None => assert!(found.is_empty(), "{name}: {found:?}"),
        }
    }
    let names: BTreeSet<&str> = statements().map(|(name, _)| name).collect();
    assert!(across.keys().all(|name| names.contains(name)), "every declared statement is there");
}

#[test]
fn no_statement_about_what_is_a_tenants_stands_elsewhere() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres");
    for file in std::fs::read_dir(folder).expect("the folder is there") {
        let path = file.expect("a file").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        // What the parts in columns.rs and the texts in their own files say is checked in the statements that they are parts of.
        if [
            "statements.rs",
            "backlog_texts.rs",
            "convert_texts.rs",
            "event_texts.rs",
            "identity_texts.rs",
            "redelivery_texts.rs",
            "columns.rs",
            "plan_tests.rs",
            "payment_plan_tests.rs",
            "payment_sql.rs",
            "tenancy.rs",
        ]
        .contains(&name.as_str())
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("is read");
        for table in OF_TENANTS {
            for verb in ["FROM", "JOIN", "INTO", "UPDATE", "USING"] {
                let found = text.contains(&format!("{verb} {table} ")) || text.contains(&format!("{verb} {table}\""));
                assert!(!found, "{name} says {verb} {table}");
            }
        }
    }
}

#[test]
fn every_table_is_a_tenants_with_its_tenant_first_or_declared_not_to_be() {
    let mut seen = BTreeSet::new();
    for table in STEPS.iter().flat_map(|step| step.sql.split("CREATE TABLE ").skip(1)) {
        let (name, body) = table.split_once(" (\n").expect("a name and columns");
        let body = body.split("\n);").next().expect("an end");
        assert!(seen.insert(name), "{name} twice");
        if OTHERS.contains(&name) {
            continue;
        }
        assert!(
            OF_TENANTS.contains(&name),
            "is {name} spread by tenant or not? Say so in this file and in docs/SCALING.md"
        );
        assert!(body.trim_start().starts_with("tenant_no BIGINT "), "{name} begins with its tenant");
        let key = body.contains("PRIMARY KEY (tenant_no,") || body.contains("tenant_no BIGINT PRIMARY KEY");
        assert!(key, "the key of {name} begins with its tenant");
        for unique in body.split("UNIQUE (").skip(1) {
            let columns = unique.split(')').next().unwrap_or_default();
            assert!(columns.contains("tenant_no"), "a unique key of {name} has no tenant: {columns}");
        }
        assert!(
            !body.contains(" UNIQUE,") && !body.contains(" UNIQUE CHECK"),
            "a unique column of {name} has no tenant"
        );
        for refers in body.split("FOREIGN KEY (").skip(1) {
            assert!(refers.starts_with("tenant_no, "), "{name} refers to a row without its tenant");
        }
        assert!(!body.lines().any(|line| line.contains("REFERENCES") && !line.contains("FOREIGN KEY")), "{name}");
    }
    assert!(seen.into_iter().eq(OF_TENANTS.into_iter().chain(OTHERS).collect::<BTreeSet<_>>()));
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SCALING.md");
    let page = std::fs::read_to_string(page).expect("docs/SCALING.md is there");
    for table in OF_TENANTS.into_iter().chain(OTHERS) {
        assert!(page.contains(&format!("`{table}`")), "docs/SCALING.md does not say how {table} is spread");
    }
}

/// Statements that may read a whole table: a list whose order and end are added later, marks of a day, once for each start, and what is dead, by
/// an index that has nothing else, up to a limit.
const READS_ALL: [&str; 8] = [
    "EVENTS",
    "EVENTS_DEAD",
    "EVENTS_LOOK",
    "EVENTS_LOOK_BY_SEQ",
    "PAYMENT_ORDERS",
    "PAYMENT_ORDERS_EDGE",
    "MarksForget",
    "Waiting",
];

/// Statements that may read all rows of a tenant and take some: its sub-accounts for a list, and a look of housekeeping, once a day, when statistics have
/// told the planner better.
const PICKS: [&str; 2] = ["RulePage", "OldEvents"];

/// What a plan reads from one end to the other: a table, or an index without a condition.
fn whole<'p>(plan: &[&'p str]) -> Vec<&'p str> {
    let scans = plan.iter().enumerate().filter(|(_, line)| line.contains("Scan") && line.contains(" on "));
    let whole = scans.filter(|(at, line)| {
        let is_bound = plan
            .get(at + 1)
            .is_some_and(|next| ["Index Cond", "TID Cond"].iter().any(|bound| next.trim().starts_with(bound)));
        let has_bound_below = line.contains("Bitmap Heap Scan");
        !is_bound && !has_bound_below && !line.contains("Function Scan")
    });
    whole.map(|(_, line)| line.trim()).collect()
}

/// Rows that an index finds by their tenant alone, and of which some are wanted: it takes the longer the more the tenant has.
fn picked<'a>(plan: &[&'a str]) -> Vec<&'a str> {
    let is_of_tenant = |line: &str| {
        let bound = line.trim().strip_prefix("Index Cond: ");
        bound.is_some_and(|bound| bound.contains("tenant_no = ") && !bound.contains(" AND "))
    };
    let is_picked = |pair: &&[&'a str]| is_of_tenant(pair[0]) && pair[1].trim().starts_with("Filter: ");
    plan.windows(2).filter(is_picked).map(|pair| pair[1].trim()).collect()
}

#[test]
fn a_plan_that_reads_a_whole_table_is_found_out() {
    assert_eq!(whole(&["Limit", "  ->  Seq Scan on event e", "        Filter: x"]), ["->  Seq Scan on event e"]);
    assert_eq!(whole(&["Index Scan using event_pkey on event e", "  Filter: x"]).len(), 1);
    assert!(
        whole(&["Index Scan using event_pkey on event e", "  Index Cond: x", "Function Scan on unnest a"]).is_empty()
    );
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn statements_about_what_grows_find_their_rows_by_whole_keys() {
    let (_database, session) = plan_tests::empty().await;
    let client = session.client();
    for (name, text) in statements() {
        let types = client.prepare(text).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let nulls = vec!["NULL"; types.params().len()].join(", ");
        let call = if nulls.is_empty() { String::new() } else { format!("({nulls})") };
        client.batch_execute(&format!("PREPARE asked AS {text}")).await.expect("is prepared");
        let plan = plan_tests::lines(client, &format!("EXPLAIN (COSTS off) EXECUTE asked{call}")).await;
        client.batch_execute("DEALLOCATE asked").await.expect("is let go");
        let lines: Vec<&str> = plan.iter().map(String::as_str).collect();
        // Rows that an index found by half a key and a join then throws away: a sub-account's every version for its newest.
        // The 64 lanes do not grow: once they have been counted, reading all of them is as good as any index.
        let thrown = lines.iter().find(|line| line.contains("Join Filter") && !name.starts_with("Lanes"));
        assert!(thrown.is_none(), "{name} finds more than it joins: {lines:#?}");
        let picked = picked(&lines);
        assert!(
            picked.is_empty() || PICKS.contains(&name),
            "{name} reads all of a tenant for some: {picked:?} in {lines:#?}"
        );
        for line in whole(&lines) {
            let of = line.split(" on ").nth(1).and_then(|of| of.split(' ').next()).expect("a table");
            assert!(!OF_TENANTS.contains(&of) || READS_ALL.contains(&name), "{name}: {line} in {lines:#?}");
        }
    }
}
