//! Lists of events for operators.

use tokio_postgres::Row;

use super::event_texts::{EVENTS, EVENTS_DEAD, EVENTS_LOOK, EVENTS_LOOK_BY_SEQ};
use super::payment_order::listed;
use super::queries::Found;
use super::readers::Readers;
use super::rows;
use crate::contract::{Cursor, EventFilter};
use crate::event_list::{EventPage, Listing, Walk, Way, edge, page, standing};

/// Of the application that is asked for. What is an application's is found by its tenant, too, with which the indexes begin.
macro_rules! own {
    ($of:literal, $tenant:literal) => {
        concat!(
            " AND ",
            $of,
            $tenant,
            " AND ",
            $of,
            ".application_no = (SELECT a.application_no FROM application a WHERE a.client_id = #)"
        )
    };
}

/// What is not dead is walked over by events: there is no index of all deliveries by number. Where another index has the order of the places, too, what
/// the right one begins with is one of a list, since a constant would be left out of the order, and there is a range that is of the right one alone.
/// And one end is a pair's: a range of two plain ends is taken for so small that any index will do.
const fn way(walk: Walk) -> Way {
    let own = own!("e", ".tenant_no = (SELECT a.tenant_no FROM application a WHERE a.client_id = #)");
    let dead = own!("d", ".tenant_no = ANY(ARRAY[(SELECT a.tenant_no FROM application a WHERE a.client_id = #)])");
    let business = " AND e.biz_id = ANY(ARRAY[#]) AND (e.biz_id, e.event_no) <= (#, 9223372036854775807)";
    let by_no = " AND e.event_no >= #";
    let (rows, look, place, least, lead, order) = match walk {
        Walk::All | Walk::Deliveries => (EVENTS, EVENTS_LOOK, "e.event_no", by_no, "", ""),
        Walk::Business => {
            (EVENTS, EVENTS_LOOK, "e.event_no", " AND (e.event_no, e.seq) >= (#, 0)", business, "e.biz_id DESC, ")
        }
        Walk::Own => (EVENTS, EVENTS_LOOK_BY_SEQ, "e.seq", " AND e.seq >= #", own, ""),
        Walk::Dead => (EVENTS_DEAD, "", "d.event_no", "", "", ""),
        Walk::OwnDead => (EVENTS_DEAD, "", "d.event_no", "", dead, "d.tenant_no DESC, "),
    };
    Way { rows, look, place, least, lead, order, sign: '$' }
}

pub(super) async fn events(from: &Readers, filter: EventFilter, cursor: &Cursor, looked_max: u32) -> Found<EventPage> {
    let way = way(filter.walk());
    let listing = Listing::new(filter, cursor.after, way);
    let mut end = None;
    if let Some(asked) = listing.edge(looked_max) {
        let read = |row: &Row| {
            let mut f = rows::Fields::new(row, "event", 0, 0);
            Ok((f.int()?, f.int()?))
        };
        end = edge(&listed(from, "", asked).await?.iter().map(read).collect::<Found<Vec<_>>>()?);
    }
    let found = listed(from, "", listing.rows(end.map(|(_, place)| place), cursor.limit)).await?;
    let found = found.iter().map(standing).collect::<Found<Vec<_>>>()?;
    Ok(page(found, cursor.limit, end.map(|(no, _)| no)))
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::super::event_texts::{MANY, SOME_OF_ANOTHER};
    use super::super::statements::{Sql, TEXTS};
    use super::super::tenancy::plan_tests::{empty, lines, pages};
    use super::*;
    use crate::event_list::filters;
    use crate::payment_listing::{StatementEnd, Value};

    /// So many events are looked at for a page.
    const LOOKED: u32 = 50;
    /// And at so many pages, of the hundred and more that there are.
    const PAGES_MAX: usize = 30;

    const fn index(walk: Walk) -> &'static str {
        match walk {
            Walk::All | Walk::Deliveries => "event_by_no on event e",
            Walk::Business => "event_by_biz on event e",
            Walk::Own => "event_tenant_no_application_no_seq_key on event e",
            Walk::Dead => "delivery_dead_by_no on delivery d",
            Walk::OwnDead => "delivery_dead on delivery d",
        }
    }

    /// The plan as the server gets it: of a statement that was made for any value.
    async fn plan(client: &tokio_postgres::Client, (sql, asked): StatementEnd) -> Vec<String> {
        let values = asked.into_iter().map(|value| match value {
            Value::Int(value) => value.to_string(),
            Value::Text(value) => format!("'{value}'"),
        });
        let values: Vec<String> = values.collect();
        client.batch_execute(&format!("PREPARE asked AS {sql}")).await.expect("is prepared");
        let explain = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) EXECUTE asked({})", values.join(", "));
        let plan = lines(client, &explain).await;
        client.batch_execute("DEALLOCATE asked").await.expect("is let go");
        plan
    }

    #[tokio::test]
    async fn every_list_of_events_is_walked_from_its_newest_along_an_index_whatever_is_known_of_the_tables() {
        let (_database, session) = empty().await;
        let client = session.client();
        for step in ["", MANY, SOME_OF_ANOTHER, "ANALYZE event, delivery, application, merchant"] {
            client.batch_execute(step).await.expect("is done");
            for (filter, after) in filters().into_iter().flat_map(|of| [(of.clone(), None), (of, Some(11_995))]) {
                let walk = filter.walk();
                let listing = Listing::new(filter.clone(), after, way(walk));
                // Numbers and `seq` are one here.
                let end = filter.is_bounded().then(|| 12_001 - i64::from(LOOKED));
                for asked in [listing.edge(LOOKED), Some(listing.rows(end, 20))].into_iter().flatten() {
                    let plan = plan(client, asked).await;
                    let walked = plan.iter().find(|line| line.contains(" Backward using ")).expect("a walk");
                    assert!(walked.contains(index(walk)), "{filter:?}: {plan:#?}");
                    let is_bad = |line: &String| ["Sort", "Seq Scan", "Hash"].iter().any(|word| line.contains(word));
                    assert!(!plan.iter().any(is_bad), "{filter:?}: {plan:#?}");
                    let thrown = plan.iter().filter_map(|line| line.trim().strip_prefix("Rows Removed by Filter: "));
                    let thrown: u32 = thrown.map(|rows| rows.parse::<u32>().expect("a number")).sum();
                    assert!(thrown <= LOOKED, "{filter:?}: {plan:#?}");
                    // Nor does it go on in the index behind the last that is looked at.
                    assert!(pages(&plan, " Backward using ") <= PAGES_MAX, "{filter:?}: {plan:#?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_look_at_what_is_open_reads_no_events_that_are_over() {
        let (_database, session) = empty().await;
        let client = session.client();
        let text = |of: Sql| TEXTS[of as usize];
        let walk = "EXECUTE walk(1, 'b', 11000, 11002, 1, 9000, 1000)";
        let looks = [
            (walk, "event_by_biz on event o", 12),
            ("EXECUTE many(1, 1, 5)", "delivery_open on delivery", 5),
            ("EXECUTE among(1, 'b', 9000, 1, 9000)", "delivery_open on delivery d", 5),
        ];
        let prepared = [("walk", Sql::OpenBefore), ("many", Sql::ManyOpen), ("among", Sql::OpenAmong)];
        for (name, of) in prepared {
            client.batch_execute(&format!("PREPARE {name} AS {}", text(of))).await.expect("is prepared");
        }
        for step in ["", MANY, SOME_OF_ANOTHER, "ANALYZE event, delivery, application, merchant"] {
            client.batch_execute(step).await.expect("is done");
            for (asked, index, most) in looks {
                let plan = lines(client, &format!("EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) {asked}")).await;
                assert!(plan.iter().any(|line| line.contains(&format!(" using {index}"))), "{plan:#?}");
                assert!(pages(&plan, &format!(" using {index}")) <= most, "{plan:#?}");
            }
        }
    }
}
