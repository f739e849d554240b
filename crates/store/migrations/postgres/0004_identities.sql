-- Merchants can be renamed and disabled; what is used of secrets and tokens is counted.
-- Nodes of before this step go on: the new columns have defaults. They do not know that a merchant is disabled.

ALTER TABLE merchant ADD COLUMN enabled BOOLEAN NOT NULL DEFAULT TRUE;
ALTER TABLE merchant ADD COLUMN revision BIGINT NOT NULL DEFAULT 1 CHECK (revision >= 1);
ALTER TABLE secret ADD COLUMN last_used_at BIGINT;
ALTER TABLE operator_token ADD COLUMN last_used_at BIGINT;

-- Requests that were signed with a secret, by minute since 1970, over all nodes. Minutes that are over for long are forgotten.
CREATE TABLE secret_use (
    secret_id TEXT COLLATE "C" NOT NULL REFERENCES secret (secret_id),
    minute BIGINT NOT NULL,
    uses BIGINT NOT NULL CHECK (uses >= 1),
    PRIMARY KEY (secret_id, minute)
);
CREATE INDEX secret_use_by_minute ON secret_use (minute);
