//! The yardstick of durable changes: pgbench, each client with one statement for each upgrade and nobody waiting for anybody.

use std::fs;

use super::Server;

/// The rows of one fee-rule upgrade (nonce, version, head, audit line) by one statement, which is also the transaction: what a writer would
/// send that commits each request on its own. Institution `:i` has the number `:i * (:subs + 1) + 1`, its sub-accounts follow it.
const UPGRADE: &str = r"\set i random(0, :institutions - 1)
\set tenant :i * (:subs + 1) + 1
\set merchant :tenant + random(1, :subs)
\set a random(0, 4000000000000000000)
\set b random(0, 4000000000000000000)
WITH now AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms),
claimed AS (
    INSERT INTO nonce (tenant_no, claim, stamped_at) SELECT :tenant, int8send(:a) || int8send(:b), now.ms FROM now
    ON CONFLICT (tenant_no, claim) DO NOTHING RETURNING stamped_at),
held AS (
    SELECT version_no, config_id FROM fee_rule_head WHERE tenant_no = :tenant AND merchant_no = :merchant FOR UPDATE),
rule AS (
    INSERT INTO fee_rule (tenant_no, merchant_no, version_no, config_id, previous_config_id, base_version_no, r_markup, f_markup,
        effective_at, due_at, created_at)
    SELECT :tenant, :merchant, held.version_no + 1, int8send(:b) || int8send(:a), held.config_id, held.version_no, '0.3', 0,
        claimed.stamped_at, NULL, claimed.stamped_at FROM held, claimed),
head AS (
    INSERT INTO fee_rule_head AS h (tenant_no, merchant_no, version_no, config_id, base_version_no)
    SELECT :tenant, :merchant, held.version_no + 1, int8send(:b) || int8send(:a), held.version_no FROM held
    ON CONFLICT (tenant_no, merchant_no) DO UPDATE SET version_no = excluded.version_no, config_id = excluded.config_id,
        base_version_no = excluded.base_version_no),
counted AS (
    INSERT INTO audit_head AS h (tenant_no, audit_no, link, link_before)
    VALUES (:tenant, 1, sha256(decode(repeat('00', 32), 'hex') || int8send(1) || int8send(:a) || int8send(:b) || int8send(:b) || int8send(:a)), int8send(:a) || int8send(:b) || int8send(:b) || int8send(:a))
    ON CONFLICT (tenant_no) DO UPDATE SET audit_no = h.audit_no + 1, link_before = h.link,
        link = sha256(h.link || int8send(h.audit_no + 1) || excluded.link_before)
    RETURNING audit_no, link)
INSERT INTO audit (tenant_no, audit_no, at, actor, source, action, subject, before, after, request_id, link)
SELECT :tenant, counted.audit_no, claimed.stamped_at, 'application measure', '', 'fee_rule.upgrade', 'bank-1-1',
    repeat('b', 140), repeat('a', 140),
    'measure', counted.link FROM counted, claimed;
";

impl Server {
    /// Upgrades per second by pgbench with so many clients for so many seconds, over `institutions` that have `subs` sub-accounts each, every one
    /// with a rule. It panics where pgbench fails or counts a failed transaction.
    pub fn pgbench(&self, database: &str, institutions: usize, subs: usize, clients: usize, seconds: u64) -> f64 {
        let script = self.folder().join("upgrade.sql");
        fs::write(&script, UPGRADE).expect("the script is written");
        let out = self
            .command("pgbench")
            .args(["-n", "-M", "prepared", "-j", "1", "-f", "upgrade.sql", "-U", "postgres"])
            .args(["-D", &format!("institutions={institutions}"), "-D", &format!("subs={subs}")])
            .args(["-c", &clients.to_string(), "-T", &seconds.to_string(), "-p", &self.port().to_string()])
            .arg("-h")
            .arg(self.folder())
            .arg(database)
            .output()
            .expect("pgbench can be started");
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "pgbench: {said}{}", String::from_utf8_lossy(&out.stderr));
        let after = |head: &str| said.lines().find_map(|line| line.strip_prefix(head)?.split(' ').next()?.parse().ok());
        assert_eq!(after("number of failed transactions: "), Some(0.0), "{said}");
        after("tps = ").expect("pgbench says how many transactions a second it made")
    }
}
