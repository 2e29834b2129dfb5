"""The requests of a pool's actions: a function for each type of action, in the table `writes.table.WRITES`."""
