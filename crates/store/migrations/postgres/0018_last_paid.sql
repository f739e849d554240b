-- The last instant at which an order of each sub-account was paid: its next rule version is made later than that, or it would have been in
-- force when a fee was worked out without it. Nobody waits: what was paid is read beside those who pay.
CREATE TABLE last_paid (
    tenant_no BIGINT NOT NULL,
    merchant_no BIGINT NOT NULL,
    paid_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_no, merchant_no),
    FOREIGN KEY (tenant_no, merchant_no) REFERENCES merchant (tenant_no, merchant_no)
);
INSERT INTO last_paid (tenant_no, merchant_no, paid_at)
    SELECT p.tenant_no, p.merchant_no, max(p.paid_at) FROM payment_order p JOIN merchant m
        ON m.tenant_no = p.tenant_no AND m.merchant_no = p.merchant_no
    WHERE m.kind = 'sub_account' AND p.paid_at IS NOT NULL GROUP BY p.tenant_no, p.merchant_no;
