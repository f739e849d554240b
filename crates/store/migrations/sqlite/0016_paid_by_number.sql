-- What was paid is walked over by number: of a merchant by the index that lists have, so that a tree less is written for each order that is paid,
-- one in which each merchant had a page of its own. What was paid later than a day after its number was drawn, or before that instant, is found
-- in two indexes that hold nothing else. 19 bits of a number are chance; the others are milliseconds since the beginning of 2025. `paid_at` stands
-- last, so that what lies outside a span is passed over without a look at its row.
DROP INDEX payment_order_paid;
DROP INDEX payment_order_paid_by_tenant;
CREATE INDEX payment_order_paid_of_tenant ON payment_order (tenant_no, order_no, paid_at) WHERE paid_at IS NOT NULL;
CREATE INDEX payment_order_late ON payment_order (merchant_no, order_no, paid_at)
    WHERE (order_no >> 19) + 1735689600000 NOT BETWEEN paid_at - 86400000 AND paid_at;
CREATE INDEX payment_order_late_of_tenant ON payment_order (tenant_no, order_no, paid_at)
    WHERE (order_no >> 19) + 1735689600000 NOT BETWEEN paid_at - 86400000 AND paid_at;
