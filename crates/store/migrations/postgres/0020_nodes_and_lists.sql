-- What each node runs, so that whoever upgrades, or changes the master key, sees which nodes are through. A table of its own: that of the
-- heartbeats is not locked. A node from before this step says nothing here.
CREATE TABLE node_program (
    node_id BYTEA PRIMARY KEY CHECK (octet_length(node_id) = 16),
    version TEXT NOT NULL,
    key_id TEXT NOT NULL
);

-- In the order in which a change of a merchant locks them, and before any index is made, so that a try that fails has done nothing.
LOCK TABLE fee_rule, merchant, application IN SHARE MODE;
DO $$
DECLARE broken TEXT;
BEGIN
    SELECT string_agg(c.relname, ', ' ORDER BY c.relname) INTO broken FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid IN ('fee_rule'::regclass, 'merchant'::regclass, 'application'::regclass) AND NOT i.indisvalid;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'an index of fee_rule, merchant or application is not valid, since what made it was broken off: drop it (%), make it again or leave it to this step, and migrate again', broken;
    END IF;
END $$;

-- Operators ask which applications' callbacks are turned off, for a merchant's applications in their order, and for institutions and plain
-- merchants among millions of sub-accounts.
CREATE INDEX IF NOT EXISTS application_paused ON application (application_no) WHERE NOT callback_enabled;
CREATE INDEX IF NOT EXISTS application_of_merchant ON application (merchant_no, application_no);
CREATE INDEX IF NOT EXISTS merchant_institutions ON merchant (merchant_no) WHERE kind = 'institution';
CREATE INDEX IF NOT EXISTS merchant_plain ON merchant (merchant_no) WHERE kind = 'merchant';

-- Every 64th version of a sub-account: where a walk back over its versions begins, however many were made since.
CREATE INDEX IF NOT EXISTS fee_rule_by_creation ON fee_rule (tenant_no, merchant_no, created_at, version_no) WHERE version_no % 64 = 0;
