//! The SQL of every read and write, each prepared once on a connection.
//!
//! Reads are named after the verbs of the store. Writes of a group take one array per column; those of a batch that runs alone take values. Rows are
//! locked in one order everywhere: nonces, what was paid last, rule heads, payment orders, lanes, deliveries, applications, tokens, redeliveries, requests of
//! conversions and their quotes, rates, events' counters, heads of the audit log, the directory; within each by key. Whatever belongs to a tenant is joined,
//! guarded and found by it. Times are the database's own: `clock_timestamp()`, in ms.

use super::backlog_texts as backlog;
use super::convert_texts as texts;
use super::event_texts as events;
use super::heartbeat_texts as heartbeats;
use super::identity_texts as identity;
use super::payment_sql as payment;
use super::redelivery_texts as redelivery;
use crate::conditions::is_too_old;

macro_rules! statements {
    ($($name:ident: $sql:expr;)*) => {
        /// A statement.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Sql { $($name),* }

        /// Their texts, in the order of [`Sql`].
        pub(super) const TEXTS: &[&str] = &[$($sql),*];

        /// Their names, in the same order.
        #[cfg(test)]
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

statements! {
    Ping: "SELECT w.name, w.id IS NULL FROM (SELECT name, to_regclass(quote_ident(current_schema()) || '.' || quote_ident(name))::oid AS id
             FROM unnest($1::text[]) AS u (name)) w
           WHERE w.id IS NULL OR NOT (has_table_privilege(w.id, 'SELECT') AND has_table_privilege(w.id, 'INSERT')
             AND has_table_privilege(w.id, 'UPDATE') AND has_table_privilege(w.id, 'DELETE'))";
    Setting: "SELECT name, value FROM setting WHERE name = $1";
    Application: application_select!(
        "(SELECT * FROM application WHERE client_id = (SELECT coalesce(f.client_id, d.client_id) FROM \
         (SELECT client_id FROM application ORDER BY application_no LIMIT 1) d LEFT JOIN application f ON f.client_id = $1))"
    );
    Applications: identity::APPLICATIONS;
    ClientIds: "SELECT application_no, client_id FROM application WHERE application_no > $1 ORDER BY application_no LIMIT $2";
    TenantIds: "SELECT m.merchant_no, m.merchant_id FROM unnest($1::bigint[]) AS t (tenant_no)
                JOIN merchant m ON m.tenant_no = t.tenant_no AND m.merchant_no = t.tenant_no";
    ApplicationsOf: identity::APPLICATIONS_OF;
    ApplicationsPaused: identity::APPLICATIONS_PAUSED;
    SecretsNotUnder: "SELECT s.application_no, s.secret_id, s.key_id, s.sealed, s.fingerprint, s.last4, s.signs_callbacks, s.created_at,
                      s.not_after, s.revoked_at, s.last_used_at, a.client_id FROM secret s JOIN application a ON a.application_no = s.application_no
                      WHERE s.key_id <> $1 AND s.secret_id > $2 ORDER BY s.secret_id LIMIT $3";
    ApplicationRevision: "SELECT $1::text, (SELECT revision FROM application WHERE client_id = $1)";
    Merchant: concat!("SELECT ", merchant_columns!(), " FROM merchant m WHERE m.merchant_id = $1");
    Merchants: identity::MERCHANTS;
    MerchantsUnder: identity::MERCHANTS_UNDER;
    Institutions: identity::INSTITUTIONS;
    MerchantsPlain: identity::PLAIN;
    SubAccounts: identity::SUB_ACCOUNTS;
    Token: token_select!("WHERE digest = $1");
    TokenById: token_select!("WHERE token_id = $1");
    Tokens: token_select!("WHERE token_id > $1 ORDER BY token_id LIMIT $2");
    SecretUses: "SELECT u.secret_id, sum(u.uses)::bigint FROM secret s JOIN secret_use u ON u.secret_id = s.secret_id
                 WHERE s.application_no = $1 AND u.minute >= $2 GROUP BY u.secret_id ORDER BY u.secret_id";
    RuleHead: concat!(
        "SELECT h.merchant_no, h.version_no, ", rule_columns!("l"), ", ", rule_columns!("b"), " FROM fee_rule_head h",
        version_of!("l", "h", "version_no"), version_of!("b", "l", "base_version_no"),
        "WHERE h.tenant_no = $1 AND h.merchant_no = $2"
    );
    RuleHeadBy: concat!(
        "SELECT l.merchant_no, l.version_no, ", rule_columns!("l"), ", ", rule_columns!("b"), " FROM (SELECT * FROM fee_rule \
         WHERE tenant_no = $1 AND merchant_no = $2 AND created_at <= $3 AND version_no <= coalesce((SELECT c.version_no FROM fee_rule c \
         WHERE c.tenant_no = $1 AND c.merchant_no = $2 AND c.created_at > $3 AND c.version_no % 64 = 0 \
         ORDER BY c.created_at, c.version_no LIMIT 1), 9223372036854775807) ORDER BY version_no DESC LIMIT 1) l \
         LEFT JOIN LATERAL (SELECT * FROM fee_rule v WHERE v.tenant_no = $1 AND v.merchant_no = $2 \
         AND v.version_no = l.base_version_no LIMIT 1) b ON true"
    );
    RuleVersions: concat!(
        "SELECT ", rule_columns!("l"), " FROM fee_rule l WHERE l.tenant_no = $1 AND l.merchant_no = $2 AND l.version_no < $3 \
         ORDER BY l.version_no DESC LIMIT $4"
    );
    RulePage: identity::RULE_PAGE;
    RulePageOfOne: identity::RULE_PAGE_OF_ONE;
    ConvertOrder: texts::ORDER;
    ConvertOrderTenant: "SELECT order_id, tenant_no FROM order_directory WHERE order_id = $1";
    ConvertOrderOwner: texts::ORDER_OWNER;
    ConvertOrders: texts::ORDERS;
    ConvertOrdersOpen: texts::ORDERS_OPEN;
    ConvertOrdersOf: texts::ORDERS_OF;
    ConvertOrdersEdge: texts::ORDERS_EDGE;
    ConvertOrdersOfEdge: texts::ORDERS_OF_EDGE;
    ConvertMoves: texts::MOVES;
    ConvertRequest: texts::REQUEST;
    Quote: texts::QUOTE;
    Rate: texts::RATE;
    Rates: texts::RATES;
    PaymentOrder: payment::ONE;
    PaymentOrderByTradeNo: payment::BY_TRADE_NO;
    PaymentOrderOwner: payment::OWNER;
    PaymentOrderMoves: payment::MOVES;
    PaymentOrderReceived: payment::RECEIVED;
    PaymentOrdersExpired: payment::EXPIRED;
    PaymentOrdersExpiredLast: payment::EXPIRED_LAST;
    PaymentOrdersUnderWay: payment::UNDER_WAY;
    PaidOrdersOfMerchant: payment::PAID_OF_MERCHANT;
    LateOrdersOfMerchant: payment::LATE_OF_MERCHANT;
    PaidOrdersOfTenant: payment::PAID_OF_TENANT;
    LateOrdersOfTenant: payment::LATE_OF_TENANT;
    PaymentOrdersTaken: payment::TAKEN;
    PaymentOrdersLock: payment::LOCK;
    PaymentOrdersShare: payment::SHARE;
    PaymentOrdersInsert: payment::INSERT;
    PaymentOrderRequestsInsert: payment::REQUESTS_INSERT;
    PaymentOrdersMove: payment::MOVE;
    PaymentOrderMovesInsert: payment::MOVES_INSERT;
    // From one application to the next, in each lane: what others are to deliver is not read, however much it is, and of what is waiting one row.
    Owed: "SELECT o.tenant_no, o.application_no, least(f.due_at, r.due_at) FROM unnest($1::bigint[]) AS l (lane) CROSS JOIN LATERAL (
           WITH RECURSIVE s AS ((SELECT d.tenant_no, d.application_no FROM delivery d WHERE d.state = 'pending'
             AND (d.application_no & 63) = l.lane AND d.application_no > $2 ORDER BY d.application_no LIMIT 1)
           UNION ALL SELECT n.tenant_no, n.application_no FROM s CROSS JOIN LATERAL (SELECT d.tenant_no, d.application_no FROM delivery d
             WHERE d.state = 'pending' AND (d.application_no & 63) = l.lane AND d.application_no > s.application_no
             ORDER BY d.application_no LIMIT 1) n)
           SELECT s.tenant_no, s.application_no FROM s LIMIT $3) o
           LEFT JOIN LATERAL (SELECT d.due_at FROM delivery d WHERE d.state = 'pending' AND (d.application_no & 63) = l.lane
             AND d.application_no = o.application_no AND least(d.attempts, 1) = 0 ORDER BY d.due_at LIMIT 1) f ON TRUE
           LEFT JOIN LATERAL (SELECT d.due_at FROM delivery d WHERE d.state = 'pending' AND (d.application_no & 63) = l.lane
             AND d.application_no = o.application_no AND least(d.attempts, 1) = 1 ORDER BY d.due_at LIMIT 1) r ON TRUE
           ORDER BY o.application_no LIMIT $3";
    PendingOf: concat!(
        "SELECT ", event_columns!(), ", d.tenant_no, d.application_no, d.event_no
         FROM unnest($1::bigint[], $2::bigint[]) AS a (tenant_no, application_no)
         CROSS JOIN unnest(ARRAY[0, 1]::bigint[]) AS c (repeated) CROSS JOIN LATERAL (SELECT * FROM delivery p
         WHERE p.tenant_no = a.tenant_no AND (p.application_no & 63) = (a.application_no & 63)
         AND p.application_no = a.application_no AND least(p.attempts, 1) = c.repeated AND p.state = 'pending'
         AND p.event_no NOT IN (SELECT unnest($4::bigint[])) ORDER BY p.due_at, p.event_no LIMIT $3) d
         CROSS JOIN LATERAL (SELECT e.* FROM event e WHERE e.tenant_no = a.tenant_no AND e.event_no = d.event_no LIMIT 1) e
         ORDER BY d.application_no, least(d.attempts, 1), d.due_at, d.event_no"
    );
    OpenBefore: backlog::OPEN_BEFORE;
    ManyOpen: backlog::MANY_OPEN;
    OpenAmong: backlog::OPEN_AMONG;
    Turning: "SELECT t.tenant_no, t.application_no, a.client_id, t.due_at FROM delivery_turn t
              JOIN application a ON a.application_no = t.application_no
              WHERE (t.tenant_no, t.application_no) > ($1, $2) AND (t.application_no & 63) = ANY($3::bigint[])
              ORDER BY t.tenant_no, t.application_no LIMIT $4";
    Event: concat!(
        "SELECT ", event_columns!(), " FROM event e \
         LEFT JOIN delivery d ON d.tenant_no = e.tenant_no AND d.event_no = e.event_no WHERE e.event_id = $1"
    );
    Attempts: "SELECT event_no, attempt, at, outcome, http_status, duration_ms, address, detail, fence, dns_us, connect_us, tls_us,
               first_byte_us, total_us, reused FROM attempt WHERE tenant_no = $1 AND event_no = $2 ORDER BY attempt";
    AttemptBytes: "SELECT event_no, sent_head, answer_head, answer_body, answer_length, is_cut FROM attempt_bytes
                   WHERE tenant_no = $1 AND at = $2 AND event_no = $3 AND attempt = $4";
    // A look for each of some tenants, by the key, whose begin it is.
    OldBytes: "SELECT m.merchant_no, x.found, x.bytes FROM (
               SELECT o.merchant_no FROM (
               (SELECT merchant_no FROM merchant WHERE kind = 'institution' AND merchant_no > $3 ORDER BY merchant_no LIMIT $4)
               UNION ALL
               (SELECT merchant_no FROM merchant WHERE kind = 'merchant' AND merchant_no > $3 ORDER BY merchant_no LIMIT $4)
               ) o ORDER BY o.merchant_no LIMIT $4) m CROSS JOIN LATERAL (
               SELECT count(*) AS found, coalesce(sum(o.size), 0)::bigint AS bytes FROM (
               SELECT octet_length(b.sent_head) + octet_length(b.answer_head) + octet_length(b.answer_body) AS size
               FROM attempt_bytes b WHERE b.tenant_no = m.merchant_no AND b.at < $1 LIMIT $2) o) x
               ORDER BY m.merchant_no";
    OldBytesOf: "SELECT at, event_no, attempt, octet_length(sent_head) + octet_length(answer_head) + octet_length(answer_body)::bigint
                 FROM attempt_bytes WHERE tenant_no = $1 AND (at, event_no, attempt) > ($2, $3, $4) AND at < $5
                 ORDER BY at, event_no, attempt LIMIT $6";
    OldEvents: events::OLD;
    OldEventsOf: events::OLD_OF;
    // What is before an event is summed up first: rows beyond the bound are not sent.
    EventsAfter: concat!(
        "SELECT ", event_columns!(), " FROM (SELECT o.*, sum(octet_length(o.data) + octet_length(o.body)) OVER (ORDER BY o.seq) \
         - octet_length(o.data) - octet_length(o.body) AS before FROM (SELECT * FROM event \
         WHERE tenant_no = $1 AND application_no = $2 AND seq > $3 ORDER BY seq LIMIT $4) o) e \
         LEFT JOIN delivery d ON d.tenant_no = $1 AND d.event_no = e.event_no WHERE e.before < $5 ORDER BY e.seq"
    );
    Remembered: "SELECT scope, key, body_digest, status, answer, created_at FROM idempotency WHERE scope = $1 AND key = $2";
    Audit: "SELECT tenant_no, audit_no, at, actor, source, action, subject, before, after, request_id FROM audit
            WHERE (at, tenant_no, audit_no) < ($1, $2, $3) ORDER BY at DESC, tenant_no DESC, audit_no DESC LIMIT $4";
    AuditChain: "SELECT tenant_no, audit_no, tenant_no, audit_no, at, actor, source, action, subject, before, after, request_id, link
                 FROM audit WHERE (tenant_no, audit_no) > ($1, $2) ORDER BY tenant_no, audit_no LIMIT $3";
    // Two ways to be one's own tenant, each with an index of its own.
    ChainOwners: "SELECT merchant_no FROM (
                  (SELECT merchant_no FROM merchant WHERE kind = 'institution' AND merchant_no > $1 ORDER BY merchant_no LIMIT $2)
                  UNION ALL
                  (SELECT merchant_no FROM merchant WHERE kind = 'merchant' AND merchant_no > $1 ORDER BY merchant_no LIMIT $2)
                  ) m ORDER BY merchant_no LIMIT $2";
    UnreadableLine: "SELECT tenant_no, audit_no, tenant_no, audit_no, link FROM audit
                     WHERE (tenant_no, audit_no) > ($1, $2) ORDER BY tenant_no, audit_no LIMIT 1";
    AuditHeads: "SELECT tenant_no, audit_no, link FROM audit_head WHERE tenant_no > $1 ORDER BY tenant_no LIMIT $2";

    // Claims hold the first lock together, each in its own transaction; raising the horizon takes it alone. So no nonce is deleted
    // between the look at the horizon and the insert that relies on it.
    ClaimLock: "SELECT pg_advisory_xact_lock_shared(4851337201)";
    HorizonLock: "SELECT pg_advisory_xact_lock(4851337201)";
    Horizon: "SELECT one, horizon FROM replay";
    // Never nearer than 35 s to the database's own time, whatever the asking node takes the time to be: it holds for all nodes, for good.
    HorizonRaise: "UPDATE replay SET horizon =
                   greatest(horizon, least($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 35000))
                   RETURNING horizon";
    NoncesClaim: "INSERT INTO nonce (tenant_no, claim, stamped_at) SELECT a.tenant_no, a.claim, a.stamped_at
                  FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS a (tenant_no, claim, stamped_at)
                  WHERE a.stamped_at > (SELECT horizon FROM replay)
                  ON CONFLICT (tenant_no, claim) DO NOTHING RETURNING tenant_no, claim";
    // Claims of requests without a change. A group of them that was not answered asks again: its own rows are found by its number, and
    // written once more, so that the synchronous standby has them before anybody hears of it.
    NoncesSettle: "INSERT INTO nonce (tenant_no, claim, stamped_at, settled_by) SELECT a.tenant_no, a.claim, a.stamped_at, $4
                   FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS a (tenant_no, claim, stamped_at)
                   WHERE a.stamped_at > (SELECT horizon FROM replay)
                   ON CONFLICT (tenant_no, claim) DO NOTHING RETURNING tenant_no, claim";
    NoncesSettleAgain: "INSERT INTO nonce AS n (tenant_no, claim, stamped_at, settled_by)
                        SELECT a.tenant_no, a.claim, a.stamped_at, $4
                        FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS a (tenant_no, claim, stamped_at)
                        WHERE a.stamped_at > (SELECT horizon FROM replay)
                        ON CONFLICT (tenant_no, claim) DO UPDATE SET settled_by = excluded.settled_by
                        WHERE n.settled_by = excluded.settled_by RETURNING n.tenant_no, n.claim";
    NoncesGiveBack: "DELETE FROM nonce n USING unnest($1::bigint[], $2::bytea[]) AS a (tenant_no, claim)
                     WHERE n.tenant_no = a.tenant_no AND n.claim = a.claim";
    NonceNewest: "SELECT n.stamped_at FROM nonce n WHERE n.stamped_at <= $1 ORDER BY n.stamped_at DESC LIMIT 1";
    NoncesForget: "DELETE FROM nonce WHERE ctid = ANY(ARRAY(SELECT ctid FROM nonce
                   WHERE stamped_at <= (SELECT horizon FROM replay) LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING 1::bigint";

    PayeesLock: payment::PAYEES_LOCK;
    LastPaidLock: payment::LAST_PAID_LOCK;
    LastPaidPut: payment::LAST_PAID_PUT;
    HeadsLock: payment::HEADS_LOCK;
    // Here and in HeadsPut the arrays are unnested in the list: what FROM unnests is kept a second time before it is inserted.
    RulesInsert: "INSERT INTO fee_rule (tenant_no, merchant_no, version_no, config_id, previous_config_id, base_version_no,
                  r_markup, f_markup, effective_at, due_at, created_at)
                  SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bytea[]), unnest($5::bytea[]),
                  unnest($6::bigint[]), unnest($7::text[]), unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::bigint[]),
                  unnest($11::bigint[])";
    HeadsPut: "INSERT INTO fee_rule_head AS h (tenant_no, merchant_no, version_no, config_id, base_version_no)
               SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bytea[]), unnest($5::bigint[])
               ON CONFLICT (tenant_no, merchant_no) DO UPDATE SET version_no = excluded.version_no,
               config_id = excluded.config_id, base_version_no = excluded.base_version_no";

    MerchantInsert: "INSERT INTO merchant (tenant_no, merchant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled,
                     revision, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
                     ON CONFLICT DO NOTHING RETURNING 1::bigint";
    MerchantUpdate: "UPDATE merchant SET name = $2, enabled = $3, revision = $4::bigint, base_r = $5, base_f = $6
                     WHERE merchant_no = $1 AND revision = $4::bigint - 1 RETURNING 1::bigint";
    ApplicationsTouch: "UPDATE application SET revision = revision + 1 WHERE application_no = ANY($1::bigint[])";
    ApplicationsLock: identity::LOCK;
    ApplicationsLockOf: identity::LOCK_OF;
    DeliveriesTurn: identity::TURN;
    DeliveriesTurnOf: identity::TURN_OF;
    ApplicationInsert: "INSERT INTO application (tenant_no, application_no, client_id, merchant_no, name, enabled,
                        callback_url, callback_enabled, callback_gone_at, callback_encoding, callback_vocabulary, timestamp_tolerance_ms,
                        tolerance_before_ms, tolerance_raised_at, rate_limit_per_s, callback_rate_per_s, callback_concurrency, callback_schedule,
                        revision, created_at)
                        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
                        ON CONFLICT DO NOTHING RETURNING 1::bigint";
    ApplicationUpdate: "UPDATE application SET name = $2, enabled = $3, callback_url = $4, callback_enabled = $5, callback_gone_at = $6,
                        callback_encoding = $7, callback_vocabulary = $8, timestamp_tolerance_ms = $9,
                        tolerance_before_ms = $10, tolerance_raised_at = $11, rate_limit_per_s = $12, callback_rate_per_s = $13,
                        callback_concurrency = $14, callback_schedule = $15, revision = $16::bigint
                        WHERE application_no = $1 AND revision = $16::bigint - 1 RETURNING 1::bigint";
    SecretInsert: "INSERT INTO secret (application_no, secret_id, key_id, sealed, fingerprint, last4, signs_callbacks,
                   created_at, not_after, revoked_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                   ON CONFLICT DO NOTHING RETURNING 1::bigint";
    SecretUpdate: "UPDATE secret SET not_after = $2, revoked_at = $3, signs_callbacks = $4 WHERE secret_id = $1
                   RETURNING 1::bigint";
    SecretsUsed: identity::SECRETS_USED;
    SecretUsesAdd: "INSERT INTO secret_use AS u (secret_id, minute, uses) SELECT s.secret_id, a.minute, a.uses
                    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS a (secret_id, minute, uses)
                    JOIN secret s ON s.secret_id = a.secret_id COLLATE \"C\" ORDER BY s.secret_id, a.minute
                    ON CONFLICT (secret_id, minute) DO UPDATE SET uses = u.uses + excluded.uses";
    SecretUsesForget: "DELETE FROM secret_use u USING (SELECT secret_id, minute FROM secret_use WHERE minute < $1
                       ORDER BY minute, secret_id LIMIT $2 FOR UPDATE SKIP LOCKED) o
                       WHERE u.secret_id = o.secret_id AND u.minute = o.minute";
    TokensUsed: identity::TOKENS_USED;
    SecretRewrap: "UPDATE secret SET key_id = $3, sealed = $4 WHERE secret_id = $1 AND key_id = $2 RETURNING 1::bigint";
    TokenInsert: identity::TOKEN_INSERT;
    TokenRevoke: identity::TOKEN_REVOKE;
    OrderDirectoryInsert: texts::ORDER_DIRECTORY_INSERT;
    OrderInsert: texts::ORDER_INSERT;
    OrderUpdate: texts::ORDER_UPDATE;
    ConvertRequestInsert: texts::REQUEST_INSERT;
    QuoteInsert: texts::QUOTE_INSERT;
    QuotesForget: texts::QUOTES_FORGET;
    QuoteUse: texts::QUOTE_USE;
    QuoteUnused: texts::QUOTE_UNUSED;
    RateInsert: texts::RATE_INSERT;
    RateUpdate: texts::RATE_UPDATE;
    RateTold: texts::RATE_TOLD;
    OrderMove: "INSERT INTO convert_order_move (tenant_no, order_id, revision, status, at) VALUES ($1, $2, $3, $4, $5)";

    // Where a tenant's index may seem as good as the one that finds the row, as it does while a table is empty, the tenant stands so that no index
    // takes it.
    EventsTaken: "SELECT e.tenant_no, e.event_no, e.event_id FROM unnest($1::bigint[], $2::bigint[]) AS a (tenant_no, event_no)
                  JOIN event e ON e.tenant_no = a.tenant_no AND e.event_no = a.event_no
                  UNION SELECT e.tenant_no, e.event_no, e.event_id FROM unnest($1::bigint[], $3::bytea[]) AS a (tenant_no, event_id)
                  JOIN event e ON e.event_id = a.event_id AND a.tenant_no = e.tenant_no + 0";
    EventsCount: "INSERT INTO event_counter AS c (tenant_no, application_no, seq)
                  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])
                  ON CONFLICT (tenant_no, application_no) DO UPDATE SET seq = c.seq + excluded.seq";
    BizCount: "INSERT INTO biz_counter AS c (tenant_no, application_no, biz_id, sequence)
               SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[])
               ON CONFLICT (tenant_no, application_no, biz_id) DO UPDATE SET sequence = c.sequence + excluded.sequence";
    // After both counts: the last event of an application has the counter's number, those before it count down.
    EventsInsert: "INSERT INTO event (tenant_no, event_no, application_no, client_id, event_id, seq, sequence, biz_type,
                   biz_id, biz_status, data, body, created_at)
                   SELECT a.tenant_no, a.event_no, a.application_no, a.client_id, a.event_id,
                   c.seq + 1 - row_number() OVER (PARTITION BY a.tenant_no, a.application_no ORDER BY a.place DESC),
                   b.sequence + 1 - row_number() OVER (PARTITION BY a.tenant_no, a.application_no, a.biz_id ORDER BY a.place DESC),
                   a.biz_type, a.biz_id, a.biz_status, a.data, a.body, a.created_at
                   FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bytea[], $6::text[], $7::text[],
                   $8::text[], $9::text[], $10::bytea[], $11::bigint[]) WITH ORDINALITY AS a (tenant_no, event_no,
                   application_no, client_id, event_id, biz_type, biz_id, biz_status, data, body, created_at, place)
                   JOIN event_counter c ON c.tenant_no = a.tenant_no AND c.application_no = a.application_no
                   CROSS JOIN LATERAL (SELECT b.sequence FROM biz_counter b WHERE b.tenant_no = a.tenant_no
                   AND b.application_no = a.application_no AND b.biz_id = a.biz_id COLLATE \"C\" LIMIT 1) b
                   RETURNING tenant_no, event_no, seq, sequence";
    EventNumbers: "SELECT e.tenant_no, e.event_no, e.seq, e.sequence FROM unnest($1::bigint[], $2::bigint[]) AS a (tenant_no, event_no)
                   JOIN event e ON e.tenant_no = a.tenant_no AND e.event_no = a.event_no";
    DeliveriesInsert: "INSERT INTO delivery (tenant_no, event_no, application_no, state, attempts, due_at)
                       SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[])";
    DeliveriesLock: "SELECT d.tenant_no, d.event_no, d.attempts, d.state FROM delivery d
                     JOIN unnest($1::bigint[], $2::bigint[]) AS a (tenant_no, event_no)
                     ON d.tenant_no = a.tenant_no AND d.event_no = a.event_no ORDER BY d.tenant_no, d.event_no FOR UPDATE OF d";
    DeliveriesMove: "UPDATE delivery d SET state = a.state, attempts = a.attempts, due_at = a.due_at, behind_no = NULL,
                     by_hand = d.by_hand AND a.state IN ('pending', 'held')
                     FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[])
                     AS a (tenant_no, event_no, state, attempts, due_at)
                     WHERE d.tenant_no = a.tenant_no AND d.event_no = a.event_no";
    // After the moves: who ends what others wait for holds its row, so that nobody can come to wait for it any more.
    DeliveriesFollow: "UPDATE delivery d SET due_at = least(d.due_at, a.at), behind_no = NULL
                       FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS a (tenant_no, event_no, at)
                       WHERE d.tenant_no = a.tenant_no AND d.behind_no = a.event_no";
    // Locked before it is known how it stands: by its key alone, not by the index of what is open.
    DeliveryAhead: "SELECT 1::bigint FROM (SELECT state FROM delivery WHERE tenant_no = $1 AND event_no = $2 LIMIT 1 FOR SHARE) d
                    WHERE d.state IN ('pending', 'held')";
    DeliveryDefer: "UPDATE delivery SET due_at = $4, behind_no = $3 WHERE tenant_no = $1 AND event_no = $2 AND state = 'pending'
                    RETURNING 1::bigint";
    DeliveryAgain: "UPDATE delivery SET state = 'pending', due_at = $3, by_hand = TRUE WHERE tenant_no = $1 AND event_no = $2";
    DeliverySoon: "UPDATE delivery SET due_at = least(due_at, $3) WHERE tenant_no = $1 AND event_no = $2 AND state = 'pending' AND attempts = $4
                   AND due_at = $5 AND behind_no IS NULL RETURNING 1::bigint";
    DeliveryTurn: "INSERT INTO delivery_turn (tenant_no, application_no, due_at)
                   SELECT tenant_no, application_no, $3 FROM application WHERE application_no = $2 AND tenant_no = $1
                   ON CONFLICT (tenant_no, application_no) DO UPDATE SET due_at = excluded.due_at";
    // A portion waits for nobody: what others have locked is left to the next one. The array is made once.
    DeliveryRelease: "UPDATE delivery SET state = 'pending', due_at = $3 WHERE tenant_no = $1 AND event_no = ANY(ARRAY(
                      SELECT event_no FROM delivery WHERE tenant_no = $1 AND application_no = $2 AND state = 'held'
                      LIMIT $4 FOR UPDATE SKIP LOCKED))";
    DeliveryHold: "UPDATE delivery SET state = 'held', due_at = NULL, behind_no = NULL WHERE tenant_no = $1 AND event_no = ANY(ARRAY(
                   SELECT event_no FROM delivery WHERE tenant_no = $1 AND application_no = $2 AND state = 'pending'
                   LIMIT $3 FOR UPDATE SKIP LOCKED))";
    TurnReleased: "DELETE FROM delivery_turn WHERE tenant_no = $1 AND application_no = $2 AND NOT EXISTS
                   (SELECT 1 FROM delivery WHERE tenant_no = $1 AND application_no = $2 AND state = 'held')";
    TurnHeld: "DELETE FROM delivery_turn WHERE tenant_no = $1 AND application_no = $2 AND NOT EXISTS
               (SELECT 1 FROM delivery WHERE tenant_no = $1 AND application_no = $2 AND state = 'pending')";
    AttemptsInsert: "INSERT INTO attempt (tenant_no, event_no, attempt, at, outcome, http_status, duration_ms, address, detail, fence,
                     dns_us, connect_us, tls_us, first_byte_us, total_us, reused)
                     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[],
                     $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
                     $14::bigint[], $15::bigint[], $16::boolean[])";
    AttemptBytesInsert: "INSERT INTO attempt_bytes (tenant_no, event_no, attempt, at, sent_head, answer_head, answer_body,
                         answer_length, is_cut) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],
                         $5::bytea[], $6::bytea[], $7::bytea[], $8::bigint[], $9::boolean[])";
    BytesForget: "DELETE FROM attempt_bytes WHERE $1 = tenant_no + 0 AND ctid = ANY(ARRAY(SELECT o.ctid FROM attempt_bytes o
                  WHERE o.tenant_no = $1 AND o.at < $2 ORDER BY o.at LIMIT $3 FOR UPDATE SKIP LOCKED))";
    EventsOldest: concat!(
        "SELECT e.event_no, ", is_too_old!("$3", "$5"), " FROM event e
         LEFT JOIN delivery d ON d.tenant_no = e.tenant_no AND d.event_no = e.event_no
         WHERE e.tenant_no = $1 AND e.application_no = $2 ORDER BY e.seq LIMIT $4"
    );
    DeliveriesForgetLock: "SELECT event_no, state = 'held' FROM delivery WHERE tenant_no = $1 AND event_no = ANY($2::bigint[])
                       AND state IN ('delivered', 'dead', 'held') ORDER BY event_no FOR UPDATE";
    // The limit as in `version_of`: each by its whole key.
    EventsBytesDelete: "DELETE FROM attempt_bytes WHERE $1 = tenant_no + 0 AND ctid = ANY(ARRAY(SELECT o.ctid FROM attempt a
                        CROSS JOIN LATERAL (SELECT b.ctid FROM attempt_bytes b WHERE b.tenant_no = a.tenant_no AND b.at = a.at
                        AND b.event_no = a.event_no AND b.attempt = a.attempt LIMIT 1) o
                        WHERE a.tenant_no = $1 AND a.event_no = ANY($2::bigint[])))";
    EventsAttemptsDelete: "DELETE FROM attempt WHERE tenant_no = $1 AND event_no = ANY($2::bigint[])";
    EventsDeliveriesDelete: "DELETE FROM delivery WHERE tenant_no = $1 AND event_no = ANY($2::bigint[])";
    EventsDelete: "DELETE FROM event WHERE $1 = tenant_no + 0 AND event_no = ANY($2::bigint[])";

    Backlog: backlog::OF_ONE;
    Waiting: backlog::OF_ALL;
    DeadOf: backlog::DEAD_OF;
    DeadOfAll: backlog::DEAD_OF_ALL;
    WithDead: backlog::WITH_DEAD;
    ApplicationPlace: "SELECT tenant_no, application_no FROM application WHERE client_id = $1";

    Sought: redelivery::SOUGHT;
    SoughtCount: redelivery::SOUGHT_COUNT;
    Fared: redelivery::FARED;
    DeliveriesAgain: redelivery::DELIVERIES_AGAIN;
    Redelivery: redelivery::ONE;
    Redeliveries: redelivery::ALL;
    RedeliveriesOf: redelivery::OF_ONE;
    RedeliveriesRunning: redelivery::RUNNING;
    RedeliveryInsert: redelivery::INSERT;
    // Who begins a redelivery, and who forgets events of that application: one after the other.
    RedeliveryTurn: "SELECT pg_advisory_xact_lock(hashtextextended('redeliveries of', $1))";
    RedeliveryMove: redelivery::MOVE;
    RedeliveryStop: redelivery::STOP;

    AnswerInsert: "INSERT INTO idempotency (scope, key, body_digest, status, answer, created_at)
                   VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (scope, key) DO UPDATE SET body_digest = EXCLUDED.body_digest,
                   status = EXCLUDED.status, answer = EXCLUDED.answer, created_at = EXCLUDED.created_at
                   WHERE idempotency.created_at < $7 RETURNING 1::bigint";
    // The age is asked for twice: a row that another transaction renews meanwhile is judged again by the outer condition alone.
    AnswersForget: "DELETE FROM idempotency WHERE (scope, key) IN (SELECT scope, key FROM idempotency
                    WHERE created_at < $1 ORDER BY created_at, scope, key LIMIT $2) AND created_at < $1 RETURNING 1";
    // Numbers within a tenant have no gap: whoever appends holds the tenant's head until that transaction ends, and nobody else's.
    // The links are made here, since only whoever holds the head knows what they hang on; what needs the key, the marks, was made before.
    // `link_before`: of a head that is inserted, the mark; else the link that was found. A null mark leaves the link as it was.
    // `lines`: how many the tenant gets; `back`: how many of them come after this one.
    AuditCount: concat!(
        "INSERT INTO audit_head AS h (tenant_no, audit_no, link, link_before)
         SELECT a.tenant_no, a.lines, sha256(", start!(), " || int8send(a.lines) || a.mark), a.mark
         FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS a (tenant_no, lines, mark)
         ON CONFLICT (tenant_no) DO UPDATE SET audit_no = h.audit_no + excluded.audit_no, link_before = coalesce(h.link, ", start!(), "),
         link = coalesce(sha256(coalesce(h.link, ", start!(), ") || int8send(h.audit_no + excluded.audit_no) || excluded.link_before), h.link)"
    );
    // After the count: the last line of a tenant has the head's number, the one with `back` lines behind it a number that is so much less.
    AuditInsert: concat!(
        "INSERT INTO audit (tenant_no, audit_no, at, actor, source, action, subject, before, after, request_id, link)
         SELECT a.tenant_no, h.audit_no - a.back, a.at, a.actor, a.source, a.action, a.subject, a.before, a.after, a.request_id,
         sha256(CASE WHEN h.audit_no = a.lines THEN ", start!(), " ELSE h.link_before END || int8send(h.audit_no - a.back) || a.mark)
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[],
         $8::text[], $9::text[], $10::text[], $11::text[], $12::bytea[])
         AS a (tenant_no, lines, back, at, actor, source, action, subject, before, after, request_id, mark)
         JOIN audit_head h ON h.tenant_no = a.tenant_no"
    );

    // What a batch rests on. The lane is held against its being taken, the application against its being changed.
    LanesGuard: "SELECT lane, fence FROM delivery_lane WHERE lane = ANY($1::bigint[]) ORDER BY lane FOR KEY SHARE";
    ApplicationsGuard: identity::APPLICATIONS_GUARD;
    ApplicationsLook: identity::APPLICATIONS_LOOK;
    TokensLock: identity::TOKENS_LOCK;
    TokensLive: identity::TOKENS_LIVE;
    TokenLetGo: identity::TOKEN_LET_GO;

    // The last lock of whoever changes applications: from here to the commit nobody else counts.
    DirectoryStamp: "WITH d AS (UPDATE directory SET revision = revision + 1 RETURNING revision)
                     UPDATE application a SET directory_revision = d.revision FROM d
                     WHERE a.application_no = ANY($1::bigint[])";
    // The same of applications that were locked to be touched: written once for both.
    DirectoryTouch: "WITH d AS (UPDATE directory SET revision = revision + 1 RETURNING revision)
                     UPDATE application a SET directory_revision = d.revision, revision = a.revision + 1
                     FROM d, unnest($1::bigint[]) AS t (application_no) WHERE a.application_no = t.application_no";
    DirectoryChanges: "SELECT d.one, d.revision, EXISTS (SELECT 1 FROM node n WHERE n.node_id = $2), a.client_id
                       FROM directory d LEFT JOIN application a ON a.directory_revision > $1 LIMIT $3";
    DatabaseTime: concat!("SELECT ", now!());
    CallOut: "SELECT pg_notify($1, $2)";

    // A heartbeat, in this order.
    LanesForget: "UPDATE delivery_lane SET node = NULL, expires_at = 0 WHERE node = $1";
    NodesForget: concat!(
        "WITH gone AS (DELETE FROM node WHERE seen_at < ", now!(), " - 86400000 RETURNING node_id)
         DELETE FROM node_program p USING gone WHERE p.node_id = gone.node_id"
    );
    LanesGiveBack: "UPDATE delivery_lane l SET node = NULL, expires_at = 0
                    FROM unnest($2::bigint[], $3::bigint[]) AS a (lane, fence)
                    WHERE l.lane = a.lane AND l.fence = a.fence AND l.node = $1";
    NodeGone: heartbeats::GONE;
    NodeSays: heartbeats::SAYS;
    NodeSeen: heartbeats::SEEN;
    NodesAlive: heartbeats::ALIVE;
    Nodes: heartbeats::NODES;
    // No key is changed, so commits that are guarded by the lane go on.
    LanesRenew: heartbeats::RENEW;
    LanesTake: heartbeats::TAKE;

    SettingIs: "SELECT 1::bigint FROM setting WHERE name = $1 AND value = $2 FOR SHARE";
    SettingAdd: "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING 1::bigint";
    SettingMove: "UPDATE setting SET value = $3 WHERE name = $1 AND value = $2 RETURNING 1::bigint";
    SettingPut: "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    MarksForget: "DELETE FROM commit_mark WHERE marked_at < 1000 * extract(epoch FROM now() - $1::bigint * interval '1 second')::bigint";
    // What the transaction of a lane ends with, and what its lane asks when nobody answered the commit.
    // Only marks that were done are deleted: a row that says "not done" keeps a late transaction from being done. The lower bound, the last one that is
    // known to be done, keeps the walk short where dead rows cannot be removed yet, since somebody holds a snapshot.
    MarkPut: "WITH gone AS (DELETE FROM commit_mark
              WHERE tenant_no = $1 AND lane = $2 AND mark >= $4 AND mark < $3 AND done)
              INSERT INTO commit_mark (tenant_no, lane, mark, marked_at, done)
              VALUES ($1, $2, $3, extract(epoch FROM now())::bigint * 1000, true)";
    // Writes in any case, so that its own commit waits for the standby which the asked commit may still lack.
    MarkFence: "INSERT INTO commit_mark (tenant_no, lane, mark, marked_at, done)
                VALUES ($1, $2, $3, extract(epoch FROM now())::bigint * 1000, false)
                ON CONFLICT (tenant_no, lane, mark) DO UPDATE SET marked_at = excluded.marked_at RETURNING done";
}
