-- The last instant at which an order of each sub-account was paid: its next rule version is made later than that, or it would have been in
-- force when a fee was worked out without it.
CREATE TABLE last_paid (
    tenant_no INTEGER NOT NULL,
    merchant_no INTEGER PRIMARY KEY REFERENCES merchant (merchant_no),
    paid_at INTEGER NOT NULL
) STRICT;
INSERT INTO last_paid (tenant_no, merchant_no, paid_at)
    SELECT p.tenant_no, p.merchant_no, max(p.paid_at) FROM payment_order p JOIN merchant m ON m.merchant_no = p.merchant_no
    WHERE m.kind = 'sub_account' AND p.paid_at IS NOT NULL GROUP BY p.tenant_no, p.merchant_no;
