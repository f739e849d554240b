//! What somebody does who can write to the database and has no master key.

use std::path::Path;

use countersign_domain::time::UnixMillis;
use rusqlite::Connection;

use super::Database;

/// A change behind everybody's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tampering {
    /// The audit log loses its chain: links, heads and the key. So a program from before the chain leaves a database, too.
    Unchain,
    /// Only the key of the chain goes.
    TakeChainKey,
    /// Lines of this action get another actor.
    Blame(&'static str),
    /// The audit log loses its links, and its second line its number.
    UnlinkAndGap,
    /// The audit log is emptied, its heads with it.
    TakeAudit,
    /// The same with the system's chain alone.
    TakeSystemChain,
    /// The same with the chains of all tenants.
    TakeTenantChains,
    /// The system's line of this number cannot be read back. Of a file alone.
    Garble(i64),
    /// The last schema step is undone, as if an older program had made the database.
    StepBack,
    /// A schema step that this program does not know, as if a newer one had been there.
    StepAhead,
    /// Payment orders say that they were moved once more than they were.
    ReviseOrders,
    /// So many rows refer to others that are not there. Of a file alone.
    Dangle(u32),
    /// The key that signs evidence goes, as if a program from before had initialised the deployment.
    TakeEvidenceKey,
    /// Secrets are said to be sealed under the master key of this id, as those that a re-wrap has not come to.
    SecretsUnder(&'static str),
    /// The same of the key that signs evidence.
    EvidenceUnder(&'static str),
    /// What was paid last of each sub-account is not noted, as if nodes from before that had been paid everything.
    ForgetPaid,
    /// Operator tokens are older by this time, and end sooner by it, in ms.
    AgeTokens(i64),
    /// The machine crashed since and has booted anew, and nonces stamped up to then were given out before. Of a file alone.
    Crash(UnixMillis),
}

impl Tampering {
    /// The same words for either dialect.
    fn sql(self) -> String {
        match self {
            Self::Unchain => "UPDATE audit SET link = NULL; UPDATE audit_head SET link = NULL, link_before = NULL;
                 DELETE FROM setting WHERE name = 'audit_chain_key'"
                .to_owned(),
            Self::TakeChainKey => "DELETE FROM setting WHERE name = 'audit_chain_key'".to_owned(),
            Self::Blame(action) => format!("UPDATE audit SET actor = 'nobody' WHERE action = '{action}'"),
            Self::UnlinkAndGap => {
                "UPDATE audit SET link = NULL; UPDATE audit SET audit_no = 7 WHERE audit_no = 2".to_owned()
            }
            Self::TakeAudit => "DELETE FROM audit; DELETE FROM audit_head".to_owned(),
            Self::TakeSystemChain => {
                "DELETE FROM audit WHERE tenant_no = 0; DELETE FROM audit_head WHERE tenant_no = 0".to_owned()
            }
            Self::TakeTenantChains => {
                "DELETE FROM audit WHERE tenant_no <> 0; DELETE FROM audit_head WHERE tenant_no <> 0".to_owned()
            }
            Self::Garble(no) => {
                format!("UPDATE audit SET request_id = CAST(x'ff' AS TEXT) WHERE tenant_no = 0 AND audit_no = {no}")
            }
            Self::StepBack => {
                "DROP INDEX IF EXISTS secret_in_force; DROP INDEX IF EXISTS application_of_tenant; DROP INDEX IF EXISTS redelivery_of_application;
                 DROP TABLE last_paid; DROP TABLE IF EXISTS node_program; ALTER TABLE delivery DROP COLUMN redelivery_id;
                 ALTER TABLE redelivery DROP COLUMN from_seq; ALTER TABLE redelivery DROP COLUMN of_outcome;
                 ALTER TABLE redelivery DROP COLUMN of_http_status; ALTER TABLE application DROP COLUMN callback_gone_at; DELETE FROM schema_step WHERE number >= 18"
                    .to_owned()
            }
            Self::StepAhead => "INSERT INTO schema_step VALUES (99, 'later', 'x')".to_owned(),
            Self::ReviseOrders => "UPDATE payment_order SET revision = revision + 1".to_owned(),
            Self::Dangle(rows) => format!(
                "PRAGMA foreign_keys = 0; WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
                 INSERT INTO convert_order_move (tenant_no, order_id, revision, status, at) SELECT 1, i, 1, 1, 1 FROM n"
            ),
            Self::TakeEvidenceKey => "DELETE FROM setting WHERE name = 'evidence_key'".to_owned(),
            Self::SecretsUnder(key_id) => format!("UPDATE secret SET key_id = '{key_id}'"),
            Self::EvidenceUnder(key_id) => format!(
                "UPDATE setting SET value = replace(value, (SELECT o.value FROM setting o WHERE o.name = 'master_key_id'), '{key_id}')
                 WHERE name = 'evidence_key'"
            ),
            Self::ForgetPaid => "DELETE FROM last_paid".to_owned(),
            Self::AgeTokens(by) => {
                format!("UPDATE operator_token SET created_at = created_at - {by}, expires_at = expires_at - {by}")
            }
            Self::Crash(mark) => {
                format!("UPDATE replay SET boot_id = 'of before', journal_synced = 0, mark = max(mark, {})", mark.0)
            }
        }
    }

    /// Does it to a file that nobody has open.
    pub fn of_file(self, path: &Path) {
        Connection::open(path).and_then(|conn| conn.execute_batch(&self.sql())).expect("it is done");
    }
}

impl Database {
    /// Does it.
    pub async fn tamper(&self, with: Tampering) {
        self.client().await.batch_execute(&with.sql()).await.expect("it is done");
    }
}
