-- What came over the wire when an order was made has a table of its own: a move writes the order's row anew, and a question reads it; neither
-- has to carry the request along. The table is made anew, so that its rows lie close together.
CREATE TABLE payment_order_request (
    tenant_no INTEGER NOT NULL,
    order_no INTEGER PRIMARY KEY CHECK (order_no >= 1),
    request_head TEXT NOT NULL,
    request_body BLOB NOT NULL
) STRICT;
INSERT INTO payment_order_request SELECT tenant_no, order_no, request_head, request_body FROM payment_order ORDER BY order_no;

CREATE TABLE payment_order_small (
    tenant_no INTEGER NOT NULL,
    order_no INTEGER PRIMARY KEY CHECK (order_no >= 1),
    tail INTEGER NOT NULL CHECK (tail BETWEEN 0 AND 999999),
    merchant_no INTEGER NOT NULL REFERENCES merchant (merchant_no),
    application_no INTEGER NOT NULL,
    client_id TEXT NOT NULL,
    trade_no TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('order', 'native')),
    currency TEXT NOT NULL,
    amount INTEGER NOT NULL CHECK (amount > 0),
    merchant_user_id TEXT,
    channel_id TEXT,
    goods_name TEXT,
    goods_detail TEXT,
    terminal_type TEXT,
    return_url TEXT,
    cancel_url TEXT,
    status TEXT NOT NULL CHECK (status IN ('PENDING', 'PROCESS', 'PAID', 'EXPIRED', 'CLOSED')),
    created_at INTEGER NOT NULL,
    expire_at INTEGER NOT NULL,
    actual_amount INTEGER CHECK (actual_amount > 0),
    transact_at INTEGER,
    paid_at INTEGER,
    fee_config_id BLOB CHECK (length(fee_config_id) = 16),
    fee_version_no INTEGER CHECK (fee_version_no >= 1),
    fee_r_markup TEXT,
    fee_f_markup INTEGER,
    r_fee INTEGER,
    f_fee INTEGER,
    worked_sum TEXT,
    revision INTEGER NOT NULL CHECK (revision >= 1),
    actor TEXT NOT NULL,
    request_id TEXT NOT NULL,
    UNIQUE (trade_no, merchant_no),
    CHECK ((status = 'PAID') = (paid_at IS NOT NULL)),
    CHECK ((fee_config_id IS NULL) = (fee_version_no IS NULL))
) STRICT;
INSERT INTO payment_order_small SELECT tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency, amount,
    merchant_user_id, channel_id, goods_name, goods_detail, terminal_type, return_url, cancel_url, status, created_at, expire_at,
    actual_amount, transact_at, paid_at, fee_config_id, fee_version_no, fee_r_markup, fee_f_markup, r_fee, f_fee, worked_sum, revision,
    actor, request_id FROM payment_order ORDER BY order_no;
DROP TABLE payment_order;
ALTER TABLE payment_order_small RENAME TO payment_order;
CREATE INDEX payment_order_by_merchant ON payment_order (merchant_no, order_no);
CREATE INDEX payment_order_expiring ON payment_order (expire_at) WHERE status = 'PENDING';
CREATE INDEX payment_order_paid ON payment_order (merchant_no, paid_at, order_no) WHERE paid_at IS NOT NULL;
CREATE INDEX payment_order_paid_by_tenant ON payment_order (tenant_no, paid_at, order_no) WHERE paid_at IS NOT NULL;

-- Businesses are counted in the order of their ids, most of which grow with time: counters that are made together lie together, whatever
-- application they are of.
CREATE TABLE biz_counter_by_biz (
    tenant_no INTEGER NOT NULL,
    application_no INTEGER NOT NULL,
    biz_id TEXT NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence >= 1),
    PRIMARY KEY (biz_id, application_no)
) STRICT, WITHOUT ROWID;
INSERT INTO biz_counter_by_biz SELECT tenant_no, application_no, biz_id, sequence FROM biz_counter ORDER BY biz_id, application_no;
DROP TABLE biz_counter;
ALTER TABLE biz_counter_by_biz RENAME TO biz_counter;

-- What is pending is in `delivery_next` already: one index less to write for each callback.
DROP INDEX delivery_open;
CREATE INDEX delivery_held ON delivery (application_no, event_no) WHERE state = 'held';
