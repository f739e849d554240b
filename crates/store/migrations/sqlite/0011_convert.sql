-- What a base coin is worth in its quote coin, as the back end said last: rates come and go by the second, so what they were is in the audit
-- log alone. `stale_told` is the revision of which operators were told that it had become too old; 0: of none.
CREATE TABLE pair_rate (
    pair TEXT NOT NULL PRIMARY KEY,
    rate TEXT NOT NULL,
    base_min INTEGER,
    base_max INTEGER,
    quote_min INTEGER,
    quote_max INTEGER,
    revision INTEGER NOT NULL CHECK (revision >= 1),
    stale_told INTEGER NOT NULL CHECK (stale_told >= 0),
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- A price that a merchant was promised until an instant, and the order that used it up. Some time after that instant it is forgotten.
CREATE TABLE convert_quote (
    tenant_no INTEGER NOT NULL,
    merchant_no INTEGER NOT NULL REFERENCES merchant (merchant_no),
    quote_id TEXT NOT NULL,
    pair TEXT NOT NULL,
    sell_currency TEXT NOT NULL,
    buy_currency TEXT NOT NULL,
    sell_amount INTEGER NOT NULL,
    buy_amount INTEGER NOT NULL,
    rate TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    order_id INTEGER,
    PRIMARY KEY (merchant_no, quote_id)
) STRICT, WITHOUT ROWID;
-- What is too old to be good is found by its tenant.
CREATE INDEX convert_quote_by_end ON convert_quote (tenant_no, expires_at);
-- The order that a merchant's `clientReqId` stands for, for ever.
CREATE TABLE convert_request (
    tenant_no INTEGER NOT NULL,
    merchant_no INTEGER NOT NULL REFERENCES merchant (merchant_no),
    client_req_id TEXT NOT NULL,
    order_id INTEGER NOT NULL,
    PRIMARY KEY (merchant_no, client_req_id)
) STRICT, WITHOUT ROWID;
