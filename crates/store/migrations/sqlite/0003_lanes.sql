-- The term of its lane under which an attempt was made. One node delivers here, so it is always 0.
ALTER TABLE attempt ADD COLUMN fence INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0);
