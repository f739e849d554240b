//! A log of who held which lane, and by which term each attempt was recorded: kept by triggers in a test's own database, so that what the
//! product does is judged by what PostgreSQL saw of it.

use std::collections::HashMap;

use super::Database;

const LOG: &str = "
    CREATE TABLE run_term (no BIGSERIAL PRIMARY KEY, lane BIGINT, node BYTEA, fence BIGINT,
        at BIGINT NOT NULL DEFAULT extract(epoch FROM clock_timestamp()) * 1000);
    CREATE FUNCTION run_note_term() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO run_term (lane, node, fence) VALUES (NEW.lane, NEW.node, NEW.fence); RETURN NULL; END $$;
    CREATE TRIGGER run_term AFTER UPDATE ON delivery_lane FOR EACH ROW
        WHEN (OLD.node IS DISTINCT FROM NEW.node OR OLD.fence <> NEW.fence) EXECUTE FUNCTION run_note_term();
    INSERT INTO run_term (lane, node, fence) SELECT lane, node, fence FROM delivery_lane WHERE node IS NOT NULL;
    CREATE TABLE run_attempt (event_no BIGINT, attempt BIGINT, fence BIGINT, lane BIGINT, held_by BIGINT);
    CREATE FUNCTION run_note_attempt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO run_attempt SELECT NEW.event_no, NEW.attempt, NEW.fence, l.lane, l.fence FROM delivery d
            JOIN delivery_lane l ON l.lane = d.application_no & 63 WHERE d.event_no = NEW.event_no AND d.tenant_no = NEW.tenant_no;
        RETURN NULL; END $$;
    CREATE TRIGGER run_attempt AFTER INSERT ON attempt FOR EACH ROW EXECUTE FUNCTION run_note_attempt()";

const TERMS: &str = "SELECT lane, node, fence, at FROM run_term ORDER BY no";
const LANES: &str = "SELECT client_id, application_no & 63 FROM application";
const ATTEMPTS: &str = "SELECT count(*), count(*) FILTER (WHERE fence <> held_by OR fence = 0) FROM run_attempt";
const RECORDED: &str = "SELECT count(*) FROM attempt";

/// Deliveries whose count of attempts is not what is recorded, and those that are not delivered.
const UNSOUND: &str = "
    SELECT d.event_no, d.state, d.attempts, count(a.attempt), coalesce(max(a.attempt), 0) FROM delivery d
        LEFT JOIN attempt a ON a.event_no = d.event_no AND a.tenant_no = d.tenant_no
        GROUP BY d.tenant_no, d.event_no, d.state, d.attempts
        HAVING d.state <> 'delivered' OR d.attempts <> count(a.attempt) OR coalesce(max(a.attempt), 0) <> count(a.attempt)
        ORDER BY d.event_no LIMIT 10";

/// A term of a lane, as it was taken or given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Which lane.
    pub lane: i64,
    /// Whose it became; none: nobody's.
    pub node: Option<Vec<u8>>,
    /// Its fence.
    pub fence: i64,
    /// When, in ms since 1970 by the database's clock.
    pub at_ms: i64,
}

/// What was logged.
#[derive(Clone, Debug, Default)]
pub struct LaneLog {
    /// Terms in the order in which they came.
    pub terms: Vec<Term>,
    /// Attempts recorded.
    pub attempts: i64,
    /// Of these, by a term that was not the lane's at that moment.
    pub strangers: i64,
}

impl LaneLog {
    /// How often a lane went from one node to another.
    pub fn handovers(&self) -> usize {
        let mut holders: HashMap<i64, &Vec<u8>> = HashMap::new();
        let mut count = 0;
        for term in &self.terms {
            let Some(node) = &term.node else { continue };
            count += usize::from(holders.insert(term.lane, node).is_some_and(|before| before != node));
        }
        count
    }

    /// When terms began, lane by lane, in ms since 1970.
    pub fn began(&self) -> HashMap<i64, Vec<i64>> {
        let mut found: HashMap<i64, Vec<i64>> = HashMap::new();
        for term in self.terms.iter().filter(|term| term.node.is_some()) {
            found.entry(term.lane).or_default().push(term.at_ms);
        }
        found
    }

    /// When a lane was taken though nobody had given it back, lane by lane, in ms since 1970: its holder died, or its lease ran out. A node that
    /// starts again gives back what it had before.
    pub fn run_out(&self) -> HashMap<i64, Vec<i64>> {
        let mut held: HashMap<i64, bool> = HashMap::new();
        let mut found: HashMap<i64, Vec<i64>> = HashMap::new();
        for term in &self.terms {
            let before = held.insert(term.lane, term.node.is_some()).unwrap_or(false);
            if before && term.node.is_some() {
                found.entry(term.lane).or_default().push(term.at_ms);
            }
        }
        found
    }

    /// What no log may show: a term that two nodes had, a fence that did not grow with its holder, an attempt recorded by another term.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut last: HashMap<i64, (i64, Option<&Vec<u8>>)> = HashMap::new();
        for Term { lane, node, fence, .. } in &self.terms {
            let (fence_before, holder) = last.get(lane).copied().unwrap_or((0, None));
            if *fence < fence_before {
                faults.push(format!("the fence of lane {lane} went from {fence_before} to {fence}"));
            }
            if node.is_some() && node.as_ref() != holder && *fence <= fence_before {
                faults.push(format!("lane {lane} was taken with fence {fence}, which had been somebody's"));
            }
            // Given back: the next holder is another one, even if it is the same node.
            last.insert(*lane, (*fence, node.as_ref()));
        }
        if self.strangers > 0 {
            faults.push(format!(
                "{} of {} attempts were recorded by a term that was over",
                self.strangers, self.attempts
            ));
        }
        faults
    }
}

impl Database {
    /// Begins to log terms and attempts. The schema must be there.
    pub async fn log_lanes(&self) {
        self.client().await.batch_execute(LOG).await.expect("a log can be kept");
    }

    /// What was logged so far.
    pub async fn lane_log(&self) -> LaneLog {
        let client = self.client().await;
        let terms = client.query(TERMS, &[]).await.expect("a log is kept");
        let terms = terms
            .iter()
            .map(|row| Term { lane: row.get(0), node: row.get(1), fence: row.get(2), at_ms: row.get(3) })
            .collect();
        let attempts = client.query_one(ATTEMPTS, &[]).await.expect("a log is kept");
        let recorded: i64 = client.query_one(RECORDED, &[]).await.expect("a table").get(0);
        assert_eq!(recorded, attempts.get::<_, i64>(0), "every attempt is logged");
        LaneLog { terms, attempts: recorded, strangers: attempts.get(1) }
    }

    /// The lane of each application, by `client_id`.
    pub async fn lanes(&self) -> HashMap<String, i64> {
        let rows = self.client().await.query(LANES, &[]).await.expect("a table");
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// How many deliveries there are.
    pub async fn deliveries(&self) -> i64 {
        self.client().await.query_one("SELECT count(*) FROM delivery", &[]).await.expect("a table").get(0)
    }

    /// Deliveries that are not delivered, or whose attempts are not 1, 2, 3 ... up to their count: some of them, in words.
    pub async fn unsound_deliveries(&self) -> Vec<String> {
        let rows = self.client().await.query(UNSOUND, &[]).await.expect("tables");
        let words = |row: &tokio_postgres::Row| {
            let (event, state): (i64, String) = (row.get(0), row.get(1));
            let (attempts, recorded, last): (i64, i64, i64) = (row.get(2), row.get(3), row.get(4));
            format!("event {event} is {state} after {attempts} attempts; {recorded} are recorded, the last is {last}")
        };
        rows.iter().map(words).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(terms: &[(i64, u8, i64)]) -> LaneLog {
        let node = |node: u8| (node > 0).then(|| vec![node; 16]);
        let term = |(n, &(lane, holder, fence)): (usize, &(i64, u8, i64))| Term {
            lane,
            node: node(holder),
            fence,
            at_ms: 10 * i64::try_from(n).expect("few"),
        };
        let terms = terms.iter().enumerate().map(term).collect();
        LaneLog { terms, attempts: 9, strangers: 0 }
    }

    #[test]
    fn terms_that_grow_with_each_holder_are_in_order() {
        let log = log(&[(1, 7, 1), (2, 8, 1), (1, 0, 1), (1, 8, 2), (2, 7, 2), (1, 8, 3)]);
        assert_eq!((log.faults(), log.handovers()), (Vec::new(), 2));
    }

    #[test]
    fn a_lane_that_was_given_back_did_not_run_out() {
        let log = log(&[(1, 7, 1), (2, 8, 1), (1, 0, 1), (1, 8, 2), (2, 7, 2), (1, 8, 3)]);
        assert_eq!(log.run_out(), HashMap::from([(2, vec![40]), (1, vec![50])]));
        assert_eq!(log.began(), HashMap::from([(1, vec![0, 30, 50]), (2, vec![10, 40])]));
    }

    #[test]
    fn a_term_that_two_had_a_fence_that_fell_and_a_late_attempt_are_seen() {
        assert_eq!(log(&[(1, 7, 1), (1, 8, 1)]).faults().len(), 1, "taken without a new fence");
        assert_eq!(log(&[(1, 7, 1), (1, 0, 1), (1, 8, 1)]).faults().len(), 1, "given back, then taken without one");
        assert_eq!(log(&[(1, 7, 3), (1, 0, 2)]).faults().len(), 1, "a fence fell");
        assert_eq!(LaneLog { strangers: 1, ..log(&[(1, 7, 1)]) }.faults().len(), 1);
    }
}
