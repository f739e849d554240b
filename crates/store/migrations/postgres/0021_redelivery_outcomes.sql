-- Of which redelivery of many an event was part last, so that somebody can ask how its events fare; and where the walk of a redelivery began. Neither
-- rewrites its table. What a node of the version before sends again stays where it was, and it knows nothing of causes.
ALTER TABLE delivery ADD COLUMN redelivery_id BYTEA;
ALTER TABLE redelivery ADD COLUMN from_seq BIGINT NOT NULL DEFAULT 0 CHECK (from_seq >= 0);
-- What the events that are meant died of; null: of anything.
ALTER TABLE redelivery ADD COLUMN of_outcome TEXT COLLATE "C";
ALTER TABLE redelivery ADD COLUMN of_http_status BIGINT;
