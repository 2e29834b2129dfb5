"""What the features of a pool want: a rule for each, in the table `rules.table.RULES`. Nothing else stops a VM."""
