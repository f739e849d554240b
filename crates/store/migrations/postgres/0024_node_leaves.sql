-- A node that is told to stop, and still answers or delivers: others share the lanes among themselves without it.
ALTER TABLE node_program ADD COLUMN leaves BOOLEAN NOT NULL DEFAULT false;
