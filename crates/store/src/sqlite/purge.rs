//! Deleting old rows of the table of nonces.
//!
//! Nonces are numbered in the order of their commits, so the too old ones are nearly all at the beginning. Rows of a time when the clock was
//! ahead lie between them: they are passed over and remembered as spans, each with its least timestamp, so that none is looked at again
//! before the horizon has come to it.

use std::collections::BTreeSet;

use super::apply::{Applier, Stop};
use super::statements::Sql;
use super::writer::Done;

/// Rows that were passed over. What is written here rests on the open transaction: forget it where that is rolled back.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// All rows up to this number were looked at: they are deleted, or lie in a span.
    through: i64,
    spans: BTreeSet<Span>,
}

/// A stretch of rows that are not too old yet. Stretches sort by which will be too old first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    least_stamped_at: i64,
    first: i64,
    last: i64,
}

/// What a purge may deal with of the rows that were not looked at yet.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// The last of them.
    through: i64,
    /// Whether most rows that were read are too old, so that more such rows lie behind them.
    is_rich: bool,
}

/// Deletes what lies at or before the horizon of some rows, `count_max` at the most, and says whether there may be more.
pub(super) fn delete_nonces(applier: &mut Applier<'_>, count_max: u32) -> Result<Done, Stop> {
    let horizon = applier.nonces.horizon();
    let due = applier.passed.spans.first().copied().filter(|span| span.least_stamped_at <= horizon);
    let more_nonces = if let Some(span) = due {
        applier.passed.spans.remove(&span);
        delete_within(applier, span.first, span.last, horizon)?;
        true
    } else {
        let Some(look) = look(applier, count_max, horizon)? else { return Ok(Done::default()) };
        delete_within(applier, applier.passed.through + 1, look.through, horizon)?;
        applier.passed.through = look.through;
        look.is_rich
    };
    // A number is given again once it and all above it are deleted.
    let newest = newest(applier)?.map_or(0, |(no, _)| no);
    applier.passed.through = applier.passed.through.min(newest);
    Ok(Done { more_nonces, ..Done::default() })
}

/// Rows up to the last one that is too old. Where none is, and as many as may be were read and are all stamped later than the newest row, the
/// clock was ahead when they came, and too old ones may lie behind them: then it is all of these.
fn look(applier: &mut Applier<'_>, count_max: u32, horizon: i64) -> Result<Option<Look>, Stop> {
    let (mut count, mut too_old, mut last) = (0, 0, None);
    let mut last_too_old = None;
    let mut least = i64::MAX;
    let mut rows = applier.kept.get(Sql::NonceOldest)?.query([applier.passed.through, i64::from(count_max)])?;
    while let Some(row) = rows.next()? {
        let (no, stamped_at): (i64, i64) = (row.get(0)?, row.get(1)?);
        (count, last, least) = (count + 1, Some(no), least.min(stamped_at));
        if stamped_at <= horizon {
            (too_old, last_too_old) = (too_old + 1, Some(no));
        }
    }
    drop(rows);
    let is_full = count == count_max;
    if last_too_old.is_none() && is_full && newest(applier)?.is_some_and(|(_, stamped_at)| stamped_at < least) {
        return Ok(last.map(|through| Look { through, is_rich: true }));
    }
    Ok(last_too_old.map(|through| Look { through, is_rich: is_full && 2 * too_old >= count }))
}

/// Deletes what is too old of some rows; what is left of them is passed over.
fn delete_within(applier: &mut Applier<'_>, first: i64, last: i64, horizon: i64) -> Result<(), Stop> {
    applier.kept.run(Sql::NonceDelete, [first, last, horizon])?;
    let left = applier.kept.get(Sql::NonceLeft)?.query_row([first, last], |row| {
        let least: Option<i64> = row.get(0)?;
        let span = |least_stamped_at| Ok(Span { least_stamped_at, first: row.get(1)?, last: row.get(2)? });
        least.map(span).transpose()
    })?;
    applier.passed.spans.extend(left);
    Ok(())
}

/// Number and timestamp of the newest row.
fn newest(applier: &mut Applier<'_>) -> Result<Option<(i64, i64)>, Stop> {
    let mut rows = applier.kept.get(Sql::NonceNewest)?.query([])?;
    Ok(rows.next()?.map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, row.get(1)?))).transpose()?)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use rusqlite::{Connection, StatementStatus, params};

    use super::*;
    use crate::sqlite::nonces::Nonces;
    use crate::sqlite::statements::Kept;
    use crate::sqlite::{SqliteOptions, SqliteStore, schema};

    const PORTION: u32 = 10;
    /// The timestamps of a clock that is ahead begin here.
    const AHEAD: i64 = 1_000_000;

    fn nonces() -> Arc<Nonces> {
        let dir = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(&dir.path().join("db"), SqliteOptions::new([1; 16], "boot")).expect("opens");
        Arc::clone(&store.nonces)
    }

    fn table() -> Connection {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        conn
    }

    fn applier<'c>(conn: &'c Connection, nonces: &'c Nonces) -> Applier<'c> {
        Applier::new(Kept::new(conn), nonces, Arc::new(OnceLock::new()))
    }

    fn put(applier: &mut Applier<'_>, stamps: impl IntoIterator<Item = i64>) {
        for stamped_at in stamps {
            applier.kept.run(Sql::NonceInsert, params![[0_u8; 16], stamped_at]).expect("is written");
        }
    }

    /// Purges up to `horizon`: how many rows are left.
    fn purge(applier: &mut Applier<'_>, horizon: i64) -> i64 {
        applier.nonces.horizon_raised(horizon);
        while delete_nonces(applier, PORTION).expect("deletes").more_nonces {}
        applier.kept.conn().query_row("SELECT count(*) FROM nonce", [], |row| row.get(0)).expect("counts")
    }

    /// What all purges so far have cost, in steps of SQLite's machine.
    fn cost(applier: &mut Applier<'_>) -> i32 {
        let statements = [Sql::NonceOldest, Sql::NonceNewest, Sql::NonceDelete, Sql::NonceLeft];
        statements.map(|sql| applier.kept.get(sql).expect("is there").get_status(StatementStatus::VmStep)).iter().sum()
    }

    #[test]
    fn a_nonce_stamped_ahead_keeps_none_behind_it_and_goes_when_its_time_has_come() {
        let (conn, nonces) = (table(), nonces());
        let mut applier = applier(&conn, &nonces);
        put(&mut applier, [1, AHEAD, 2, 3, AHEAD + 1].into_iter().chain(4..=50));
        assert_eq!(purge(&mut applier, 30), 22, "20 are not too old, and two are ahead");
        assert_eq!(purge(&mut applier, 50), 2);
        assert_eq!(purge(&mut applier, AHEAD), 1);
        assert_eq!(purge(&mut applier, AHEAD + 1), 0);
        // Their numbers are those of the first ones.
        put(&mut applier, [AHEAD + 2, AHEAD + 3]);
        assert_eq!(purge(&mut applier, AHEAD + 2), 1);
        assert_eq!(purge(&mut applier, AHEAD + 3), 0);
    }

    /// The cost of purges of three rows each, behind so many rows that are stamped ahead.
    fn costs_behind(ahead: i64) -> Vec<i32> {
        let (conn, nonces) = (table(), nonces());
        let mut applier = applier(&conn, &nonces);
        put(&mut applier, (AHEAD..).take(usize::try_from(ahead).expect("few")));
        put(&mut applier, 1..=3);
        assert_eq!(purge(&mut applier, 2), ahead + 1);
        let costs = (1..=5).map(|n| {
            put(&mut applier, 3 * n + 1..=3 * n + 3);
            let before = cost(&mut applier);
            assert_eq!(purge(&mut applier, 3 * n + 2), ahead + 1);
            assert_eq!(purge(&mut applier, 3 * n + 2), ahead + 1, "there is nothing to do");
            cost(&mut applier) - before
        });
        let costs = costs.collect();
        assert_eq!(purge(&mut applier, AHEAD + ahead / 2), ahead - ahead / 2 - 1, "their time comes");
        assert_eq!(purge(&mut applier, AHEAD + ahead), 0);
        costs
    }

    #[test]
    fn what_was_passed_over_costs_later_purges_nothing_however_much_it_is() {
        let few = costs_behind(40);
        assert_eq!(costs_behind(4_000), few);
        assert!(few.iter().all(|cost| *cost == few[0]), "and does not grow: {few:?}");
    }

    #[test]
    fn what_a_purge_deleted_in_a_transaction_that_is_rolled_back_goes_with_the_next_one() {
        let (conn, nonces) = (table(), nonces());
        let mut applier = applier(&conn, &nonces);
        put(&mut applier, [AHEAD].into_iter().chain(1..=5));
        conn.execute_batch("BEGIN").expect("begins");
        assert_eq!(purge(&mut applier, 5), 1);
        conn.execute_batch("ROLLBACK").expect("ends");
        applier.rolled_back();
        assert_eq!(purge(&mut applier, 5), 1);
        assert_eq!(purge(&mut applier, AHEAD), 0);
    }
}
