-- Operators ask which applications' callbacks are turned off, and for institutions among millions of sub-accounts.
CREATE INDEX IF NOT EXISTS application_paused ON application (application_no) WHERE callback_enabled = 0;
CREATE INDEX IF NOT EXISTS merchant_by_kind ON merchant (kind, merchant_no);

-- Every 64th version of a sub-account: where a walk back along its chain begins, however many were made since. With all versions in it each
-- upgrade would write one more page.
CREATE INDEX IF NOT EXISTS fee_rule_by_creation ON fee_rule (merchant_no, created_at, version_no) WHERE version_no % 64 = 0;
CREATE INDEX IF NOT EXISTS fee_rule_by_version ON fee_rule (merchant_no, version_no) WHERE version_no % 64 = 0;
