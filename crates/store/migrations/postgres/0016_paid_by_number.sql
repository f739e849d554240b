-- What was paid is walked over by number, as on SQLite. What was paid later than a day after its number was drawn, or before that instant, is found
-- in two indexes that hold nothing else. 19 bits of a number are chance; the others are milliseconds since the beginning of 2025. Whoever has
-- very many orders makes all four before, CONCURRENTLY (docs/OPERATING.md, Upgrading): then nobody waits for them here. Nodes of the version
-- before find what they did, with more effort.
CREATE INDEX IF NOT EXISTS payment_order_paid_of_merchant ON payment_order (tenant_no, merchant_no, order_no) WHERE paid_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS payment_order_paid_of_tenant ON payment_order (tenant_no, order_no) WHERE paid_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS payment_order_late ON payment_order (tenant_no, merchant_no, order_no)
    WHERE (order_no >> 19) + 1735689600000 NOT BETWEEN paid_at - 86400000 AND paid_at;
CREATE INDEX IF NOT EXISTS payment_order_late_of_tenant ON payment_order (tenant_no, order_no)
    WHERE (order_no >> 19) + 1735689600000 NOT BETWEEN paid_at - 86400000 AND paid_at;
DROP INDEX payment_order_paid;
DROP INDEX payment_order_paid_by_tenant;
