-- What was paid is walked over by number, as on SQLite; `paid_at` stands behind it, so that what lies outside a span is passed over without a look
-- at its row. What was paid later than a day after its number was drawn, or before that instant, is found in two indexes that hold nothing else.
-- 19 bits of a number are chance; the others are milliseconds since the beginning of 2025.
-- Whoever has very many orders makes all four before, CONCURRENTLY (docs/OPERATING.md, Upgrading): then nobody waits here but for an instant.
-- The table is taken at once: a node that holds rows of it would otherwise wait for the indexes, and the end of the step for that node.
LOCK TABLE payment_order IN ACCESS EXCLUSIVE MODE;
DO $$
DECLARE broken TEXT;
BEGIN
    SELECT string_agg(c.relname, ', ' ORDER BY c.relname) INTO broken FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = 'payment_order'::regclass AND NOT i.indisvalid;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'an index of payment_order is not valid, since what made it was broken off: drop it (%), make it again or leave it to this step, and migrate again', broken;
    END IF;
END $$;
CREATE INDEX IF NOT EXISTS payment_order_paid_of_merchant ON payment_order (tenant_no, merchant_no, order_no, paid_at)
    WHERE paid_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS payment_order_paid_of_tenant ON payment_order (tenant_no, order_no, paid_at) WHERE paid_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS payment_order_late ON payment_order (tenant_no, merchant_no, order_no, paid_at)
    WHERE (order_no >> 19) + 1735689600000 NOT BETWEEN paid_at - 86400000 AND paid_at;
CREATE INDEX IF NOT EXISTS payment_order_late_of_tenant ON payment_order (tenant_no, order_no, paid_at)
    WHERE (order_no >> 19) + 1735689600000 NOT BETWEEN paid_at - 86400000 AND paid_at;
DROP INDEX payment_order_paid;
DROP INDEX payment_order_paid_by_tenant;
