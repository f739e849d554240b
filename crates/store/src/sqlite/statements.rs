//! The SQL of writes and of their guards, each prepared once by the writer.

use rusqlite::{Connection, PrepFlags, Statement};

use crate::conditions::is_too_old;

macro_rules! statements {
    ($($name:ident: $sql:expr;)*) => {
        /// A statement of the writer.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Sql { $($name),* }

        const TEXTS: &[&str] = &[$($sql),*];
    };
}

/// Notes a turn of the applications that have open deliveries: of a tenant, or of one of its merchants.
macro_rules! deliveries_turn {
    ($due_at:literal, $of:literal) => {
        concat!(
            "INSERT INTO delivery_turn (tenant_no, application_no, due_at) SELECT a.tenant_no, a.application_no, ",
            $due_at,
            " FROM application a WHERE a.tenant_no = ?1 ",
            $of,
            " AND (EXISTS (SELECT 1 FROM delivery d WHERE d.application_no = a.application_no AND d.state = 'pending')
                OR EXISTS (SELECT 1 FROM delivery d WHERE d.application_no = a.application_no AND d.state = 'held'))
              ON CONFLICT (tenant_no, application_no) DO UPDATE SET due_at = excluded.due_at"
        )
    };
}

statements! {
    Begin: "BEGIN IMMEDIATE";
    Commit: "COMMIT";
    Savepoint: "SAVEPOINT batch";
    SavepointRelease: "RELEASE batch";
    SavepointUndo: "ROLLBACK TO batch";

    NonceInsert: "INSERT INTO nonce (claim, stamped_at) VALUES (?1, ?2)";
    NonceOldest: "SELECT nonce_no, stamped_at FROM nonce WHERE nonce_no > ?1 ORDER BY nonce_no LIMIT ?2";
    NonceNewest: "SELECT nonce_no, stamped_at FROM nonce ORDER BY nonce_no DESC LIMIT 1";
    NonceDelete: "DELETE FROM nonce WHERE nonce_no BETWEEN ?1 AND ?2 AND stamped_at <= ?3";
    NonceLeft: "SELECT min(stamped_at), min(nonce_no), max(nonce_no) FROM nonce WHERE nonce_no BETWEEN ?1 AND ?2";
    RaiseMark: "UPDATE replay SET mark = max(mark, ?1)";
    RaiseHorizon: "UPDATE replay SET horizon = max(horizon, ?1)";

    HeadSelect: "SELECT version_no, last_no, base_version_no, base_no FROM fee_rule_head
                 WHERE merchant_no = ?1 AND tenant_no = ?2";
    HeadInsert: "INSERT INTO fee_rule_head (tenant_no, merchant_no, version_no, last_no, base_version_no, base_no)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    HeadUpdate: "UPDATE fee_rule_head SET version_no = ?2, last_no = ?3, base_version_no = ?4, base_no = ?5
                 WHERE merchant_no = ?1";
    LastPaid: "SELECT paid_at FROM last_paid WHERE merchant_no = ?1 AND tenant_no = ?2";
    LastPaidPut: "INSERT INTO last_paid (tenant_no, merchant_no, paid_at) VALUES (?1, ?2, ?3)
                  ON CONFLICT (merchant_no) DO UPDATE SET paid_at = max(paid_at, excluded.paid_at)";
    RuleInsert: "INSERT INTO fee_rule (tenant_no, merchant_no, version_no, previous_no, base_no, config_id,
                 previous_config_id, base_version_no, r_markup, f_markup, effective_at, due_at, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    RuleFind: "WITH RECURSIVE back (rule_no, previous_no, version_no) AS (
                 SELECT rule_no, previous_no, version_no FROM fee_rule WHERE rule_no = ?1
                 UNION ALL
                 SELECT f.rule_no, f.previous_no, f.version_no FROM back CROSS JOIN fee_rule f
                   ON f.rule_no = back.previous_no WHERE back.version_no > ?2)
               SELECT rule_no FROM back WHERE version_no = ?2";

    MerchantTaken: "SELECT 1 FROM merchant WHERE merchant_no = ?1 OR merchant_id = ?2";
    MerchantOfTenant: "SELECT 1 FROM merchant WHERE merchant_no = ?1 AND tenant_no = ?2";
    MerchantInsert: "INSERT INTO merchant (tenant_no, merchant_no, merchant_id, kind, name, base_r, base_f, user_id,
                     enabled, revision, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    MerchantRevision: "SELECT revision FROM merchant WHERE merchant_no = ?1";
    MerchantUpdate: "UPDATE merchant SET name = ?2, enabled = ?3, revision = ?4, base_r = ?5, base_f = ?6 WHERE merchant_no = ?1";
    // Of a tenant, or of one of its merchants.
    ApplicationsTouch: "UPDATE application SET revision = revision + 1 WHERE tenant_no = ?1";
    ApplicationsTouchOf: "UPDATE application SET revision = revision + 1 WHERE tenant_no = ?1 AND merchant_no = ?2";
    DeliveriesTurn: deliveries_turn!("?2", "");
    DeliveriesTurnOf: deliveries_turn!("?3", "AND a.merchant_no = ?2");

    ApplicationTaken: "SELECT 1 FROM application WHERE application_no = ?1 OR client_id = ?2";
    ApplicationOfTenant: "SELECT 1 FROM application WHERE application_no = ?1 AND tenant_no = ?2";
    ApplicationRevision: "SELECT revision FROM application WHERE application_no = ?1";
    ApplicationInsert: "INSERT INTO application (tenant_no, application_no, client_id, merchant_no, name, enabled,
                        callback_url, callback_enabled, callback_gone_at, callback_encoding, callback_vocabulary, timestamp_tolerance_ms,
                        tolerance_before_ms, tolerance_raised_at, rate_limit_per_s, callback_rate_per_s, callback_concurrency, callback_schedule,
                        revision, created_at)
                        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)";
    ApplicationUpdate: "UPDATE application SET name = ?2, enabled = ?3, callback_url = ?4, callback_enabled = ?5, callback_gone_at = ?6,
                        callback_encoding = ?7, callback_vocabulary = ?8, timestamp_tolerance_ms = ?9,
                        tolerance_before_ms = ?10, tolerance_raised_at = ?11, rate_limit_per_s = ?12, callback_rate_per_s = ?13,
                        callback_concurrency = ?14, callback_schedule = ?15, revision = ?16
                        WHERE application_no = ?1";

    SecretThere: "SELECT 1 FROM secret WHERE secret_id = ?1";
    SecretInsert: "INSERT INTO secret (application_no, secret_id, key_id, sealed, fingerprint, last4, signs_callbacks,
                   created_at, not_after, revoked_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    SecretUsed: "UPDATE secret SET last_used_at = max(iif(last_used_at > ?3, ?4, coalesce(last_used_at, 0)), ?2) WHERE secret_id = ?1";
    SecretUseAdd: "INSERT INTO secret_use (secret_id, minute, uses) SELECT secret_id, ?2, ?3 FROM secret WHERE secret_id = ?1
                   ON CONFLICT (secret_id, minute) DO UPDATE SET uses = uses + excluded.uses";
    SecretUsesForget: "DELETE FROM secret_use WHERE (secret_id, minute) IN (SELECT secret_id, minute FROM secret_use
                       WHERE minute < ?1 ORDER BY minute, secret_id LIMIT ?2)";
    SecretUpdate: "UPDATE secret SET not_after = ?2, revoked_at = ?3, signs_callbacks = ?4 WHERE secret_id = ?1";

    SecretUnder: "SELECT 1 FROM secret WHERE secret_id = ?1 AND key_id = ?2";
    SecretRewrap: "UPDATE secret SET key_id = ?2, sealed = ?3 WHERE secret_id = ?1";

    TokenTaken: "SELECT 1 FROM operator_token WHERE token_id = ?1 OR digest = ?2";
    TokenLive: "SELECT 1 FROM operator_token WHERE token_id = ?1 AND revoked_at IS NULL";
    TokenInsert: "INSERT INTO operator_token (token_id, name, digest, role, created_at, expires_at, revoked_at)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    TokenRevoke: "UPDATE operator_token SET revoked_at = ?2 WHERE token_id = ?1";
    TokenUsed: "UPDATE operator_token SET last_used_at = max(iif(last_used_at > ?3, ?4, coalesce(last_used_at, 0)), ?2) WHERE token_id = ?1";

    OrderTaken: "SELECT 1 FROM convert_order WHERE order_id = ?1";
    OrderRevision: "SELECT revision FROM convert_order WHERE order_id = ?1 AND tenant_no = ?2";
    OrderInsert: "INSERT INTO convert_order (tenant_no, order_id, merchant_no, user_id, sell_currency, buy_currency,
                  sell_amount, buy_amount, status, rate, quote_id, created_at, revision)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    OrderUpdate: "UPDATE convert_order SET status = ?2, revision = ?3 WHERE order_id = ?1";
    OrderMove: "INSERT INTO convert_order_move (tenant_no, order_id, revision, status, at) VALUES (?1, ?2, ?3, ?4, ?5)";

    RateRevision: "SELECT revision FROM pair_rate WHERE pair = ?1";
    RateUntold: "SELECT 1 FROM pair_rate WHERE pair = ?1 AND revision = ?2 AND stale_told < ?2";
    RateTold: "UPDATE pair_rate SET stale_told = ?2 WHERE pair = ?1";
    RatePut: "INSERT INTO pair_rate (pair, rate, base_min, base_max, quote_min, quote_max, revision, stale_told, updated_at)
              VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8) ON CONFLICT (pair) DO UPDATE SET rate = excluded.rate,
              base_min = excluded.base_min, base_max = excluded.base_max, quote_min = excluded.quote_min,
              quote_max = excluded.quote_max, revision = excluded.revision, updated_at = excluded.updated_at";
    QuoteTaken: "SELECT 1 FROM convert_quote WHERE merchant_no = ?1 AND quote_id = ?2";
    QuoteInsert: "INSERT INTO convert_quote (tenant_no, merchant_no, quote_id, pair, sell_currency, buy_currency, sell_amount,
                  buy_amount, rate, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    QuotesForget: "DELETE FROM convert_quote WHERE (merchant_no, quote_id) IN (SELECT merchant_no, quote_id FROM convert_quote
                   WHERE tenant_no = ?1 AND expires_at < ?2 ORDER BY expires_at, merchant_no, quote_id LIMIT ?3)";
    QuoteUnused: "SELECT 1 FROM convert_quote WHERE merchant_no = ?1 AND quote_id = ?2 AND tenant_no = ?3 AND order_id IS NULL";
    QuoteUse: "UPDATE convert_quote SET order_id = ?3 WHERE merchant_no = ?1 AND quote_id = ?2";
    ConvertRequestTaken: "SELECT 1 FROM convert_request WHERE merchant_no = ?1 AND client_req_id = ?2";
    ConvertRequestInsert: "INSERT INTO convert_request (tenant_no, merchant_no, client_req_id, order_id) VALUES (?1, ?2, ?3, ?4)";
    PaymentOrderTaken: "SELECT 1 FROM payment_order WHERE order_no = ?1";
    TradeNoTaken: "SELECT 1 FROM payment_order WHERE trade_no = ?1 AND merchant_no = ?2";
    PaymentOrderRevision: "SELECT revision FROM payment_order WHERE order_no = ?1 AND tenant_no = ?2 AND merchant_no = ?3";
    PaymentOrderInsert: "INSERT INTO payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency,
                         amount, merchant_user_id, channel_id, goods_name, goods_detail, terminal_type, return_url, cancel_url, status,
                         created_at, expire_at, revision, actor, request_id)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)";
    PaymentOrderRequest: "INSERT INTO payment_order_request (tenant_no, order_no, request_head, request_body) VALUES (?1, ?2, ?3, ?4)";
    PaymentOrderUpdate: "UPDATE payment_order SET status = ?2, actual_amount = ?3, transact_at = ?4, paid_at = ?5, fee_config_id = ?6,
                         fee_version_no = ?7, fee_r_markup = ?8, fee_f_markup = ?9, r_fee = ?10, f_fee = ?11, worked_sum = ?12,
                         revision = ?13 WHERE order_no = ?1";
    PaymentOrderMove: "INSERT INTO payment_order_move (tenant_no, order_no, revision, was, status, at, actor, request_id)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

    EventTaken: "SELECT 1 FROM event WHERE event_no = ?1 UNION ALL SELECT 1 FROM event WHERE event_id = ?2";
    EventCounted: "SELECT seq FROM event_counter WHERE application_no = ?1";
    EventCountPut: "INSERT INTO event_counter (tenant_no, application_no, seq) VALUES (?1, ?2, ?3)
                    ON CONFLICT (application_no) DO UPDATE SET seq = excluded.seq";
    BizCountInsert: "INSERT INTO biz_counter (tenant_no, application_no, biz_id, sequence) VALUES (?1, ?2, ?3, 1)
                     ON CONFLICT (biz_id, application_no) DO NOTHING";
    BizCountUpdate: "UPDATE biz_counter SET sequence = sequence + 1 WHERE biz_id = ?3 AND application_no = ?2 AND tenant_no = ?1";
    BizCounted: "SELECT sequence FROM biz_counter WHERE biz_id = ?2 AND application_no = ?1";
    EventInsert: "INSERT INTO event (tenant_no, event_no, application_no, client_id, event_id, seq, sequence, biz_type,
                  biz_id, biz_status, data, body, created_at)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    DeliveryInsert: "INSERT INTO delivery (tenant_no, event_no, application_no, state, attempts, due_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    DeliverySelect: "SELECT attempts, state FROM delivery WHERE event_no = ?1 AND tenant_no = ?2";
    DeliveryAwaits: "SELECT 1 FROM delivery WHERE event_no = ?1 AND tenant_no = ?2 AND state = 'pending' AND attempts = ?3 AND due_at = ?4
                     AND behind_no IS NULL";
    DeliveryUpdate: "UPDATE delivery SET state = ?2, attempts = ?3, due_at = ?4, behind_no = NULL,
                     by_hand = (by_hand AND (?2 = 'pending' OR ?2 = 'held')) WHERE event_no = ?1 AND tenant_no = ?5 AND attempts = ?3 - 1
                     AND (state = 'pending' OR state = 'held' OR state = 'delivered' OR state = 'dead')";
    DeliveryFollowers: "SELECT event_no FROM delivery WHERE behind_no = ?1";
    DeliveryFollow: "UPDATE delivery SET due_at = min(due_at, ?2), behind_no = NULL WHERE event_no = ?1";
    DeliveryDefer: "UPDATE delivery SET due_at = ?3, behind_no = ?2 WHERE event_no = ?1";
    DeliveryAgain: "UPDATE delivery SET state = 'pending', due_at = ?2, by_hand = 1 WHERE event_no = ?1";
    DeliverySoon: "UPDATE delivery SET due_at = min(due_at, ?2) WHERE event_no = ?1";
    DeliveryTurn: "INSERT INTO delivery_turn (tenant_no, application_no, due_at)
                   SELECT tenant_no, application_no, ?3 FROM application WHERE application_no = ?2 AND tenant_no = ?1
                   ON CONFLICT (tenant_no, application_no) DO UPDATE SET due_at = excluded.due_at";
    DeliveryRelease: "UPDATE delivery SET state = 'pending', due_at = ?3 WHERE event_no IN (SELECT event_no FROM delivery
                      WHERE application_no = ?2 AND state = 'held' AND tenant_no = ?1 ORDER BY event_no LIMIT ?4)";
    DeliveryHold: "UPDATE delivery SET state = 'held', due_at = NULL, behind_no = NULL WHERE event_no IN (SELECT event_no FROM delivery
                   WHERE application_no = ?2 AND state = 'pending' AND tenant_no = ?1
                   ORDER BY min(attempts, 1), due_at, event_no LIMIT ?3)";
    TurnReleased: "DELETE FROM delivery_turn WHERE tenant_no = ?1 AND application_no = ?2 AND NOT EXISTS
                   (SELECT 1 FROM delivery WHERE application_no = ?2 AND state = 'held' AND tenant_no = ?1)";
    TurnHeld: "DELETE FROM delivery_turn WHERE tenant_no = ?1 AND application_no = ?2 AND NOT EXISTS
               (SELECT 1 FROM delivery WHERE application_no = ?2 AND state = 'pending' AND tenant_no = ?1)";
    AttemptInsert: "INSERT INTO attempt (tenant_no, event_no, attempt, at, outcome, http_status, duration_ms, address,
                    detail, fence, dns_us, connect_us, tls_us, first_byte_us, total_us, reused)
                    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
    BytesInsert: "INSERT INTO attempt_bytes (tenant_no, event_no, attempt, at, sent_head, answer_head, answer_body, answer_length,
                  is_cut) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    BytesForget: "DELETE FROM attempt_bytes WHERE rowid IN (SELECT rowid FROM attempt_bytes
                  WHERE tenant_no = ?1 AND at < ?2 ORDER BY at LIMIT ?3)";
    EventsOldest: concat!(
        "SELECT e.event_no, ", is_too_old!("?3", "?5"), ", d.state = 'held' FROM event e
         LEFT JOIN delivery d ON d.event_no = e.event_no
         WHERE e.application_no = ?2 AND e.tenant_no = ?1 ORDER BY e.seq LIMIT ?4"
    );
    EventBytesDelete: "DELETE FROM attempt_bytes WHERE rowid IN (SELECT b.rowid FROM attempt a JOIN attempt_bytes b
                       ON b.tenant_no = a.tenant_no AND b.at = a.at AND b.event_no = a.event_no AND b.attempt = a.attempt
                       WHERE a.event_no = ?1)";
    EventAttemptsDelete: "DELETE FROM attempt WHERE event_no = ?1";
    EventDeliveryDelete: "DELETE FROM delivery WHERE event_no = ?1";
    EventDelete: "DELETE FROM event WHERE event_no = ?1";

    RedeliveryTaken: "SELECT 1 FROM redelivery WHERE redelivery_id = ?3 UNION ALL SELECT 1 FROM redelivery
                      WHERE tenant_no = ?1 AND application_no = ?2 AND state = 'running'";
    RedeliveryAt: "SELECT 1 FROM redelivery WHERE redelivery_id = ?1 AND tenant_no = ?2 AND application_no = ?3
                   AND state = 'running' AND cursor_seq = ?4";
    RedeliveryInsert: "INSERT INTO redelivery (tenant_no, redelivery_id, application_no, client_id, of_state, biz_id, from_at, to_at,
                       rate_per_s, from_seq, through_seq, cursor_seq, found, is_at_least, done, state, created_at, of_outcome, of_http_status)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?11, ?10, ?11, ?12, ?13, 0, 'running', ?14, ?15, ?16)";
    RedeliveryMove: "UPDATE redelivery SET cursor_seq = ?2, done = done + ?3, ended_at = ?4,
                     state = CASE WHEN ?4 IS NULL THEN state ELSE 'done' END WHERE redelivery_id = ?1";
    RedeliveryStop: "UPDATE redelivery SET state = 'stopped', ended_at = ?2 WHERE redelivery_id = ?1";
    DeliveryAgainFrom: "UPDATE delivery SET state = 'pending', due_at = ?3, by_hand = 1, redelivery_id = ?6
                        WHERE event_no = ?1 AND state = ?2 AND tenant_no = ?4 AND application_no = ?5";

    AnswerTaken: "SELECT 1 FROM idempotency WHERE scope = ?1 AND key = ?2 AND created_at >= ?3";
    AnswerInsert: "INSERT INTO idempotency (scope, key, body_digest, status, answer, created_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (scope, key) DO UPDATE SET body_digest = excluded.body_digest,
                   status = excluded.status, answer = excluded.answer, created_at = excluded.created_at";
    AnswersForget: "DELETE FROM idempotency WHERE (scope, key) IN (SELECT scope, key FROM idempotency
                    WHERE created_at < ?1 ORDER BY created_at, scope, key LIMIT ?2)";
    AuditHead: "SELECT audit_no, link FROM audit_head WHERE tenant_no = ?1";
    AuditHeadPut: "INSERT INTO audit_head (tenant_no, audit_no, link) VALUES (?1, ?2, ?3)
                   ON CONFLICT (tenant_no) DO UPDATE SET audit_no = excluded.audit_no, link = excluded.link";
    AuditInsert: "INSERT INTO audit (tenant_no, audit_no, at, actor, source, action, subject, before, after, request_id, link)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    SettingGet: "SELECT value FROM setting WHERE name = ?1";
    SettingPut: "INSERT INTO setting (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
}

/// The statements of one connection, prepared when first wanted and kept. SQLite is told that they are: else they would take the connection's
/// small allocations (its lookaside) for themselves, and whatever runs would ask the system for memory.
pub(super) struct Kept<'c> {
    conn: &'c Connection,
    made: Vec<Option<Statement<'c>>>,
}

impl<'c> Kept<'c> {
    pub(super) fn new(conn: &'c Connection) -> Self {
        Self { conn, made: TEXTS.iter().map(|_| None).collect() }
    }

    pub(super) const fn conn(&self) -> &'c Connection {
        self.conn
    }

    pub(super) fn get(&mut self, sql: Sql) -> rusqlite::Result<&mut Statement<'c>> {
        let at = sql as usize;
        let place = &mut self.made[at];
        match place {
            Some(made) => Ok(made),
            None => Ok(place.insert(self.conn.prepare_with_flags(TEXTS[at], PrepFlags::SQLITE_PREPARE_PERSISTENT)?)),
        }
    }

    /// Runs a statement without result rows.
    pub(super) fn run(&mut self, sql: Sql, params: impl rusqlite::Params) -> rusqlite::Result<usize> {
        self.get(sql)?.execute(params)
    }

    /// Whether a statement finds a row.
    pub(super) fn finds(&mut self, sql: Sql, params: impl rusqlite::Params) -> rusqlite::Result<bool> {
        self.get(sql)?.exists(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema;

    #[test]
    fn every_statement_fits_the_schema() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        for text in TEXTS {
            conn.prepare(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }

    #[test]
    fn what_is_written_for_an_order_or_a_callback_makes_no_table_on_the_way() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        let opens_a_table = |text: &str| {
            let mut program = conn.prepare(&format!("EXPLAIN {text}")).expect("prepares");
            let values = vec![1; program.parameter_count()];
            let lines = program.query_map(rusqlite::params_from_iter(values), |row| row.get(1)).expect("reads");
            lines.map(|line| line.expect("reads")).any(|opcode: String| opcode == "OpenEphemeral")
        };
        // What an UPDATE finds by a column that it changes is collected first.
        assert!(opens_a_table("UPDATE delivery SET behind_no = NULL WHERE behind_no = ?1"));
        for sql in [
            Sql::PaymentOrderInsert,
            Sql::PaymentOrderRequest,
            Sql::PaymentOrderUpdate,
            Sql::PaymentOrderMove,
            Sql::OrderInsert,
            Sql::OrderUpdate,
            Sql::OrderMove,
            Sql::EventCountPut,
            Sql::BizCountInsert,
            Sql::BizCountUpdate,
            Sql::EventInsert,
            Sql::DeliveryInsert,
            Sql::DeliveryUpdate,
            Sql::DeliveryFollowers,
            Sql::DeliveryFollow,
            Sql::AttemptInsert,
            Sql::BytesInsert,
            Sql::AuditHeadPut,
            Sql::AuditInsert,
            Sql::RuleInsert,
        ] {
            assert!(!opens_a_table(TEXTS[sql as usize]), "{sql:?}");
        }
    }

    #[test]
    fn a_portion_of_any_backlog_is_found_by_its_index_and_sorts_nothing() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        for (sql, indexes) in [
            (Sql::DeliveryHold, &["delivery_next"][..]),
            (Sql::DeliveryRelease, &["delivery_held"]),
            (Sql::TurnHeld, &["delivery_next"]),
            (Sql::TurnReleased, &["delivery_held"]),
            (Sql::DeliveriesTurn, &["delivery_next", "delivery_held"]),
            (Sql::DeliveriesTurnOf, &["delivery_next", "delivery_held"]),
        ] {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {}", TEXTS[sql as usize])).expect("prepares");
            let values = vec![1; plan.parameter_count()];
            let lines = plan.query_map(rusqlite::params_from_iter(values), |row| row.get(3)).expect("reads");
            let lines: Vec<String> = lines.map(|line| line.expect("reads")).collect();
            for index in indexes {
                let uses = |line: &String| {
                    line.starts_with("SEARCH ") && line.contains(&format!("INDEX {index} (application_no=?"))
                };
                assert!(lines.iter().any(uses), "{sql:?} does not use {index}: {lines:#?}");
            }
            assert!(!lines.iter().any(|line| line.contains("TEMP B-TREE")), "{sql:?} sorts: {lines:#?}");
        }
    }

    #[test]
    fn a_change_of_a_merchant_looks_at_its_own_applications_alone() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        for (sql, key) in [
            (Sql::ApplicationsTouch, "(tenant_no=?)"),
            (Sql::DeliveriesTurn, "(tenant_no=?)"),
            (Sql::ApplicationsTouchOf, "(tenant_no=? AND merchant_no=?)"),
            (Sql::DeliveriesTurnOf, "(tenant_no=? AND merchant_no=?)"),
        ] {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {}", TEXTS[sql as usize])).expect("prepares");
            let values = vec![1; plan.parameter_count()];
            let lines = plan.query_map(rusqlite::params_from_iter(values), |row| row.get(3)).expect("reads");
            let lines: Vec<String> = lines.map(|line| line.expect("reads")).collect();
            assert!(!lines.iter().any(|line| line.starts_with("SCAN")), "{sql:?}: {lines:#?}");
            let looks = lines.iter().any(|line| line.contains("INDEX application_of_tenant") && line.ends_with(key));
            assert!(looks, "{sql:?}: {lines:#?}");
        }
    }
}
