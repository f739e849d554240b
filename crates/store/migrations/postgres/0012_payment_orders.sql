-- Payment orders. `order_no` grows with time, `tail` is chance: together they are the public number. Answers compute from `expire_at` whether a
-- pending order has expired; the stored status follows when its callback is written.
-- An operator looks across tenants by number (payment_order_by_no) and by trade number, which leads its key for that. Nodes of the version
-- before know nothing of all this, and go on.
CREATE TABLE payment_order (
    tenant_no BIGINT NOT NULL,
    order_no BIGINT NOT NULL CHECK (order_no >= 1),
    tail BIGINT NOT NULL CHECK (tail BETWEEN 0 AND 999999),
    merchant_no BIGINT NOT NULL,
    application_no BIGINT NOT NULL,
    client_id TEXT COLLATE "C" NOT NULL,
    trade_no TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('order', 'native')),
    currency TEXT NOT NULL,
    amount BIGINT NOT NULL CHECK (amount > 0),
    merchant_user_id TEXT,
    channel_id TEXT,
    goods_name TEXT,
    goods_detail TEXT,
    terminal_type TEXT,
    return_url TEXT,
    cancel_url TEXT,
    status TEXT NOT NULL CHECK (status IN ('PENDING', 'PROCESS', 'PAID', 'EXPIRED', 'CLOSED')),
    created_at BIGINT NOT NULL,
    expire_at BIGINT NOT NULL,
    actual_amount BIGINT CHECK (actual_amount > 0),
    transact_at BIGINT,
    paid_at BIGINT,
    fee_config_id BYTEA CHECK (octet_length(fee_config_id) = 16),
    fee_version_no BIGINT CHECK (fee_version_no >= 1),
    fee_r_markup TEXT,
    fee_f_markup BIGINT,
    r_fee BIGINT,
    f_fee BIGINT,
    worked_sum TEXT,
    revision BIGINT NOT NULL CHECK (revision >= 1),
    actor TEXT NOT NULL,
    request_id TEXT NOT NULL,
    request_head TEXT NOT NULL,
    request_body BYTEA NOT NULL,
    PRIMARY KEY (tenant_no, merchant_no, order_no),
    UNIQUE (trade_no, tenant_no, merchant_no),
    FOREIGN KEY (tenant_no, merchant_no) REFERENCES merchant (tenant_no, merchant_no),
    CHECK ((status = 'PAID') = (paid_at IS NOT NULL)),
    CHECK ((fee_config_id IS NULL) = (fee_version_no IS NULL))
);
CREATE UNIQUE INDEX payment_order_by_no ON payment_order (order_no, tenant_no);
-- What is still to expire, by the lane of the node that writes its callback.
CREATE INDEX payment_order_expiring ON payment_order ((application_no & 63), expire_at) WHERE status = 'PENDING';

CREATE TABLE payment_order_move (
    tenant_no BIGINT NOT NULL,
    order_no BIGINT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision >= 2),
    was TEXT NOT NULL CHECK (was IN ('PENDING', 'PROCESS', 'PAID', 'EXPIRED', 'CLOSED')),
    status TEXT NOT NULL CHECK (status IN ('PENDING', 'PROCESS', 'PAID', 'EXPIRED', 'CLOSED')),
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    request_id TEXT NOT NULL,
    PRIMARY KEY (tenant_no, order_no, revision)
);
