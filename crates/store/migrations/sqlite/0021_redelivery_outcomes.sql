-- Of which redelivery of many an event was part last, so that somebody can ask how its events fare; and where the walk of a redelivery began.
ALTER TABLE delivery ADD COLUMN redelivery_id BLOB;
ALTER TABLE redelivery ADD COLUMN from_seq INTEGER NOT NULL DEFAULT 0 CHECK (from_seq >= 0);
-- What the events that are meant died of; null: of anything.
ALTER TABLE redelivery ADD COLUMN of_outcome TEXT;
ALTER TABLE redelivery ADD COLUMN of_http_status INTEGER;
