-- Conditions of tables are said with OR on SQLite from this step on, since it makes a table of the words of an IN. PostgreSQL does not: nothing
-- changes here, and the numbers of the steps stay the same on both.
SELECT 1;
