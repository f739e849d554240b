-- Lines of the audit log hang together: each has a link made of the one before it in its tenant, its own number and every column
-- (docs/DATA.md). Lines that were there before have none; the first line after them covers them all.
ALTER TABLE audit ADD COLUMN link BLOB CHECK (length(link) = 32);
ALTER TABLE audit_head ADD COLUMN link BLOB CHECK (length(link) = 32);
