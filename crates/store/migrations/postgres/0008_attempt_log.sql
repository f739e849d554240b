-- How long each phase of an attempt took, in microseconds, and whether it went over a kept connection. Null: the phase did not happen, or
-- the attempt was noted by an older program. No checks: a column with one is added only after all rows were read.
ALTER TABLE attempt ADD COLUMN dns_us BIGINT, ADD COLUMN connect_us BIGINT, ADD COLUMN tls_us BIGINT,
    ADD COLUMN first_byte_us BIGINT, ADD COLUMN total_us BIGINT, ADD COLUMN reused BOOLEAN;

-- What went over the wire in an attempt. The body that was sent is the event's. Kept for a shorter time than the attempt itself, and found
-- by the attempt's own time: the key is the index by age, too.
CREATE TABLE attempt_bytes (
    tenant_no BIGINT NOT NULL,
    event_no BIGINT NOT NULL,
    attempt BIGINT NOT NULL CHECK (attempt >= 1),
    at BIGINT NOT NULL,
    sent_head BYTEA NOT NULL,
    answer_head BYTEA NOT NULL,
    answer_body BYTEA NOT NULL,
    answer_length BIGINT NOT NULL CHECK (answer_length >= 0),
    is_cut BOOLEAN NOT NULL,
    PRIMARY KEY (tenant_no, at, event_no, attempt)
);
