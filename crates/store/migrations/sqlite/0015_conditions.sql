-- A condition with more than two words in an IN makes a table of them each time that a row is written: 3 us, and four of them for an order that is
-- paid. The same is said with OR. No row changes, nor what may be in one: so the text of the conditions is changed where SQLite keeps it, as its
-- documentation describes (ALTER TABLE, section 7), and no table is made anew.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql,
    'CHECK (kind IN (''institution'', ''merchant'', ''sub_account''))',
    'CHECK (kind = ''institution'' OR kind = ''merchant'' OR kind = ''sub_account'')')
    WHERE type = 'table' AND name = 'merchant';
UPDATE sqlite_schema SET sql = replace(sql,
    'CHECK (role IN (''viewer'', ''operator'', ''security''))',
    'CHECK (role = ''viewer'' OR role = ''operator'' OR role = ''security'')')
    WHERE type = 'table' AND name = 'operator_token';
UPDATE sqlite_schema SET sql = replace(sql,
    'CHECK (status IN (1, 3, 6))',
    'CHECK (status = 1 OR status = 3 OR status = 6)')
    WHERE type = 'table' AND name = 'convert_order';
UPDATE sqlite_schema SET sql = replace(sql,
    'CHECK (status IN (1, 3, 6))',
    'CHECK (status = 1 OR status = 3 OR status = 6)')
    WHERE type = 'table' AND name = 'convert_order_move';
UPDATE sqlite_schema SET sql = replace(sql,
    'CHECK (state IN (''pending'', ''held'', ''delivered'', ''dead''))',
    'CHECK (state = ''pending'' OR state = ''held'' OR state = ''delivered'' OR state = ''dead'')')
    WHERE type = 'table' AND name = 'delivery';
UPDATE sqlite_schema SET sql = replace(sql,
    'CHECK (state IN (''running'', ''stopped'', ''done''))',
    'CHECK (state = ''running'' OR state = ''stopped'' OR state = ''done'')')
    WHERE type = 'table' AND name = 'redelivery';
UPDATE sqlite_schema SET sql = replace(sql,
    'CHECK (status IN (''PENDING'', ''PROCESS'', ''PAID'', ''EXPIRED'', ''CLOSED''))',
    'CHECK (status = ''PENDING'' OR status = ''PROCESS'' OR status = ''PAID'' OR status = ''EXPIRED'' OR status = ''CLOSED'')')
    WHERE type = 'table' AND name = 'payment_order';
UPDATE sqlite_schema SET sql = replace(replace(sql,
    'CHECK (was IN (''PENDING'', ''PROCESS'', ''PAID'', ''EXPIRED'', ''CLOSED''))',
    'CHECK (was = ''PENDING'' OR was = ''PROCESS'' OR was = ''PAID'' OR was = ''EXPIRED'' OR was = ''CLOSED'')'),
    'CHECK (status IN (''PENDING'', ''PROCESS'', ''PAID'', ''EXPIRED'', ''CLOSED''))',
    'CHECK (status = ''PENDING'' OR status = ''PROCESS'' OR status = ''PAID'' OR status = ''EXPIRED'' OR status = ''CLOSED'')')
    WHERE type = 'table' AND name = 'payment_order_move';
PRAGMA writable_schema = RESET;
-- Whoever has the file open reads the schema anew when one was made or dropped.
CREATE TABLE told (one INTEGER);
DROP TABLE told;
