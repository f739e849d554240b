//! Plans of the statements about orders, versions of rules, merchants and applications: in sessions as ours and with rows in the tables, before and
//! after the database knows how many there are.

use crate::postgres::statements::{NAMES, TEXTS};

fn text(name: &str) -> &'static str {
    let found = NAMES.iter().zip(TEXTS).find(|(of, _)| **of == name);
    found.expect("there is such a statement").1
}

/// How many rows a plan has read for nothing.
fn thrown(plan: &[String]) -> usize {
    let thrown = plan.iter().filter_map(|line| line.trim().strip_prefix("Rows Removed by Filter: "));
    thrown.map(|rows| rows.parse::<usize>().expect("a number")).sum()
}

/// How many pages the first node of a plan has looked at that this word is in, with what is below it; of an `EXPLAIN (ANALYZE, BUFFERS)`. Rows
/// that an index condition leaves out are counted nowhere else.
pub fn pages(plan: &[String], of: &str) -> usize {
    let at = plan.iter().position(|line| line.contains(of)).expect("there is such a node");
    let line = plan[at..].iter().find_map(|line| line.trim().strip_prefix("Buffers: shared "));
    let counts = line.into_iter().flat_map(|line| line.split([' ', '=']));
    let counts: Vec<&str> = counts.collect();
    let looked = counts.chunks(2).filter(|pair| ["hit", "read"].contains(&pair[0]));
    looked.map(|pair| pair[1].parse::<usize>().expect("a number")).sum()
}

/// Twenty merchants of a tenant, of whom every second has orders, a second apart; all but every fiftieth were paid at once, those two days later.
/// As many were never paid. And a merchant of another tenant with as many, drawn at the same instants.
const MANY_PAID: &str = "
    INSERT INTO merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
      SELECT n, CASE WHEN n = 21 THEN 21 ELSE 1 END, 'm' || n, CASE n WHEN 1 THEN 'institution' ELSE 'sub_account' END, 'm', '0', 0, n, true, 1, 0
      FROM generate_series(1, 21) n;
    INSERT INTO payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency, amount, status,
      created_at, expire_at, paid_at, revision, actor, request_id)
      SELECT m.tenant_no, ((n::bigint * 1000) << 19) + m.merchant_no, 0, m.merchant_no, 1, 'app', 'T-' || n, 'order', 'USDT', 1, 'PAID', 0, 0,
        1735689600000 + n * 1000 + CASE n % 50 WHEN 0 THEN 172800000 ELSE 500 END, 2, '', ''
      FROM generate_series(1, 4000) n, merchant m WHERE m.merchant_no % 2 = 1;
    INSERT INTO payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency, amount, status,
      created_at, expire_at, paid_at, revision, actor, request_id)
      SELECT tenant_no, order_no + 100, 0, merchant_no, 1, 'app', 'U' || trade_no, 'order', 'USDT', 1, 'EXPIRED', 0, 0, NULL, 2, '', ''
      FROM payment_order;";

/// A database with all tables and no rows, for as long as the first is kept.
pub async fn empty() -> (crate::testing::Database, crate::postgres::session::Session) {
    let database = crate::testing::Database::new().await;
    let dial = crate::postgres::dial::Dial::new(&database.url(), None).expect("an address");
    crate::postgres::schema::migrate(&dial).await.expect("makes the schema");
    let session = dial.session().await.expect("connects");
    // What is known of the tables is the test's to say.
    let quiet = "DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT oid::regclass FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace LOOP
            EXECUTE 'ALTER TABLE ' || name || ' SET (autovacuum_enabled = off)';
        END LOOP; END $$";
    session.client().batch_execute(quiet).await.expect("is altered");
    (database, session)
}

/// The lines of a plan.
pub async fn lines(client: &tokio_postgres::Client, asked: &str) -> Vec<String> {
    let found = client.simple_query(asked).await.expect("is planned");
    let line = |message: &tokio_postgres::SimpleQueryMessage| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    found.iter().filter_map(line).collect()
}

#[tokio::test]
async fn paid_orders_are_walked_over_by_their_indexes_whatever_is_known_of_the_tables() {
    let (_database, session) = empty().await;
    let client = session.client();
    let walks = [
        ("PaidOrdersOfMerchant", "payment_order_paid_of_merchant"),
        ("LateOrdersOfMerchant", "payment_order_late"),
        ("PaidOrdersOfTenant", "payment_order_paid_of_tenant"),
        ("LateOrdersOfTenant", "payment_order_late_of_tenant"),
    ];
    let execute = |name: &str| {
        let of = if name.ends_with("Tenant") { "1" } else { "1, 11" };
        let (after, end) = (1_000_i64 << 19, i64::MAX);
        format!("EXECUTE {name}({of}, {after}, {end}, 1735689601000, {end}, 70)")
    };
    // Planned while there is nothing, as by a server that starts anew.
    for (name, _) in walks {
        let text = text(name);
        client.batch_execute(&format!("PREPARE {name} AS {text}; {}", execute(name))).await.expect("is prepared");
    }
    for step in [MANY_PAID, "ANALYZE payment_order, merchant"] {
        client.batch_execute(step).await.expect("is done");
        for (name, index) in walks {
            let asked = format!("EXPLAIN (ANALYZE, COSTS off, TIMING off) {}", execute(name));
            let plan = lines(client, &asked).await;
            let walk = plan.iter().find(|line| line.contains("payment_order p")).expect("a walk");
            // No more is read than the page has, but for the late ones among the others.
            assert!(walk.contains(&format!("Index Scan using {index} on")) && walk.contains("rows=70"), "{plan:#?}");
            assert!(!plan.iter().any(|line| line.contains("Sort")), "{plan:#?}");
            assert!(thrown(&plan) < 30, "{plan:#?}");
            // Of two seconds long ago neither what was before them is read in the index nor what came after.
            let of = if name.ends_with("Tenant") { "1" } else { "1, 11" };
            let (after, end) = (1_900_000_i64 << 19, 1_902_000_i64 << 19);
            let asked = format!(
                "EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) EXECUTE {name}({of}, {after}, {end}, 0, {}, 70)",
                i64::MAX
            );
            let plan = lines(client, &asked).await;
            assert!(pages(&plan, "payment_order p") <= if of == "1" { 70 } else { 10 }, "{plan:#?}");
        }
    }
}

/// Orders of three institutions in turns, of which nine are open.
const MANY_CONVERTED: &str = "
    INSERT INTO merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
      SELECT n, n, 'm' || n, 'institution', 'm', '0', 0, n, true, 1, 0 FROM generate_series(1, 3) n;
    INSERT INTO order_directory (order_id, tenant_no) SELECT n * 1000, 1 + n % 3 FROM generate_series(1, 30000) n;
    INSERT INTO convert_order (tenant_no, order_id, merchant_no, user_id, sell_currency, buy_currency, sell_amount, buy_amount, status, rate,
      quote_id, created_at, revision)
      SELECT tenant_no, order_id, tenant_no, 1, 'A', 'B', 1, 1, CASE WHEN order_id % 3000000 = 0 THEN 1 ELSE 3 END, '1', 'q', 0, 1
      FROM order_directory;";

#[tokio::test]
async fn convert_orders_are_listed_by_their_indexes_whatever_is_known_of_the_tables() {
    let (_database, session) = empty().await;
    let client = session.client();
    let lists = [
        ("ConvertOrders", "order_directory_pkey", "9000000000000, 0, 51, NULL"),
        ("ConvertOrdersOpen", "convert_order_open", "9000000000000, 0, 51, 1"),
        ("ConvertOrdersOf", "convert_order_by_merchant", "9000000000000, 0, 51, NULL, 2, 2"),
        ("ConvertOrdersEdge", "order_directory_pkey", "9000000000000, 5000"),
        ("ConvertOrdersOfEdge", "convert_order_by_merchant", "9000000000000, 5000, 2, 2"),
    ];
    for (name, _, values) in lists {
        let text = text(name);
        let prepared = format!("PREPARE {name} AS {text}; EXECUTE {name}({values})");
        client.batch_execute(&prepared).await.expect("is prepared");
    }
    for step in [MANY_CONVERTED, "ANALYZE convert_order, order_directory, merchant"] {
        client.batch_execute(step).await.expect("is done");
        for (name, index, values) in lists {
            let asked = format!("EXPLAIN (ANALYZE, COSTS off, TIMING off) EXECUTE {name}({values})");
            let plan = lines(client, &asked).await;
            assert!(plan.iter().any(|line| line.contains(&format!(" using {index} on"))), "{name}: {plan:#?}");
            let is_bad = |line: &String| ["Sort", "Seq Scan", "Hash"].iter().any(|word| line.contains(word));
            assert!(!plan.iter().any(is_bad), "{name}: {plan:#?}");
            assert_eq!(thrown(&plan), 0, "{name}: {plan:#?}");
        }
    }
}

/// Thirty thousand orders of one sub-account, and three of another that nobody has counted yet.
const ONE_CONVERTS_MOST: [&str; 2] = [
    "INSERT INTO merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
       SELECT n, 1, 'm' || n, CASE n WHEN 1 THEN 'institution' ELSE 'sub_account' END, 'm', '0', 0, n, true, 1, 0 FROM generate_series(1, 3) n;
     INSERT INTO convert_order (tenant_no, order_id, merchant_no, user_id, sell_currency, buy_currency, sell_amount, buy_amount, status, rate,
       quote_id, created_at, revision)
       SELECT 1, n * 1000, 2, 1, 'A', 'B', 1, 1, 3, '1', 'q', 0, 1 FROM generate_series(1, 30000) n;
     ANALYZE convert_order, merchant",
    "INSERT INTO convert_order (tenant_no, order_id, merchant_no, user_id, sell_currency, buy_currency, sell_amount, buy_amount, status, rate,
       quote_id, created_at, revision) SELECT 1, n, 3, 1, 'A', 'B', 1, 1, 3, '1', 'q', 0, 1 FROM generate_series(1, 3) n",
];

#[tokio::test]
async fn convert_orders_of_a_small_sub_account_are_found_without_those_of_a_large_one() {
    let (_database, session) = empty().await;
    let client = session.client();
    for step in ONE_CONVERTS_MOST {
        client.batch_execute(step).await.expect("is done");
    }
    for (name, values) in [
        ("ConvertOrdersOf", "9000000000000, 0, 51, NULL, 3, 1"),
        ("ConvertOrdersOf", "9000000000000, 0, 51, 3, 3, 1"),
        ("ConvertOrdersOfEdge", "9000000000000, 1000, 3, 1"),
    ] {
        let text = text(name);
        client.batch_execute(&format!("DEALLOCATE ALL; PREPARE {name} AS {text}")).await.expect("is prepared");
        let asked = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) EXECUTE {name}({values})");
        let plan = lines(client, &asked).await;
        assert_eq!(thrown(&plan), 0, "{name}: {plan:#?}");
        assert!(pages(&plan, "on convert_order") < 20, "{name}: {plan:#?}");
    }
}

/// A hundred plain merchants and institutions among thirty thousand sub-accounts, most of one institution; each with an application, of which ten
/// are paused, and one merchant with two thousand more.
const MANY_MERCHANTS: &str = "
    INSERT INTO merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
      SELECT n, n, 'm' || n, CASE n % 2 WHEN 0 THEN 'institution' ELSE 'merchant' END, 'm', '0', 0, n, true, 1, 0 FROM generate_series(1, 100) n;
    INSERT INTO merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
      SELECT n, CASE WHEN n % 300 = 0 THEN 4 ELSE 2 END, 'm' || n, 'sub_account', 'm', '0', 0, n, true, 1, 0 FROM generate_series(101, 30100) n;
    INSERT INTO application (tenant_no, application_no, client_id, merchant_no, name, enabled, callback_enabled, callback_encoding,
      callback_vocabulary, revision, created_at)
      SELECT tenant_no, merchant_no, 'app' || merchant_no, merchant_no, 'a', true, merchant_no % 3000 > 0, 'hex', 'standard', 1, 0 FROM merchant;
    INSERT INTO application (tenant_no, application_no, client_id, merchant_no, name, enabled, callback_enabled, callback_encoding,
      callback_vocabulary, revision, created_at)
      SELECT 7, 100000 + n, 'app' || (100000 + n), 7, 'a', true, true, 'hex', 'standard', 1, 0 FROM generate_series(1, 2000) n;";

#[tokio::test]
async fn merchants_and_applications_are_listed_by_their_indexes_whatever_is_known_of_the_tables() {
    let (_database, session) = empty().await;
    let client = session.client();
    let lists = [
        ("Institutions", "merchant_institutions on merchant m", "0, 51"),
        ("MerchantsPlain", "merchant_plain on merchant m", "0, 51"),
        ("ChainOwners", "merchant_institutions on merchant", "0, 51"),
        ("MerchantsUnder", "merchant_tenant_no_merchant_no_key on merchant m", "0, 51, 'sub_account', 4"),
        ("Merchants", "merchant_pkey on merchant m", "0, 51"),
        ("ApplicationsOf", "application_of_merchant on application", "100000, 51, NULL, 7"),
        ("ApplicationsPaused", "application_paused on application", "0, 51"),
        ("Applications", "application_pkey on application", "0, 51, NULL"),
        ("ClientIds", "application_pkey on application", "0, 51"),
        ("ApplicationsLock", "application_tenant_no_application_no_key on application", "2"),
        ("ApplicationsLockOf", "application_of_merchant on application", "2, 500"),
        ("DeliveriesTurnOf", "application_of_merchant on application", "2, 500, 1"),
        ("RulePageOfOne", "merchant_merchant_id_key on merchant m", "2, 'm500'"),
    ];
    for (name, _, values) in lists {
        let prepared = format!("PREPARE {name} AS {}; EXECUTE {name}({values})", text(name));
        client.batch_execute(&prepared).await.expect("is prepared");
    }
    for step in [MANY_MERCHANTS, "ANALYZE application, merchant"] {
        client.batch_execute(step).await.expect("is done");
        for (name, index, values) in lists {
            let asked = format!("EXPLAIN (ANALYZE, COSTS off, TIMING off) EXECUTE {name}({values})");
            let plan = lines(client, &asked).await;
            assert!(plan.iter().any(|line| line.contains(&format!(" using {index}"))), "{name}: {plan:#?}");
            assert!(thrown(&plan) <= 1, "{name}: {plan:#?}");
        }
    }
}

/// A sub-account with thirty thousand versions, a second apart.
const MANY_VERSIONS: &str = "
    INSERT INTO merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
      VALUES (1, 1, 'i', 'institution', 'i', '0', 0, 1, true, 1, 0), (2, 1, 's', 'sub_account', 's', '0', 0, 2, true, 1, 0);
    INSERT INTO fee_rule (tenant_no, merchant_no, version_no, config_id, previous_config_id, r_markup, f_markup, effective_at, created_at)
      SELECT 1, 2, n, decode(lpad(to_hex(n), 32, '0'), 'hex'), CASE WHEN n > 1 THEN decode(lpad(to_hex(n - 1), 32, '0'), 'hex') END, '0', 0,
        n * 1000, n * 1000 FROM generate_series(1, 30000) n;";

#[tokio::test]
async fn the_version_in_force_long_ago_is_found_near_to_where_the_walk_begins() {
    let (_database, session) = empty().await;
    let client = session.client();
    let prepared = format!("PREPARE by AS {}; EXECUTE by(1, 2, 5000)", text("RuleHeadBy"));
    client.batch_execute(&prepared).await.expect("is prepared");
    for step in [MANY_VERSIONS, "ANALYZE fee_rule, merchant"] {
        client.batch_execute(step).await.expect("is done");
        for second in [1, 15_000, 29_999] {
            let asked = format!("EXPLAIN (ANALYZE, COSTS off, TIMING off) EXECUTE by(1, 2, {second}999)");
            let plan = lines(client, &asked).await;
            assert!(plan.iter().any(|line| line.contains(" using fee_rule_by_creation on")), "{plan:#?}");
            assert!(thrown(&plan) <= 64, "{plan:#?}");
        }
    }
}

/// Eighty institutions with forty sub-accounts each, of which each has an order of every number, and one has six thousand more.
const ONE_OF_MANY: &str = "
    INSERT INTO merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
      SELECT n, 1 + n % 80, 'm' || n, CASE WHEN n <= 80 THEN 'institution' ELSE 'sub_account' END, 'm', '0', 0, n, true, 1, 0
      FROM generate_series(1, 3280) n;
    INSERT INTO payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency, amount, status,
      created_at, expire_at, paid_at, revision, actor, request_id)
      SELECT 1 + n % 80, n * 10 + k, 0, n, 1, 'app', 'T-' || k, 'order', 'USDT', 1, 'PENDING', 0, 0, NULL, 1, '', ''
      FROM generate_series(1, 3280) n, generate_series(1, 3) k;
    INSERT INTO payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency, amount, status,
      created_at, expire_at, paid_at, revision, actor, request_id)
      SELECT 1 + 200 % 80, 100000 + n, 0, 200, 1, 'app', 'U-' || n, 'order', 'USDT', 1, 'PENDING', 0, 0, NULL, 1, '', ''
      FROM generate_series(1, 6000) n;";

#[tokio::test]
async fn an_order_is_found_by_its_trade_number_however_many_its_merchant_has() {
    let (_database, session) = empty().await;
    let client = session.client();
    // Tenant 41 and merchant 200.
    let looks = [
        ("PaymentOrderByTradeNo", "41, 200, 'U-3000'"),
        ("PaymentOrdersTaken", "ARRAY[41], ARRAY[200], ARRAY['U-3000'], ARRAY[103000]"),
    ];
    for (name, values) in looks {
        let prepared = format!("PREPARE {name} AS {}; EXECUTE {name}({values})", text(name));
        client.batch_execute(&prepared).await.expect("is prepared");
    }
    for step in [ONE_OF_MANY, "ANALYZE payment_order, merchant"] {
        client.batch_execute(step).await.expect("is done");
        for (name, values) in looks {
            let plan =
                lines(client, &format!("EXPLAIN (ANALYZE, COSTS off, TIMING off) EXECUTE {name}({values})")).await;
            let reads = plan.iter().filter(|line| line.contains(" on payment_order "));
            let (by, rows): (Vec<&String>, Vec<&String>) = reads.partition(|line| {
                line.contains("payment_order_trade_no_tenant_no_merchant_no_key")
                    || line.contains("payment_order_by_no")
            });
            assert!(!by.is_empty() && rows.is_empty(), "{name} goes by another index: {plan:#?}");
            assert_eq!(thrown(&plan), 0, "{name}: {plan:#?}");
            assert!(by.iter().all(|line| line.contains("rows=1 ")), "{name} finds it: {plan:#?}");
        }
    }
}
