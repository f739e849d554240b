//! Lists of events for operators.

use rusqlite::{Connection, Row, params_from_iter};

use super::payment_order::values;
use super::queries::{Found, event_columns, many};
use super::rows;
use crate::conditions::goes_out;
use crate::contract::{Cursor, EventFilter};
use crate::event_list::{EventPage, Listing, Walk, Way, edge, page, standing};

macro_rules! rows {
    ($from:literal) => {
        concat!("SELECT ", event_columns!(), ", coalesce(", goes_out!(), ", false) ", $from)
    };
}

/// Deliveries are narrow and have their events' numbers, so a walk over all goes over them. Tables are joined from left to right: an outer
/// join as [`crate::conditions::stands_in`] leaves it, a `CROSS JOIN` as SQLite has it.
const fn way(walk: Walk) -> Way {
    let (rows, look, place, least) = match walk {
        Walk::All | Walk::Own => (
            rows!("FROM event e LEFT JOIN delivery d ON d.event_no = e.event_no WHERE true"),
            "SELECT e.event_no, e.seq FROM event e WHERE true",
            if matches!(walk, Walk::Own) { "e.seq" } else { "e.event_no" },
            if matches!(walk, Walk::Own) { " AND e.seq >= #" } else { " AND e.event_no >= #" },
        ),
        Walk::Business => (
            rows!("FROM event e INDEXED BY event_by_biz LEFT JOIN delivery d ON d.event_no = e.event_no WHERE true"),
            "SELECT e.event_no, e.event_no FROM event e INDEXED BY event_by_biz WHERE true",
            "e.event_no",
            " AND e.event_no >= #",
        ),
        Walk::Deliveries => (
            rows!("FROM delivery d CROSS JOIN event e ON e.event_no = d.event_no WHERE true"),
            "SELECT d.event_no, d.event_no FROM delivery d WHERE true",
            "d.event_no",
            " AND d.event_no >= #",
        ),
        Walk::Dead => (
            rows!(
                "FROM delivery d INDEXED BY delivery_dead_by_no CROSS JOIN event e ON e.event_no = d.event_no WHERE d.state = 'dead'"
            ),
            "",
            "d.event_no",
            " AND d.event_no >= #",
        ),
        Walk::OwnDead => (
            rows!(
                "FROM delivery d INDEXED BY delivery_dead CROSS JOIN event e ON e.event_no = d.event_no WHERE d.state = 'dead'"
            ),
            "",
            "d.event_no",
            " AND d.event_no >= #",
        ),
    };
    let lead = match walk {
        Walk::All | Walk::Deliveries | Walk::Dead => "",
        Walk::Business => " AND e.biz_id = #",
        Walk::Own => " AND e.application_no = (SELECT a.application_no FROM application a WHERE a.client_id = #)",
        Walk::OwnDead => " AND d.application_no = (SELECT a.application_no FROM application a WHERE a.client_id = #)",
    };
    Way { rows, look, place, least, lead, order: "", sign: '?' }
}

pub(super) fn events(conn: &Connection, filter: EventFilter, cursor: &Cursor, looked_max: u32) -> Found<EventPage> {
    let way = way(filter.walk());
    let listing = Listing::new(filter, cursor.after, way);
    let mut end = None;
    if let Some((sql, asked)) = listing.edge(looked_max) {
        let read = |row: &Row<'_>| {
            let mut f = rows::Fields::new(row, "event", 0, 0);
            Ok((f.int()?, f.int()?))
        };
        end = edge(&many(conn, &sql, params_from_iter(values(asked)), read)?);
    }
    let (sql, asked) = listing.rows(end.map(|(_, place)| place), cursor.limit);
    let found = many(conn, &sql, params_from_iter(values(asked)), |row| standing(row))?;
    Ok(page(found, cursor.limit, end.map(|(no, _)| no)))
}

#[cfg(test)]
mod tests {
    use crate::contract::Asker;
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use countersign_domain::ids::SortedId;

    use super::super::{SqliteOptions, SqliteStore, open::connect, schema};
    use super::*;
    use crate::Store as _;
    use crate::event_list::filters;

    fn plan(conn: &Connection, (sql, asked): crate::payment_listing::StatementEnd) -> Vec<String> {
        let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("prepares");
        let lines = plan.query_map(params_from_iter(values(asked)), |row| row.get(3)).expect("reads");
        lines.map(|line| line.expect("reads")).collect()
    }

    /// What a walk begins with.
    const fn begins(walk: Walk, of_event: bool) -> &'static str {
        match walk {
            Walk::All => "SEARCH e USING INTEGER PRIMARY KEY (rowid<?)",
            Walk::Deliveries => "SEARCH d USING INTEGER PRIMARY KEY (rowid<?)",
            Walk::Business if of_event => "SEARCH e USING INDEX event_by_biz (biz_id=? AND event_no<?)",
            Walk::Business => "SEARCH e USING COVERING INDEX event_by_biz (biz_id=? AND event_no<?)",
            Walk::Own if of_event => "SEARCH e USING INDEX sqlite_autoindex_event_2 (application_no=? AND seq<?)",
            Walk::Own => "SEARCH e USING COVERING INDEX sqlite_autoindex_event_2 (application_no=? AND seq<?)",
            Walk::Dead => "SEARCH d USING INDEX delivery_dead_by_no (event_no<?)",
            Walk::OwnDead => "SEARCH d USING INDEX delivery_dead (application_no=? AND event_no<?)",
        }
    }

    #[test]
    fn every_list_of_events_is_walked_from_its_newest_along_an_index_and_sorts_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut conn = connect(&dir.path().join("db"), 1000).expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        for (filter, after) in filters().into_iter().flat_map(|filter| [(filter.clone(), None), (filter, Some(7))]) {
            let walk = filter.walk();
            let listing = Listing::new(filter.clone(), after, way(walk));
            assert_eq!(listing.edge(9).is_some(), filter.is_bounded());
            for (asked, of_event) in [
                (listing.edge(9), false),
                (Some(listing.rows(None, 9)), true),
                (listing.edge(9).map(|_| listing.rows(Some(3), 9)), true),
            ] {
                let Some(asked) = asked else { continue };
                let lines = plan(&conn, asked);
                let whole = |line: &String| line.starts_with("SCAN") || line.contains("TEMP B-TREE");
                assert!(!lines.iter().any(whole), "{filter:?}: {lines:#?}");
                // Down to where the look ends, where there is an end.
                let walked =
                    lines[0].replace("rowid>? AND ", "").replace("seq>? AND ", "").replace("event_no>? AND ", "");
                assert_eq!(walked, begins(walk, of_event), "{filter:?}: {lines:#?}");
            }
        }
    }

    #[tokio::test]
    async fn an_event_with_its_attempts_is_read_on_no_thread_that_serves() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(&dir.path().join("db"), SqliteOptions::new([1; 16], "boot")).expect("opens");
        // Another thread may have read it before this one looks; never each time.
        let mut was_pending = false;
        for _ in 0..100 {
            let mut read = pin!(store.event(Asker::Operator, SortedId(1)));
            let polled = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            was_pending |= polled.is_pending();
            let found = if let Poll::Ready(found) = polled { found } else { read.await };
            assert!(found.expect("reads").is_none());
        }
        assert!(was_pending);
    }
}
