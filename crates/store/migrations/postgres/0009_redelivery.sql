-- Many events of an application that are sent again by a filter, in portions: what was asked for, how far it is, how it ended. Its events are
-- walked by `seq`: `cursor_seq` is the last one that was looked at, `through_seq` the last one there was at the start. A node of the version
-- before does not know the table: what runs waits until a newer node has the application's lane.
CREATE TABLE redelivery (
    tenant_no BIGINT NOT NULL,
    redelivery_id BYTEA NOT NULL CHECK (octet_length(redelivery_id) = 16),
    application_no BIGINT NOT NULL,
    client_id TEXT COLLATE "C" NOT NULL,
    of_state TEXT NOT NULL CHECK (of_state IN ('delivered', 'dead')),
    biz_id TEXT COLLATE "C",
    from_at BIGINT,
    to_at BIGINT,
    rate_per_s BIGINT NOT NULL CHECK (rate_per_s >= 1),
    through_seq BIGINT NOT NULL CHECK (through_seq >= 0),
    cursor_seq BIGINT NOT NULL CHECK (cursor_seq >= 0),
    found BIGINT NOT NULL CHECK (found >= 0),
    is_at_least BOOLEAN NOT NULL,
    done BIGINT NOT NULL CHECK (done >= 0),
    state TEXT NOT NULL CHECK (state IN ('running', 'stopped', 'done')),
    created_at BIGINT NOT NULL,
    ended_at BIGINT,
    PRIMARY KEY (tenant_no, redelivery_id),
    CHECK ((state = 'running') = (ended_at IS NULL))
);
CREATE INDEX redelivery_by_id ON redelivery (redelivery_id);
-- Of one application one is running at the most.
CREATE UNIQUE INDEX redelivery_running ON redelivery (tenant_no, application_no) WHERE state = 'running';
