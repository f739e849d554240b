-- What came over the wire when an order was made has a table of its own: a move writes the order's row anew, and a question reads it; neither
-- has to carry the request along. Nodes of a program that has steps 12 or 13 as its last must be stopped before (docs/OPERATING.md,
-- Upgrading): they would look for the columns that go.
CREATE TABLE payment_order_request (
    tenant_no BIGINT NOT NULL,
    order_no BIGINT NOT NULL CHECK (order_no >= 1),
    request_head TEXT NOT NULL,
    request_body BYTEA NOT NULL,
    PRIMARY KEY (tenant_no, order_no)
);
INSERT INTO payment_order_request SELECT tenant_no, order_no, request_head, request_body FROM payment_order ORDER BY tenant_no, order_no;
ALTER TABLE payment_order DROP COLUMN request_head, DROP COLUMN request_body;
