-- A callback that waits for an earlier one of its bizId is noted as behind it, and is due at the end of its patience; the end of the earlier
-- one makes it due. So what is due is what may go. A node of the version before does not know the note: what it ends makes nothing due,
-- and what waits goes at the end of its patience.
ALTER TABLE delivery ADD COLUMN behind_no BIGINT;
-- Sent again by hand: how that ends says nothing about its endpoint's health.
ALTER TABLE delivery ADD COLUMN by_hand BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX delivery_behind ON delivery (tenant_no, behind_no) WHERE behind_no IS NOT NULL;
-- What is owed is read for each application by itself, first attempts apart from repeated ones. The index that nodes of the version before
-- read by stays until none is left.
CREATE INDEX delivery_next ON delivery ((application_no & 63), application_no, least(attempts, 1), due_at, event_no) WHERE state = 'pending';
