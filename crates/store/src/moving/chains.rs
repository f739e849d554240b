//! What hangs together in the copy: heads, counters and histories. A file that is restored is asked for some of it in `sqlite/schema.rs`, too.

use super::{ChainReport, MoveError};
use crate::contract::StoreError;
use crate::postgres::moving::Target;

/// One kind of chain. The query gives a row for each link, its name and whether it holds. A restore leaves `seq` of events out, and goes on behind a
/// multiple of 10,000,000.
struct Chain {
    about: &'static str,
    table: &'static str,
    links: &'static str,
}

const CHAINS: &[Chain] = &[
    Chain {
        about: "versions of fee rules point to the one before",
        table: "fee_rule",
        links: "SELECT format('merchant_no %s, version_no %s', f.merchant_no, f.version_no) AS name,
                    f.previous_config_id IS NOT DISTINCT FROM p.config_id AND (f.version_no = 1 OR p.version_no IS NOT NULL) AS holds
                FROM fee_rule f LEFT JOIN fee_rule p
                    ON p.tenant_no = f.tenant_no AND p.merchant_no = f.merchant_no AND p.version_no = f.version_no - 1",
    },
    Chain {
        about: "heads of fee rules are the newest versions",
        table: "fee_rule_head",
        links: "SELECT format('merchant_no %s', coalesce(h.merchant_no, n.merchant_no)) AS name,
                    h.version_no IS NOT DISTINCT FROM n.version_no
                    AND (SELECT f.base_version_no IS NOT DISTINCT FROM h.base_version_no AND f.config_id = h.config_id FROM fee_rule f
                         WHERE f.tenant_no = h.tenant_no AND f.merchant_no = h.merchant_no AND f.version_no = h.version_no) AS holds
                FROM fee_rule_head h FULL JOIN (SELECT tenant_no, merchant_no, max(version_no) AS version_no FROM fee_rule GROUP BY 1, 2) n
                    ON n.tenant_no = h.tenant_no AND n.merchant_no = h.merchant_no",
    },
    Chain {
        about: "convert orders stand where their last move put them",
        table: "convert_order",
        links: "SELECT format('order_id %s', o.order_id) AS name, m.status IS NOT DISTINCT FROM o.status AND n.links = o.revision AS holds
                FROM convert_order o
                LEFT JOIN convert_order_move m ON m.tenant_no = o.tenant_no AND m.order_id = o.order_id AND m.revision = o.revision
                LEFT JOIN (SELECT tenant_no, order_id, count(*) AS links FROM convert_order_move GROUP BY 1, 2) n
                    ON n.tenant_no = o.tenant_no AND n.order_id = o.order_id",
    },
    Chain {
        about: "payment orders stand where their moves, one for each revision, put them",
        table: "payment_order",
        links: "SELECT format('order_no %s', coalesce(o.order_no, n.order_no)) AS name,
                    o.revision = 1 + coalesce(n.links, 0) AND o.status = coalesce(n.status, 'PENDING') AND coalesce(n.holds, true) AS holds
                FROM payment_order o FULL JOIN (
                    SELECT tenant_no, order_no, count(*) AS links, (array_agg(status ORDER BY revision DESC))[1] AS status,
                        bool_and(revision = place + 1 AND was = before) AS holds
                    FROM (SELECT tenant_no, order_no, revision, was, status, row_number() OVER line AS place,
                              lag(status, 1, 'PENDING') OVER line AS before
                          FROM payment_order_move WINDOW line AS (PARTITION BY tenant_no, order_no ORDER BY revision)) steps
                    GROUP BY tenant_no, order_no) n
                    ON n.tenant_no = o.tenant_no AND n.order_no = o.order_no",
    },
    Chain {
        about: "what was paid last of each sub-account is noted",
        table: "last_paid",
        links: "SELECT format('merchant_no %s', p.merchant_no) AS name, l.paid_at >= p.paid_at AS holds
                FROM (SELECT tenant_no, merchant_no, max(paid_at) AS paid_at FROM payment_order WHERE fee_r_markup IS NOT NULL GROUP BY 1, 2) p
                LEFT JOIN last_paid l ON l.tenant_no = p.tenant_no AND l.merchant_no = p.merchant_no",
    },
    Chain {
        about: "every payment order has the request that made it",
        table: "payment_order_request",
        links: "SELECT format('order_no %s', coalesce(o.order_no, r.order_no)) AS name,
                    o.order_no IS NOT NULL AND r.order_no IS NOT NULL AS holds
                FROM payment_order o FULL JOIN payment_order_request r ON r.tenant_no = o.tenant_no AND r.order_no = o.order_no",
    },
    Chain {
        about: "counters of applications are at their last event",
        table: "event_counter",
        links: "SELECT format('application_no %s', coalesce(c.application_no, e.application_no)) AS name,
                    (c.seq = e.last OR c.seq > coalesce(e.last, 0) AND c.seq % 10000000 = 0) AND coalesce(e.holds, true) AS holds
                FROM event_counter c
                FULL JOIN (SELECT tenant_no, application_no, max(last) AS last, bool_and(holds) AS holds FROM (
                    SELECT tenant_no, application_no, max(seq) AS last, max(seq) - min(seq) + 1 = count(*)
                        AND (min(seq) % 10000000 = 1 OR min(seq) = min(min(seq)) OVER (PARTITION BY tenant_no, application_no)) AS holds
                    FROM event GROUP BY tenant_no, application_no, (seq - 1) / 10000000) parts GROUP BY 1, 2) e
                    ON e.tenant_no = c.tenant_no AND e.application_no = c.application_no",
    },
    Chain {
        about: "counters of businesses are at their last event",
        table: "biz_counter",
        links: "SELECT format('application_no %s, biz_id %s', coalesce(c.application_no, e.application_no), coalesce(c.biz_id, e.biz_id)) AS name,
                    c.sequence IS NOT NULL AND (e.sequence IS NULL OR c.sequence = e.sequence AND e.sequence = e.first - 1 + e.events) AS holds
                FROM biz_counter c
                FULL JOIN (SELECT tenant_no, application_no, biz_id, min(sequence) AS first, max(sequence) AS sequence, count(*) AS events
                           FROM event GROUP BY 1, 2, 3) e
                    ON e.tenant_no = c.tenant_no AND e.application_no = c.application_no AND e.biz_id = c.biz_id",
    },
    Chain {
        about: "every event has its delivery, with all its attempts",
        table: "delivery",
        links: "SELECT format('event_no %s', coalesce(e.event_no, d.event_no)) AS name,
                    d.attempts IS NOT NULL AND coalesce(a.last, 0) = d.attempts AND coalesce(a.links, 0) = d.attempts AS holds
                FROM event e FULL JOIN delivery d ON d.tenant_no = e.tenant_no AND d.event_no = e.event_no
                LEFT JOIN (SELECT tenant_no, event_no, max(attempt) AS last, count(*) AS links FROM attempt GROUP BY 1, 2) a
                    ON a.tenant_no = d.tenant_no AND a.event_no = d.event_no",
    },
    Chain {
        about: "what went over the wire belongs to an attempt",
        table: "attempt_bytes",
        links: "SELECT format('event_no %s, attempt %s', b.event_no, b.attempt) AS name, a.at IS NOT DISTINCT FROM b.at AS holds
                FROM attempt_bytes b LEFT JOIN attempt a
                    ON a.tenant_no = b.tenant_no AND a.event_no = b.event_no AND a.attempt = b.attempt",
    },
    Chain {
        about: "the audit log of each tenant has no gap",
        table: "audit",
        links: "SELECT format('tenant_no %s, audit_no %s', tenant_no, audit_no) AS name,
                    audit_no = coalesce(lag(audit_no) OVER (PARTITION BY tenant_no ORDER BY audit_no), 0) + 1 AS holds
                FROM audit",
    },
    Chain {
        about: "the last number and link of each tenant's audit log are its last line's",
        table: "audit_head",
        links: "SELECT format('tenant_no %s', coalesce(h.tenant_no, a.tenant_no)) AS name,
                    h.audit_no IS NOT DISTINCT FROM a.audit_no
                    AND h.link IS NOT DISTINCT FROM (SELECT l.link FROM audit l WHERE l.tenant_no = h.tenant_no AND l.link IS NOT NULL
                                                     ORDER BY l.audit_no DESC LIMIT 1) AS holds
                FROM audit_head h FULL JOIN (SELECT tenant_no, max(audit_no) AS audit_no FROM audit GROUP BY 1) a
                    ON a.tenant_no = h.tenant_no",
    },
    Chain {
        about: "the directory names the tenant of every convert order",
        table: "order_directory",
        links: "SELECT format('order_id %s', coalesce(d.order_id, o.order_id)) AS name,
                    d.tenant_no IS NOT DISTINCT FROM o.tenant_no AS holds
                FROM order_directory d FULL JOIN convert_order o ON o.order_id = d.order_id",
    },
];

/// Follows them all; the first link that does not hold ends it.
pub(super) async fn follow(target: &Target) -> Result<Vec<ChainReport>, MoveError> {
    let mut reports = Vec::new();
    for Chain { about, table, links } in CHAINS {
        let count = format!("SELECT count(*), min(name) FILTER (WHERE holds IS NOT TRUE) FROM ({links}) links");
        let row = target.ask(&count).await?;
        let read = |error: tokio_postgres::Error| StoreError::Unfit(error.to_string());
        let (links, broken): (i64, Option<String>) = (row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
        if let Some(broken) = broken {
            return Err(MoveError::Differs { table, what: format!("{about}, but not {broken}") });
        }
        reports.push(ChainReport { about, links: u64::try_from(links).unwrap_or_default() });
    }
    Ok(reports)
}
