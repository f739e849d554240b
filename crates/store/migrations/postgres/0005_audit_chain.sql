-- Lines of the audit log hang together: each has a link made of the one before it in its tenant, its own number and every column
-- (docs/DATA.md). Lines that were there before have none; the first line after them covers them all. A node of the version before
-- goes on writing lines without a link.
-- `link_before`: what the lines of the tenant's last transaction hang on; read by the statement that appends them, and by nobody else.
ALTER TABLE audit ADD COLUMN link BYTEA CHECK (octet_length(link) = 32);
ALTER TABLE audit_head ADD COLUMN link BYTEA CHECK (octet_length(link) = 32);
ALTER TABLE audit_head ADD COLUMN link_before BYTEA CHECK (octet_length(link_before) = 32);
