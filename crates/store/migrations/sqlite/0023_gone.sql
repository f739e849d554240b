-- When the endpoint of an application answered 410, where that is why its callbacks are off.
ALTER TABLE application ADD COLUMN callback_gone_at INTEGER;
