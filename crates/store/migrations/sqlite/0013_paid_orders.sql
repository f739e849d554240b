-- What was paid is walked over in the order of payment: of one merchant, and of an institution with all its sub-accounts. `order_no` stands
-- behind the instant, so that a page goes on where the one before ended.
CREATE INDEX IF NOT EXISTS payment_order_paid ON payment_order (merchant_no, paid_at, order_no) WHERE paid_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS payment_order_paid_by_tenant ON payment_order (tenant_no, paid_at, order_no) WHERE paid_at IS NOT NULL;
