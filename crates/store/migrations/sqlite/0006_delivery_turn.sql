-- Applications whose open deliveries are still to be held or released, in portions, since their callbacks ceased or began to go out.
CREATE TABLE delivery_turn (
    tenant_no INTEGER NOT NULL,
    application_no INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_no, application_no)
) STRICT, WITHOUT ROWID;
