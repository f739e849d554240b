//! What somebody does who can write to the database and has no master key.

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
    /// The last schema step is undone, as if an older program had made the database.
    StepBack,
}

impl Database {
    /// Does it.
    pub async fn tamper(&self, with: Tampering) {
        let sql = match with {
            Tampering::Unchain => "UPDATE audit SET link = NULL; UPDATE audit_head SET link = NULL, link_before = NULL;
                 DELETE FROM setting WHERE name = 'audit_chain_key'"
                .to_owned(),
            Tampering::TakeChainKey => "DELETE FROM setting WHERE name = 'audit_chain_key'".to_owned(),
            Tampering::Blame(action) => format!("UPDATE audit SET actor = 'nobody' WHERE action = '{action}'"),
            Tampering::UnlinkAndGap => {
                "UPDATE audit SET link = NULL; UPDATE audit SET audit_no = 7 WHERE audit_no = 2".to_owned()
            }
            Tampering::StepBack => {
                "DROP TABLE last_paid; DELETE FROM schema_step WHERE number = (SELECT max(number) FROM schema_step)"
                    .to_owned()
            }
        };
        self.client().await.batch_execute(&sql).await.expect("it is done");
    }
}
