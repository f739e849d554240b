-- What a base coin is worth in its quote coin, as the back end said last: rates come and go by the second, so what they were is in the audit
-- log alone. `stale_told` is the revision of which operators were told that it had become too old; 0: of none.
CREATE TABLE pair_rate (
    pair TEXT COLLATE "C" PRIMARY KEY,
    rate TEXT NOT NULL,
    base_min BIGINT,
    base_max BIGINT,
    quote_min BIGINT,
    quote_max BIGINT,
    revision BIGINT NOT NULL CHECK (revision >= 1),
    stale_told BIGINT NOT NULL CHECK (stale_told >= 0),
    updated_at BIGINT NOT NULL
);
-- A price that a merchant was promised until an instant, and the order that used it up. Some time after that instant it is forgotten.
CREATE TABLE convert_quote (
    tenant_no BIGINT NOT NULL,
    merchant_no BIGINT NOT NULL,
    quote_id TEXT COLLATE "C" NOT NULL,
    pair TEXT NOT NULL,
    sell_currency TEXT NOT NULL,
    buy_currency TEXT NOT NULL,
    sell_amount BIGINT NOT NULL,
    buy_amount BIGINT NOT NULL,
    rate TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    order_id BIGINT,
    PRIMARY KEY (tenant_no, merchant_no, quote_id),
    FOREIGN KEY (tenant_no, merchant_no) REFERENCES merchant (tenant_no, merchant_no)
);
-- What is too old to be good is found by its tenant.
CREATE INDEX convert_quote_by_end ON convert_quote (tenant_no, expires_at);
-- The order that a merchant's `clientReqId` stands for, for ever.
CREATE TABLE convert_request (
    tenant_no BIGINT NOT NULL,
    merchant_no BIGINT NOT NULL,
    client_req_id TEXT COLLATE "C" NOT NULL,
    order_id BIGINT NOT NULL,
    PRIMARY KEY (tenant_no, merchant_no, client_req_id),
    FOREIGN KEY (tenant_no, merchant_no) REFERENCES merchant (tenant_no, merchant_no)
);
