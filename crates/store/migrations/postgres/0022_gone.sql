-- When the endpoint of an application answered 410, where that is why its callbacks are off. No check beside `callback_enabled`: a node of the
-- version before turns callbacks on and knows nothing of this column, so it says something only of an application whose callbacks are off.
ALTER TABLE application ADD COLUMN callback_gone_at BIGINT;
