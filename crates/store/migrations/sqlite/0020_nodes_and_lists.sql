-- Operators ask which applications' callbacks are turned off, for an institution's sub-accounts in their order, and for institutions and plain
-- merchants among millions of sub-accounts.
CREATE INDEX IF NOT EXISTS application_paused ON application (application_no) WHERE callback_enabled = 0;
CREATE INDEX IF NOT EXISTS merchant_of_tenant ON merchant (tenant_no, merchant_no);
CREATE INDEX IF NOT EXISTS merchant_institutions ON merchant (merchant_no) WHERE kind = 'institution';
CREATE INDEX IF NOT EXISTS merchant_plain ON merchant (merchant_no) WHERE kind = 'merchant';

-- Every 64th version of a sub-account: where a walk back along its chain begins, however many were made since. With all versions in it each
-- upgrade would write one more page.
CREATE INDEX IF NOT EXISTS fee_rule_by_creation ON fee_rule (merchant_no, created_at, version_no) WHERE version_no % 64 = 0;
CREATE INDEX IF NOT EXISTS fee_rule_by_version ON fee_rule (merchant_no, version_no) WHERE version_no % 64 = 0;
