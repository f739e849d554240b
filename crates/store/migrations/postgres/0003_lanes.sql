-- What nodes that share the database tell each other.

-- Who delivers: an application's callbacks are sent by the node that holds lane application_no & 63. Each taking raises the fence.
-- The key over both columns is there for its locks: taking a lane changes a key, so it waits for those who hold the row FOR KEY SHARE
-- (and they for it), renewing does not.
CREATE TABLE delivery_lane (
    lane BIGINT PRIMARY KEY CHECK (lane BETWEEN 0 AND 63),
    node BYTEA CHECK (octet_length(node) = 16),
    fence BIGINT NOT NULL CHECK (fence >= 0),
    expires_at BIGINT NOT NULL,
    UNIQUE (lane, fence)
);
INSERT INTO delivery_lane (lane, fence, expires_at) SELECT lane, 0, 0 FROM generate_series(0, 63) AS s (lane);

CREATE TABLE node (
    node_id BYTEA PRIMARY KEY CHECK (octet_length(node_id) = 16),
    name TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    clock_ahead_ms BIGINT
);

-- How often applications or secrets have changed. Whoever changes one holds this row until his commit, so that revisions become visible
-- in their order.
CREATE TABLE directory (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    revision BIGINT NOT NULL CHECK (revision >= 0)
);
INSERT INTO directory (one, revision) VALUES (1, 0);
ALTER TABLE application ADD COLUMN directory_revision BIGINT NOT NULL DEFAULT 0;
CREATE INDEX application_by_change ON application (directory_revision);

ALTER TABLE attempt ADD COLUMN fence BIGINT NOT NULL DEFAULT 0 CHECK (fence >= 0);

DROP INDEX delivery_due;
CREATE INDEX delivery_due ON delivery ((application_no & 63), due_at, event_no) WHERE state = 'pending';
