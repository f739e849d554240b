-- How long each phase of an attempt took, in microseconds, and whether it went over a kept connection. Null: the phase did not happen, or
-- the attempt was noted by an older program. No checks: a column with one is added only after all rows were read.
ALTER TABLE attempt ADD COLUMN dns_us INTEGER;
ALTER TABLE attempt ADD COLUMN connect_us INTEGER;
ALTER TABLE attempt ADD COLUMN tls_us INTEGER;
ALTER TABLE attempt ADD COLUMN first_byte_us INTEGER;
ALTER TABLE attempt ADD COLUMN total_us INTEGER;
ALTER TABLE attempt ADD COLUMN reused INTEGER;

-- What went over the wire in an attempt. The body that was sent is the event's. Kept for a shorter time than the attempt itself, and found
-- by the attempt's own time: the key is the index by age, too.
CREATE TABLE attempt_bytes (
    tenant_no INTEGER NOT NULL,
    event_no INTEGER NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 1),
    at INTEGER NOT NULL,
    sent_head BLOB NOT NULL,
    answer_head BLOB NOT NULL,
    answer_body BLOB NOT NULL,
    answer_length INTEGER NOT NULL CHECK (answer_length >= 0),
    is_cut INTEGER NOT NULL CHECK (is_cut IN (0, 1)),
    PRIMARY KEY (tenant_no, at, event_no, attempt)
) STRICT;
