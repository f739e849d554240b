-- The settings of a node that have to be the same on all of them, so that each can tell where they differ. Null: a node from before this step, which
-- writes its row without it.
ALTER TABLE node_program ADD COLUMN settings TEXT;
