-- Many events of an application that are sent again by a filter, in portions: what was asked for, how far it is, how it ended. Its events are
-- walked by `seq`: `cursor_seq` is the last one that was looked at, `through_seq` the last one there was at the start.
CREATE TABLE redelivery (
    tenant_no INTEGER NOT NULL,
    redelivery_id BLOB NOT NULL PRIMARY KEY CHECK (length(redelivery_id) = 16),
    application_no INTEGER NOT NULL,
    client_id TEXT NOT NULL,
    of_state TEXT NOT NULL CHECK (of_state IN ('delivered', 'dead')),
    biz_id TEXT,
    from_at INTEGER,
    to_at INTEGER,
    rate_per_s INTEGER NOT NULL CHECK (rate_per_s >= 1),
    through_seq INTEGER NOT NULL CHECK (through_seq >= 0),
    cursor_seq INTEGER NOT NULL CHECK (cursor_seq >= 0),
    found INTEGER NOT NULL CHECK (found >= 0),
    is_at_least INTEGER NOT NULL CHECK (is_at_least IN (0, 1)),
    done INTEGER NOT NULL CHECK (done >= 0),
    state TEXT NOT NULL CHECK (state IN ('running', 'stopped', 'done')),
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    CHECK ((state = 'running') = (ended_at IS NULL))
) STRICT, WITHOUT ROWID;
-- Of one application one is running at the most.
CREATE UNIQUE INDEX redelivery_running ON redelivery (tenant_no, application_no) WHERE state = 'running';
