-- How callbacks go to the endpoint of an application, where it is not as the deployment says: attempts in a second, attempts at once, when
-- failed ones are repeated. No checks: a column with one is added only after all rows were read. A node of the version before does not know
-- them: what it delivers goes as the deployment says.
ALTER TABLE application ADD COLUMN callback_rate_per_s BIGINT, ADD COLUMN callback_concurrency BIGINT, ADD COLUMN callback_schedule TEXT;
-- What is dead is looked at newest first: of one application, and of all. Whoever has very many deliveries makes both before, CONCURRENTLY
-- (docs/OPERATING.md, Upgrading): then nobody waits for them here.
CREATE INDEX IF NOT EXISTS delivery_dead ON delivery (tenant_no, application_no, event_no) WHERE state = 'dead';
CREATE INDEX IF NOT EXISTS delivery_dead_by_no ON delivery (event_no) WHERE state = 'dead';
