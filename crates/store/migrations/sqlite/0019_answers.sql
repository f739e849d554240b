-- An answer is kept by token, route and key alone. Before, the period that it was made in stood at the end of the scope, behind a line feed, so that
-- two calls on either side of a period's end could both be done, and another length of the periods forgot every key. Of two periods the newer stays.
DELETE FROM idempotency WHERE (scope, key) NOT IN (SELECT scope, key FROM (SELECT scope, key, row_number() OVER
    (PARTITION BY rtrim(scope, '0123456789'), key ORDER BY created_at DESC, scope DESC) AS place FROM idempotency) a WHERE place = 1);
UPDATE idempotency SET scope = rtrim(rtrim(scope, '0123456789'), char(10));
