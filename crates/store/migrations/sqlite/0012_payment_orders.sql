-- Payment orders. `order_no` grows with time, `tail` is chance: together they are the public number. Answers compute from `expire_at` whether a
-- pending order has expired; the stored status follows when its callback is written.
-- An operator looks across merchants by trade number, so it leads its key. What came over the wire stands last: who does not ask for it does
-- not read it.
CREATE TABLE payment_order (
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
    request_head TEXT NOT NULL,
    request_body BLOB NOT NULL,
    UNIQUE (trade_no, merchant_no),
    CHECK ((status = 'PAID') = (paid_at IS NOT NULL)),
    CHECK ((fee_config_id IS NULL) = (fee_version_no IS NULL))
) STRICT;
CREATE INDEX payment_order_by_merchant ON payment_order (merchant_no, order_no);
CREATE INDEX payment_order_expiring ON payment_order (expire_at) WHERE status = 'PENDING';

CREATE TABLE payment_order_move (
    tenant_no INTEGER NOT NULL,
    order_no INTEGER NOT NULL,
    revision INTEGER NOT NULL CHECK (revision >= 2),
    was TEXT NOT NULL CHECK (was IN ('PENDING', 'PROCESS', 'PAID', 'EXPIRED', 'CLOSED')),
    status TEXT NOT NULL CHECK (status IN ('PENDING', 'PROCESS', 'PAID', 'EXPIRED', 'CLOSED')),
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    request_id TEXT NOT NULL,
    PRIMARY KEY (order_no, revision)
) STRICT, WITHOUT ROWID;
