-- In the order in which a change of a merchant locks them.
LOCK TABLE fee_rule, merchant, application IN SHARE MODE;

-- Operators ask which applications' callbacks are turned off, and for institutions among millions of sub-accounts.
CREATE INDEX IF NOT EXISTS application_paused ON application (application_no) WHERE NOT callback_enabled;
CREATE INDEX IF NOT EXISTS merchant_by_kind ON merchant (kind, merchant_no);

-- Every 64th version of a sub-account: where a walk back over its versions begins, however many were made since.
CREATE INDEX IF NOT EXISTS fee_rule_by_creation ON fee_rule (tenant_no, merchant_no, created_at, version_no) WHERE version_no % 64 = 0;

-- What a node runs, so that whoever upgrades, or changes the master key, sees which nodes are through. A node from before this step leaves
-- both empty. Last, since heartbeats wait from here on.
ALTER TABLE node ADD COLUMN IF NOT EXISTS version TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN IF NOT EXISTS key_id TEXT NOT NULL DEFAULT '';
