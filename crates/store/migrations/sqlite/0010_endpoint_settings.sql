-- How callbacks go to the endpoint of an application, where it is not as the deployment says: attempts in a second, attempts at once, when
-- failed ones are repeated. No checks: a column with one is added only after all rows were read.
ALTER TABLE application ADD COLUMN callback_rate_per_s INTEGER;
ALTER TABLE application ADD COLUMN callback_concurrency INTEGER;
ALTER TABLE application ADD COLUMN callback_schedule TEXT;
-- What is dead is looked at newest first: of one application, and of all.
CREATE INDEX delivery_dead ON delivery (application_no, event_no) WHERE state = 'dead';
CREATE INDEX delivery_dead_by_no ON delivery (event_no) WHERE state = 'dead';
