-- Merchants can be renamed and disabled; what is used of secrets and tokens is counted.

ALTER TABLE merchant ADD COLUMN enabled INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1));
ALTER TABLE merchant ADD COLUMN revision INTEGER NOT NULL DEFAULT 1 CHECK (revision >= 1);
ALTER TABLE secret ADD COLUMN last_used_at INTEGER;
ALTER TABLE operator_token ADD COLUMN last_used_at INTEGER;

-- Requests that were signed with a secret, by minute since 1970. Minutes that are over for long are forgotten.
CREATE TABLE secret_use (
    secret_id TEXT NOT NULL REFERENCES secret (secret_id),
    minute INTEGER NOT NULL,
    uses INTEGER NOT NULL CHECK (uses >= 1),
    PRIMARY KEY (secret_id, minute)
) STRICT, WITHOUT ROWID;
CREATE INDEX secret_use_by_minute ON secret_use (minute);
