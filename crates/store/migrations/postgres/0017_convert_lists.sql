-- Operators list a merchant's convert orders, and those that the back end has not carried out yet.
-- Whoever has very many orders makes both before, CONCURRENTLY (docs/OPERATING.md, Upgrading): then nobody waits here but for an instant.
-- The table is taken at once: a node that holds rows of it would otherwise wait for the indexes, and the end of the step for that node.
LOCK TABLE convert_order IN ACCESS EXCLUSIVE MODE;
DO $$
DECLARE broken TEXT;
BEGIN
    SELECT string_agg(c.relname, ', ' ORDER BY c.relname) INTO broken FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = 'convert_order'::regclass AND NOT i.indisvalid;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'an index of convert_order is not valid, since what made it was broken off: drop it (%), make it again or leave it to this step, and migrate again', broken;
    END IF;
END $$;
CREATE INDEX IF NOT EXISTS convert_order_by_merchant ON convert_order (tenant_no, merchant_no, order_id);
CREATE INDEX IF NOT EXISTS convert_order_open ON convert_order (order_id) WHERE status = 1;
