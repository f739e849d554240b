//! Texts about merchants, applications and operator tokens; [`super::statements`] gives them their names. A condition that may be open keeps its index
//! from being used, so each way of asking has a text of its own. Lists: behind $1, at most $2.

pub(super) const APPLICATIONS: &str = application_select!(
    "(SELECT * FROM application WHERE application_no > $1 AND ($3::boolean IS NULL OR callback_enabled = $3) \
     ORDER BY application_no LIMIT $2)"
);
pub(super) const APPLICATIONS_OF: &str = application_select!(
    "(SELECT * FROM application WHERE merchant_no = $4 AND application_no > $1 \
     AND ($3::boolean IS NULL OR callback_enabled = $3) ORDER BY application_no LIMIT $2)"
);
pub(super) const APPLICATIONS_PAUSED: &str = application_select!(
    "(SELECT * FROM application WHERE NOT callback_enabled AND application_no > $1 ORDER BY application_no LIMIT $2)"
);

/// Merchants whose rows keep this condition.
macro_rules! merchants {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            merchant_columns!(),
            " FROM merchant m WHERE ",
            $condition,
            " AND m.merchant_no > $1 ORDER BY m.merchant_no LIMIT $2"
        )
    };
}

pub(super) const MERCHANTS: &str = merchants!("true");
pub(super) const MERCHANTS_UNDER: &str = merchants!("m.tenant_no = $4 AND ($3::text IS NULL OR m.kind = $3)");
// The kind stands in the text: a plan that was made for any of them would not go by an index that holds one.
pub(super) const INSTITUTIONS: &str = merchants!("m.kind = 'institution'");
pub(super) const PLAIN: &str = merchants!("m.kind = 'merchant'");
pub(super) const SUB_ACCOUNTS: &str = merchants!("m.kind = 'sub_account'");

/// The sub-accounts of an institution that keep this condition, with the rule of each.
macro_rules! rule_page {
    ($condition:literal) => {
        concat!(
            "SELECT m.merchant_no, m.merchant_id, h.version_no, ",
            rule_columns!("l"),
            ", ",
            rule_columns!("b"),
            " FROM merchant m LEFT JOIN fee_rule_head h ON h.tenant_no = m.tenant_no AND h.merchant_no = m.merchant_no",
            version_of!("l", "h", "version_no"),
            version_of!("b", "l", "base_version_no"),
            "WHERE ",
            $condition,
            " AND m.kind = 'sub_account' ORDER BY m.merchant_id"
        )
    };
}

pub(super) const RULE_PAGE: &str = rule_page!("m.tenant_no = $1");
// `+ 0`: only one has that id, and all that the institution has are not looked through for it.
pub(super) const RULE_PAGE_OF_ONE: &str = rule_page!("$1 = m.tenant_no + 0 AND m.merchant_id = $2");

/// What a change of a merchant, or of a whole tenant, touches: locked in the order of their numbers.
macro_rules! lock {
    ($of:literal) => {
        concat!("SELECT application_no FROM application WHERE ", $of, " ORDER BY application_no FOR NO KEY UPDATE")
    };
}

pub(super) const LOCK: &str = lock!("tenant_no = $1");
pub(super) const LOCK_OF: &str = lock!("merchant_no = $2 AND $1 = tenant_no + 0");

/// LIMIT keeps the plan at one look for each application, however many open deliveries they have together.
macro_rules! turn {
    ($due_at:literal, $of:literal) => {
        concat!(
            "INSERT INTO delivery_turn (tenant_no, application_no, due_at) SELECT a.tenant_no, a.application_no, ",
            $due_at,
            " FROM application a CROSS JOIN LATERAL (SELECT 1 FROM delivery d WHERE d.tenant_no = $1
              AND d.application_no = a.application_no AND d.state IN ('pending', 'held') LIMIT 1) open WHERE ",
            $of,
            " ON CONFLICT (tenant_no, application_no) DO UPDATE SET due_at = excluded.due_at"
        )
    };
}

pub(super) const TURN: &str = turn!("$2", "a.tenant_no = $1");
pub(super) const TURN_OF: &str = turn!("$3", "a.merchant_no = $2 AND $1 = a.tenant_no + 0");

pub(super) const TOKEN_INSERT: &str =
    "INSERT INTO operator_token (token_id, name, digest, role, created_at, expires_at, revoked_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING 1::bigint";
/// Waits for nobody who rests on the token: with one coming after the other, that could be for ever. Who comes behind it finds the token revoked.
pub(super) const TOKEN_REVOKE: &str =
    "UPDATE operator_token SET revoked_at = $2 WHERE token_id = $1 AND revoked_at IS NULL RETURNING 1::bigint";
pub(super) const TOKEN_LET_GO: &str = "SELECT 1::bigint FROM operator_token WHERE token_id = $1 FOR UPDATE SKIP LOCKED";
pub(super) const APPLICATIONS_GUARD: &str = "SELECT application_no, revision FROM application
    WHERE application_no = ANY($1::bigint[]) ORDER BY application_no FOR SHARE";
pub(super) const APPLICATIONS_LOOK: &str =
    "SELECT application_no, revision FROM application WHERE application_no = ANY($1::bigint[])";
/// Shows, until the commit, that somebody rests on these tokens. This lock and a revocation do not wait for each other. So the rows may be older than
/// a revocation that is committed by now, and a second statement asks whether the tokens are live.
pub(super) const TOKENS_LOCK: &str =
    "SELECT 1::bigint FROM operator_token WHERE token_id = ANY($1::text[]) ORDER BY token_id FOR KEY SHARE";
pub(super) const TOKENS_LIVE: &str =
    "SELECT token_id FROM operator_token WHERE token_id = ANY($1::text[]) AND revoked_at IS NULL";

/// Notes last uses. Rows are locked by id, so that nodes that note the same ones at once do not wait for each other in a circle. What is stored and is
/// ahead ($4) both of the time of who notes ($3) and of the database's was noted by a clock that was ahead.
macro_rules! used {
    ($table:literal, $id:literal) => {
        concat!(
            "WITH used AS (SELECT r.",
            $id,
            ", a.last_used_at FROM ",
            $table,
            " r
               JOIN unnest($1::text[], $2::bigint[]) AS a (id, last_used_at) ON r.",
            $id,
            " = a.id COLLATE \"C\"
               ORDER BY r.",
            $id,
            " FOR NO KEY UPDATE OF r)
             UPDATE ",
            $table,
            " r SET last_used_at = greatest(
               CASE WHEN r.last_used_at - $4::bigint > greatest($3::bigint, ",
            now!(),
            ") THEN $3 ELSE r.last_used_at END,
               used.last_used_at) FROM used WHERE r.",
            $id,
            " = used.",
            $id
        )
    };
}

pub(super) const SECRETS_USED: &str = used!("secret", "secret_id");

pub(super) const TOKENS_USED: &str = used!("operator_token", "token_id");
