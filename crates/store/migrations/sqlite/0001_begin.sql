-- Every table of the first schema. docs/DATA.md says what each is for and who moves its rows.
-- Times are milliseconds since 1970 UTC, amounts millionths, rates exact decimals as text, ids of 128 bits blobs.

CREATE TABLE setting (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE replay (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    hash_key BLOB NOT NULL CHECK (length(hash_key) = 16),
    boot_id TEXT NOT NULL,
    journal_synced INTEGER NOT NULL CHECK (journal_synced IN (0, 1)),
    horizon INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    unknowable_through INTEGER NOT NULL
) STRICT;

CREATE TABLE nonce (
    nonce_no INTEGER PRIMARY KEY,
    claim BLOB NOT NULL CHECK (length(claim) = 16),
    stamped_at INTEGER NOT NULL
) STRICT;

CREATE TABLE merchant (
    tenant_no INTEGER NOT NULL REFERENCES merchant (merchant_no),
    merchant_no INTEGER PRIMARY KEY,
    merchant_id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('institution', 'merchant', 'sub_account')),
    name TEXT NOT NULL,
    base_r TEXT NOT NULL,
    base_f INTEGER NOT NULL,
    user_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX merchant_by_tenant ON merchant (tenant_no, merchant_id);

CREATE TABLE application (
    tenant_no INTEGER NOT NULL REFERENCES merchant (merchant_no),
    application_no INTEGER PRIMARY KEY,
    client_id TEXT NOT NULL UNIQUE,
    merchant_no INTEGER NOT NULL REFERENCES merchant (merchant_no),
    name TEXT NOT NULL,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    callback_url TEXT,
    callback_enabled INTEGER NOT NULL CHECK (callback_enabled IN (0, 1)),
    callback_encoding TEXT NOT NULL CHECK (callback_encoding IN ('hex', 'base64')),
    callback_vocabulary TEXT NOT NULL CHECK (callback_vocabulary IN ('standard', 'family')),
    timestamp_tolerance_ms INTEGER,
    tolerance_before_ms INTEGER,
    tolerance_raised_at INTEGER CHECK ((tolerance_raised_at IS NULL) = (tolerance_before_ms IS NULL)),
    rate_limit_per_s INTEGER CHECK (rate_limit_per_s BETWEEN 0 AND 4294967295),
    revision INTEGER NOT NULL CHECK (revision >= 1),
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX application_by_merchant ON application (merchant_no);

CREATE TABLE secret (
    application_no INTEGER NOT NULL REFERENCES application (application_no),
    secret_id TEXT PRIMARY KEY,
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    fingerprint TEXT NOT NULL,
    last4 TEXT NOT NULL,
    signs_callbacks INTEGER NOT NULL CHECK (signs_callbacks IN (0, 1)),
    created_at INTEGER NOT NULL,
    not_after INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX secret_by_application ON secret (application_no);

CREATE TABLE operator_token (
    token_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'security')),
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

-- Versions are appended in the order they are made, so that many upgrades share pages; a version points back to the one before it
-- (previous_no) and to the one it found in force (base_no). The head points to the newest.
CREATE TABLE fee_rule (
    tenant_no INTEGER NOT NULL,
    rule_no INTEGER PRIMARY KEY,
    merchant_no INTEGER NOT NULL,
    version_no INTEGER NOT NULL CHECK (version_no >= 1),
    previous_no INTEGER CHECK ((version_no = 1) = (previous_no IS NULL)),
    base_no INTEGER,
    config_id BLOB NOT NULL CHECK (length(config_id) = 16),
    previous_config_id BLOB CHECK (length(previous_config_id) = 16),
    base_version_no INTEGER CHECK ((base_version_no IS NULL) = (base_no IS NULL)),
    r_markup TEXT NOT NULL,
    f_markup INTEGER NOT NULL CHECK (f_markup >= 0),
    effective_at INTEGER NOT NULL,
    due_at INTEGER,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE fee_rule_head (
    tenant_no INTEGER NOT NULL,
    merchant_no INTEGER PRIMARY KEY REFERENCES merchant (merchant_no),
    version_no INTEGER NOT NULL CHECK (version_no >= 1),
    last_no INTEGER NOT NULL,
    base_version_no INTEGER,
    base_no INTEGER
) STRICT;

CREATE TABLE convert_order (
    tenant_no INTEGER NOT NULL,
    order_id INTEGER PRIMARY KEY CHECK (order_id BETWEEN 1 AND 999999999999999999),
    merchant_no INTEGER NOT NULL REFERENCES merchant (merchant_no),
    user_id INTEGER NOT NULL,
    sell_currency TEXT NOT NULL,
    buy_currency TEXT NOT NULL,
    sell_amount INTEGER NOT NULL,
    buy_amount INTEGER NOT NULL,
    status INTEGER NOT NULL CHECK (status IN (1, 3, 6)),
    rate TEXT NOT NULL,
    quote_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    revision INTEGER NOT NULL CHECK (revision >= 1)
) STRICT;

CREATE TABLE convert_order_move (
    tenant_no INTEGER NOT NULL,
    order_id INTEGER NOT NULL REFERENCES convert_order (order_id),
    revision INTEGER NOT NULL CHECK (revision >= 1),
    status INTEGER NOT NULL CHECK (status IN (1, 3, 6)),
    at INTEGER NOT NULL,
    PRIMARY KEY (order_id, revision)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    tenant_no INTEGER NOT NULL,
    event_no INTEGER PRIMARY KEY,
    application_no INTEGER NOT NULL REFERENCES application (application_no),
    client_id TEXT NOT NULL,
    event_id BLOB NOT NULL UNIQUE CHECK (length(event_id) = 16),
    seq INTEGER NOT NULL CHECK (seq >= 1),
    sequence INTEGER NOT NULL CHECK (sequence >= 1),
    biz_type TEXT NOT NULL,
    biz_id TEXT NOT NULL,
    biz_status TEXT NOT NULL,
    data TEXT NOT NULL,
    body BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (application_no, seq)
) STRICT;
CREATE INDEX event_by_biz ON event (biz_id, event_no);

CREATE TABLE delivery (
    tenant_no INTEGER NOT NULL,
    event_no INTEGER PRIMARY KEY REFERENCES event (event_no),
    application_no INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'held', 'delivered', 'dead')),
    attempts INTEGER NOT NULL CHECK (attempts >= 0),
    due_at INTEGER,
    CHECK ((state = 'pending') = (due_at IS NOT NULL))
) STRICT;
CREATE INDEX delivery_due ON delivery (due_at) WHERE state = 'pending';
CREATE INDEX delivery_open ON delivery (application_no, state) WHERE state IN ('pending', 'held');

CREATE TABLE attempt (
    tenant_no INTEGER NOT NULL,
    event_no INTEGER NOT NULL REFERENCES delivery (event_no),
    attempt INTEGER NOT NULL CHECK (attempt >= 1),
    at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    http_status INTEGER CHECK (http_status BETWEEN 0 AND 65535),
    duration_ms INTEGER NOT NULL,
    address TEXT,
    detail TEXT NOT NULL,
    PRIMARY KEY (event_no, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE event_counter (
    tenant_no INTEGER NOT NULL,
    application_no INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL CHECK (seq >= 1)
) STRICT;

CREATE TABLE biz_counter (
    tenant_no INTEGER NOT NULL,
    application_no INTEGER NOT NULL,
    biz_id TEXT NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence >= 1),
    PRIMARY KEY (application_no, biz_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    body_digest BLOB NOT NULL CHECK (length(body_digest) = 32),
    status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 65535),
    answer TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (created_at);

CREATE TABLE audit (
    tenant_no INTEGER,
    audit_no INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    source TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    request_id TEXT NOT NULL
) STRICT;
