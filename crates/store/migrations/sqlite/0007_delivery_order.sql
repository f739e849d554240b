-- A callback that waits for an earlier one of its bizId is noted as behind it, and is due at the end of its patience; the end of the earlier
-- one makes it due. So what is due is what may go.
ALTER TABLE delivery ADD COLUMN behind_no INTEGER;
-- Sent again by hand: how that ends says nothing about its endpoint's health.
ALTER TABLE delivery ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0 CHECK (by_hand IN (0, 1));
CREATE INDEX delivery_behind ON delivery (behind_no) WHERE behind_no IS NOT NULL;
-- What is owed is read for each application by itself, first attempts apart from repeated ones.
DROP INDEX delivery_due;
CREATE INDEX delivery_next ON delivery (application_no, min(attempts, 1), due_at, event_no) WHERE state = 'pending';
