//! What `doctor` says of backups.

use countersign_domain::time::{UnixMillis, rfc3339};

use super::{Findings, Verdict};
use crate::datadir::DataDir;

/// A backup that is older than this is nobody's plan.
const OLD_DAYS: i64 = 7;
const DAY_MS: i64 = 86_400_000;

/// Says when the last one was begun. That none is known is no fault: a database may have means of its own, and an empty deployment has nothing to lose.
pub(super) fn examine(data: &DataDir, now: UnixMillis, findings: &mut Findings) {
    let (verdict, said) = match data.backup_noted() {
        Err(error) => (Verdict::Warn, error.to_string()),
        Ok(None) => {
            (Verdict::Ok, "none is noted in this folder: `countersign backup` takes one while servers run".to_owned())
        }
        Ok(Some(at)) => {
            let days = (now.0 - at.0) / DAY_MS;
            let verdict = if days > OLD_DAYS { Verdict::Warn } else { Verdict::Ok };
            (verdict, format!("the last good one noted in this folder was begun at {}, {days} days ago", rfc3339(at)))
        }
    };
    findings.note(verdict, "backup", said);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_is_old_or_a_note_that_is_not_read_is_a_warning() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let data = DataDir::named(folder.path());
        let said = |now: i64| {
            let mut findings = Findings::default();
            examine(&data, UnixMillis(now), &mut findings);
            findings.text()
        };
        assert!(said(0).starts_with("ok    backup       none is noted"), "{}", said(0));
        data.note_backup(UnixMillis(DAY_MS)).expect("it is noted");
        assert!(said(8 * DAY_MS).starts_with("ok    backup       the last good one"), "{}", said(8 * DAY_MS));
        assert!(said(9 * DAY_MS).contains("begun at 1970-01-02T00:00:00.000Z, 8 days ago"), "{}", said(9 * DAY_MS));
        assert!(said(9 * DAY_MS).starts_with("warn"), "{}", said(9 * DAY_MS));
        std::fs::write(folder.path().join("backup.last"), "yesterday").expect("written");
        assert!(said(0).starts_with("warn  backup") && said(0).contains("backup.last"), "{}", said(0));
    }
}
