-- A change of a merchant touches its applications, or those of its whole institution, on the one writer.
CREATE INDEX application_of_tenant ON application (tenant_no, merchant_no);

-- Revoked secrets are never deleted, and each look for those in force would read past them.
CREATE INDEX secret_in_force ON secret (application_no, created_at, secret_id) WHERE revoked_at IS NULL;

-- Operators list the redeliveries of one application.
CREATE INDEX redelivery_of_application ON redelivery (application_no, redelivery_id);
