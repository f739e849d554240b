-- Operators list a merchant's convert orders, and those that the back end has not carried out yet.
CREATE INDEX convert_order_by_merchant ON convert_order (merchant_no, order_id);
CREATE INDEX convert_order_open ON convert_order (order_id) WHERE status = 1;
