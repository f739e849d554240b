-- Lines of the audit log are numbered within their tenant, the system's own as tenant 0; `audit_head` has the last number of each.
-- Rows stay in the order of writing (`line_no`, the number they had before).

CREATE TABLE audit_head (
    tenant_no INTEGER PRIMARY KEY,
    audit_no INTEGER NOT NULL CHECK (audit_no >= 1)
) STRICT;

CREATE TABLE audit_of_tenants (
    tenant_no INTEGER NOT NULL,
    audit_no INTEGER NOT NULL CHECK (audit_no >= 1),
    line_no INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    source TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    request_id TEXT NOT NULL
) STRICT;

INSERT INTO audit_of_tenants
    SELECT coalesce(tenant_no, 0), row_number() OVER (PARTITION BY coalesce(tenant_no, 0) ORDER BY audit_no), audit_no,
        at, actor, source, action, subject, before, after, request_id
    FROM audit ORDER BY audit_no;
INSERT INTO audit_head SELECT tenant_no, max(audit_no) FROM audit_of_tenants GROUP BY tenant_no;
DROP TABLE audit;
ALTER TABLE audit_of_tenants RENAME TO audit;
CREATE INDEX audit_by_time ON audit (at, tenant_no, audit_no);
