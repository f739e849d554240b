-- Every table of the first schema; a test compares it with SQLite's. docs/DATA.md says what each is for and who moves its rows.
-- Times are milliseconds since 1970 UTC, amounts millionths, rates exact decimals as text, ids of 128 bits blobs.
-- Texts that are keys are compared byte by byte, whatever the database's own order is.
-- What grows with a tenant's business begins with its number, in the row and in its key, so that it can be spread by it
-- (docs/SCALING.md). The others are small reference tables: setting, replay, merchant, application, secret, operator_token and
-- idempotency; order_directory is spread by its own key.

CREATE TABLE setting (
    name TEXT COLLATE "C" PRIMARY KEY,
    value TEXT NOT NULL
);

-- `horizon`: nonces stamped at or before it are too old. It is raised under a lock that excludes every claim.
CREATE TABLE replay (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    hash_key BYTEA NOT NULL CHECK (octet_length(hash_key) = 16),
    horizon BIGINT NOT NULL
);

-- `settled_by`: which group of claims inserted it, of requests that changed nothing; null for those of a change.
CREATE TABLE nonce (
    tenant_no BIGINT NOT NULL,
    claim BYTEA NOT NULL CHECK (octet_length(claim) = 16),
    stamped_at BIGINT NOT NULL,
    settled_by BIGINT,
    PRIMARY KEY (tenant_no, claim)
);
CREATE INDEX nonce_by_time ON nonce (stamped_at);

-- The last group of batches that each writing lane committed: what a lane asks for when its connection broke in a commit.
-- Whoever inserts the row first decides: the lane's own transaction (`done`), or the lane that asks, which then knows it never will be.
-- The tenant is that of the whole group; 0 where it may be of many.
CREATE TABLE commit_mark (
    tenant_no BIGINT NOT NULL,
    lane BYTEA NOT NULL,
    mark BIGINT NOT NULL,
    marked_at BIGINT NOT NULL,
    done BOOLEAN NOT NULL,
    PRIMARY KEY (tenant_no, lane, mark)
);

-- Which deployment of a file was moved here, if one was. Nobody serves the database until it is complete.
CREATE TABLE move_record (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    move_id TEXT NOT NULL,
    began_at BIGINT NOT NULL,
    completed_at BIGINT
);

-- How many rows of each table the move has copied; noted with the rows.
CREATE TABLE move_progress (
    table_name TEXT COLLATE "C" PRIMARY KEY,
    row_count BIGINT NOT NULL CHECK (row_count >= 0)
);

CREATE TABLE merchant (
    tenant_no BIGINT NOT NULL REFERENCES merchant (merchant_no),
    merchant_no BIGINT PRIMARY KEY,
    merchant_id TEXT COLLATE "C" NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('institution', 'merchant', 'sub_account')),
    name TEXT NOT NULL,
    base_r TEXT NOT NULL,
    base_f BIGINT NOT NULL,
    user_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (tenant_no, merchant_no)
);
CREATE INDEX merchant_by_tenant ON merchant (tenant_no, merchant_id);

CREATE TABLE application (
    tenant_no BIGINT NOT NULL REFERENCES merchant (merchant_no),
    application_no BIGINT PRIMARY KEY,
    client_id TEXT COLLATE "C" NOT NULL UNIQUE,
    merchant_no BIGINT NOT NULL,
    name TEXT NOT NULL,
    enabled BOOLEAN NOT NULL,
    callback_url TEXT,
    callback_enabled BOOLEAN NOT NULL,
    callback_encoding TEXT NOT NULL CHECK (callback_encoding IN ('hex', 'base64')),
    callback_vocabulary TEXT NOT NULL CHECK (callback_vocabulary IN ('standard', 'family')),
    timestamp_tolerance_ms BIGINT,
    tolerance_before_ms BIGINT,
    tolerance_raised_at BIGINT CHECK ((tolerance_raised_at IS NULL) = (tolerance_before_ms IS NULL)),
    rate_limit_per_s BIGINT CHECK (rate_limit_per_s BETWEEN 0 AND 4294967295),
    revision BIGINT NOT NULL CHECK (revision >= 1),
    created_at BIGINT NOT NULL,
    UNIQUE (tenant_no, application_no),
    FOREIGN KEY (tenant_no, merchant_no) REFERENCES merchant (tenant_no, merchant_no)
);
CREATE INDEX application_by_merchant ON application (merchant_no);

CREATE TABLE secret (
    application_no BIGINT NOT NULL REFERENCES application (application_no),
    secret_id TEXT COLLATE "C" PRIMARY KEY,
    key_id TEXT NOT NULL,
    sealed BYTEA NOT NULL,
    fingerprint TEXT NOT NULL,
    last4 TEXT NOT NULL,
    signs_callbacks BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    not_after BIGINT,
    revoked_at BIGINT
);
CREATE INDEX secret_by_application ON secret (application_no);

CREATE TABLE operator_token (
    token_id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT NOT NULL,
    digest BYTEA NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'security')),
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);

-- Versions of a sub-account are numbered without gap, so that every one is found by its number; the head says which is the newest.
CREATE TABLE fee_rule (
    tenant_no BIGINT NOT NULL,
    merchant_no BIGINT NOT NULL,
    version_no BIGINT NOT NULL CHECK (version_no >= 1),
    config_id BYTEA NOT NULL CHECK (octet_length(config_id) = 16),
    previous_config_id BYTEA CHECK (octet_length(previous_config_id) = 16),
    base_version_no BIGINT CHECK (base_version_no BETWEEN 1 AND version_no - 1),
    r_markup TEXT NOT NULL,
    f_markup BIGINT NOT NULL CHECK (f_markup >= 0),
    effective_at BIGINT NOT NULL,
    due_at BIGINT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_no, merchant_no, version_no),
    CHECK ((version_no = 1) = (previous_config_id IS NULL))
);

CREATE TABLE fee_rule_head (
    tenant_no BIGINT NOT NULL,
    merchant_no BIGINT NOT NULL,
    version_no BIGINT NOT NULL CHECK (version_no >= 1),
    config_id BYTEA NOT NULL CHECK (octet_length(config_id) = 16),
    base_version_no BIGINT,
    PRIMARY KEY (tenant_no, merchant_no),
    FOREIGN KEY (tenant_no, merchant_no) REFERENCES merchant (tenant_no, merchant_no)
);

-- Whose a convert order is. Its number is new in the whole deployment, since whoever makes an order may choose it.
CREATE TABLE order_directory (
    order_id BIGINT PRIMARY KEY,
    tenant_no BIGINT NOT NULL
);

CREATE TABLE convert_order (
    tenant_no BIGINT NOT NULL,
    order_id BIGINT NOT NULL CHECK (order_id BETWEEN 1 AND 999999999999999999),
    merchant_no BIGINT NOT NULL,
    user_id BIGINT NOT NULL,
    sell_currency TEXT NOT NULL,
    buy_currency TEXT NOT NULL,
    sell_amount BIGINT NOT NULL,
    buy_amount BIGINT NOT NULL,
    status BIGINT NOT NULL CHECK (status IN (1, 3, 6)),
    rate TEXT NOT NULL,
    quote_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision >= 1),
    PRIMARY KEY (tenant_no, order_id),
    FOREIGN KEY (tenant_no, merchant_no) REFERENCES merchant (tenant_no, merchant_no)
);

CREATE TABLE convert_order_move (
    tenant_no BIGINT NOT NULL,
    order_id BIGINT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision >= 1),
    status BIGINT NOT NULL CHECK (status IN (1, 3, 6)),
    at BIGINT NOT NULL,
    PRIMARY KEY (tenant_no, order_id, revision),
    FOREIGN KEY (tenant_no, order_id) REFERENCES convert_order (tenant_no, order_id)
);

-- Numbers and ids of events are ours, of the time and chance: nobody chooses one that somebody else has, so they are checked within
-- the tenant. An id leads its key, so that an operator's look-up by it is one of an index, too.
CREATE TABLE event (
    tenant_no BIGINT NOT NULL,
    event_no BIGINT NOT NULL,
    application_no BIGINT NOT NULL,
    client_id TEXT COLLATE "C" NOT NULL,
    event_id BYTEA NOT NULL CHECK (octet_length(event_id) = 16),
    seq BIGINT NOT NULL CHECK (seq >= 1),
    sequence BIGINT NOT NULL CHECK (sequence >= 1),
    biz_type TEXT NOT NULL,
    biz_id TEXT COLLATE "C" NOT NULL,
    biz_status TEXT NOT NULL,
    data TEXT NOT NULL,
    body BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_no, event_no),
    UNIQUE (event_id, tenant_no),
    UNIQUE (tenant_no, application_no, seq),
    FOREIGN KEY (tenant_no, application_no) REFERENCES application (tenant_no, application_no)
);
CREATE INDEX event_by_biz ON event (biz_id, event_no);
CREATE INDEX event_by_no ON event (event_no);

CREATE TABLE delivery (
    tenant_no BIGINT NOT NULL,
    event_no BIGINT NOT NULL,
    application_no BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'held', 'delivered', 'dead')),
    attempts BIGINT NOT NULL CHECK (attempts >= 0),
    due_at BIGINT,
    PRIMARY KEY (tenant_no, event_no),
    FOREIGN KEY (tenant_no, event_no) REFERENCES event (tenant_no, event_no),
    CHECK ((state = 'pending') = (due_at IS NOT NULL))
);
CREATE INDEX delivery_due ON delivery (due_at) WHERE state = 'pending';
CREATE INDEX delivery_open ON delivery (tenant_no, application_no, state) WHERE state IN ('pending', 'held');

CREATE TABLE attempt (
    tenant_no BIGINT NOT NULL,
    event_no BIGINT NOT NULL,
    attempt BIGINT NOT NULL CHECK (attempt >= 1),
    at BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    http_status BIGINT CHECK (http_status BETWEEN 0 AND 65535),
    duration_ms BIGINT NOT NULL,
    address TEXT,
    detail TEXT NOT NULL,
    PRIMARY KEY (tenant_no, event_no, attempt),
    FOREIGN KEY (tenant_no, event_no) REFERENCES delivery (tenant_no, event_no)
);

CREATE TABLE event_counter (
    tenant_no BIGINT NOT NULL,
    application_no BIGINT NOT NULL,
    seq BIGINT NOT NULL CHECK (seq >= 1),
    PRIMARY KEY (tenant_no, application_no)
);

CREATE TABLE biz_counter (
    tenant_no BIGINT NOT NULL,
    application_no BIGINT NOT NULL,
    biz_id TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL CHECK (sequence >= 1),
    PRIMARY KEY (tenant_no, application_no, biz_id)
);

CREATE TABLE idempotency (
    scope TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    body_digest BYTEA NOT NULL CHECK (octet_length(body_digest) = 32),
    status BIGINT NOT NULL CHECK (status BETWEEN 0 AND 65535),
    answer TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_by_age ON idempotency (created_at);

-- The last number of the audit log of each tenant, and of the system's own lines as tenant 0.
CREATE TABLE audit_head (
    tenant_no BIGINT PRIMARY KEY,
    audit_no BIGINT NOT NULL CHECK (audit_no >= 1)
);

CREATE TABLE audit (
    tenant_no BIGINT NOT NULL,
    audit_no BIGINT NOT NULL CHECK (audit_no >= 1),
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    source TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    request_id TEXT NOT NULL,
    PRIMARY KEY (tenant_no, audit_no)
);
CREATE INDEX audit_by_time ON audit (at, tenant_no, audit_no);
